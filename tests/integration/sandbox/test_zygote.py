"""Kernels that are forked: what they find loaded, what is new in each, and that none is missing."""

import asyncio
import os

import pytest

PRELOAD = ('numpy', 'pandas', 'matplotlib.pyplot')
PLOT = """
import time
began = time.process_time()
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
time.process_time() - began
"""
# The process that kernels are forked from, seen from inside: the kernel's older sibling.
FIND = """
import os, signal

def stat(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            name, _, rest = file.read().rpartition(')')
            return name.partition('(')[2], int(rest.split()[1])
    except OSError:
        return '', 0  # gone meanwhile

pids = [int(name) for name in os.listdir('/proc') if name.isdigit()]
zygote = min(pid for pid in pids if stat(pid)[1] == os.getppid() and pid != os.getpid())
"""
RANDOM = 'import os, random, uuid\nrandom.random(), uuid.uuid4().hex, os.urandom(8)'


async def warm(box) -> None:
    await box.start()
    await box._machine.warm()


async def value(box, code: str) -> object:
    result = await box.execute(code)
    assert result.ok, result.text
    return eval(result.result)


async def test_a_warm_kernel_has_the_libraries_loaded(amake):
    async with amake(preload=PRELOAD, cpus=2) as box:
        cold = await box.execute(PLOT)
        await warm(box)
        result = await box.execute(PLOT)
        assert result.notices == ()
        assert [output.kind for output in result.outputs] == ['display', 'result']
        assert 'image/png' in result.outputs[0].data
        assert await value(box, 'import sys; "pandas" in sys.modules')
        assert float(result.result) < float(cold.result) / 2
        # BLAS has its threads, and they work.
        product = 'import numpy as np\na = np.ones((600, 600))\nfloat((a @ a).sum())'
        assert await value(box, product) == 600.0**3
        assert await value(box, 'import pandas as pd\nint(pd.Series([1, 2]).sum())') == 3


async def test_each_kernel_draws_its_own_random_numbers(amake):
    code = f'import numpy\n{RANDOM}, numpy.random.rand(), numpy.random.default_rng().random()'
    async with amake(preload=('numpy', 'numpy.random')) as box:
        await warm(box)
        seen = [await value(box, code)]
        for _ in range(2):
            await box.restart()
            seen.append(await value(box, code))
        for numbers in zip(*seen, strict=True):
            assert len(set(numbers)) == 3


async def test_nothing_of_the_workspace_is_preloaded(amake):
    async with amake(preload=('colorsys', 'matplotlib')) as box:
        await box.upload(b'raise SystemExit', 'colorsys.py')
        await box.upload(b'figure.dpi: 33', 'matplotlibrc')
        await warm(box)
        path = await value(box, 'import colorsys, os\nos.path.dirname(colorsys.__file__)')
        assert path == await value(box, 'os.path.dirname(os.__file__)')
        assert await value(box, 'import matplotlib\nmatplotlib.rcParams["figure.dpi"]') != 33
        assert await value(box, 'os.getcwd() == os.path.realpath(os.curdir)')
        assert {file.path for file in await box.files()} == {'colorsys.py', 'matplotlibrc'}


async def test_what_cannot_be_preloaded_is_said_once(amake):
    async with amake(preload=('no_such_module', 'json')) as box:
        await warm(box)
        (notice,) = (await box.execute('1')).notices
        assert "'no_such_module' was not preloaded" in notice
        assert 'ModuleNotFoundError' in notice
        assert (await box.execute('1')).notices == ()


@pytest.mark.parametrize('deed', ['SIGKILL', 'SIGSTOP'])
async def test_code_that_attacks_it_gets_a_kernel_all_the_same(amake, deed):
    async with amake() as box:
        await box.execute("x = 1\nopen('kept', 'w').close()")
        assert (await box.execute(f'{FIND}\nos.kill(zygote, signal.{deed})\nx')).result == '1'
        await box.restart()
        assert [file.path for file in await box.files()] == ['kept']
        assert (await box.execute('x')).error.name == 'NameError'
        dead = await box.execute('import os\nos._exit(3)')
        assert dead.exit_code == 3
        assert (await box.execute('1')).ok


async def test_its_memory_is_closed_to_code(amake, backend):
    if backend == 'local' and os.geteuid() == 0:
        pytest.skip('root may look at every process')
    async with amake() as box:
        result = await box.execute(f"{FIND}\nopen(f'/proc/{{zygote}}/mem', 'r+b')")
        assert result.error.name == 'PermissionError'
        assert (await box.execute("os.listdir(f'/proc/{zygote}/fd')")).error.name == (
            'PermissionError'
        )


async def test_a_restart_leaves_no_process_behind(amake, backend):
    if backend == 'local':
        pytest.skip('it sees the processes of the whole machine')
    async with amake() as box:
        for _ in range(5):
            await box.execute('import subprocess\nsubprocess.Popen(["sleep", "600"])')
            await asyncio.gather(box.restart(), box.execute('1'))
        assert await value(box, f'{FIND}\n[stat(pid)[0] for pid in pids].count("sleep")') == 0
