import asyncio
import contextvars
import gc
import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox.portal import PortalError, blocking, blocking_iterator, get_portal

variable: contextvars.ContextVar[str] = contextvars.ContextVar('variable', default='unset')
ROOT = Path(__file__).parents[3]


class AsyncGreeter:
    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[str] = []

    async def greet(self, greeting: str, *, mark: str = '!') -> str:
        """Greet."""
        await asyncio.sleep(0)
        return f'{greeting} {self.name}{mark}'

    async def count(self, limit: int = 3) -> AsyncIterator[int]:
        """Count."""
        try:
            for number in range(limit):
                self.log.append(f'{number} {variable.get()}')
                yield number
        finally:
            await asyncio.sleep(0)
            self.log.append('closed')


class Greeter:
    __init__ = AsyncGreeter.__init__
    greet = blocking(AsyncGreeter.greet)
    count = blocking_iterator(AsyncGreeter.count)


def test_there_is_one_portal():
    with_threads = []
    threads = [threading.Thread(target=lambda: with_threads.append(get_portal())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(with_threads) == {get_portal()}


def test_a_blocking_method_looks_like_its_original():
    assert Greeter('Ada').greet('hello', mark='?') == 'hello Ada?'
    assert Greeter.greet.__name__ == 'greet'
    assert Greeter.greet.__qualname__ == 'Greeter.greet'
    assert Greeter.greet.__doc__ == 'Greet.'
    assert inspect.signature(Greeter.greet) == inspect.signature(AsyncGreeter.greet)
    assert not hasattr(Greeter.greet, '__wrapped__')
    assert inspect.signature(Greeter.count).return_annotation == Iterator[int]


def test_errors_arrive_untouched():
    error = ValueError('this one')

    async def fail() -> None:
        raise error

    with pytest.raises(ValueError, match='this one') as caught:
        get_portal().call(fail)
    assert caught.value is error


@pytest.mark.parametrize('kind', [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_errors_that_would_end_the_loop_do_not(kind):
    async def fail() -> None:
        raise kind

    with pytest.raises(kind):
        get_portal().call(fail)
    assert get_portal().call(asyncio.sleep, 0, 'alive') == 'alive'


def test_context_variables_are_carried_over_and_not_back():
    async def read() -> str:
        before = variable.get()
        variable.set('inside')
        return before

    token = variable.set('outside')
    try:
        assert get_portal().call(read) == 'outside'
        assert variable.get() == 'outside'
        greeter = Greeter('Ada')
        assert list(greeter.count(2)) == [0, 1]
        assert greeter.log == ['0 outside', '1 outside', 'closed']
    finally:
        variable.reset(token)


async def test_it_works_inside_a_running_loop():
    assert Greeter('Ada').greet('hello') == 'hello Ada!'
    assert list(Greeter('Ada').count(2)) == [0, 1]


def test_its_own_thread_is_told_to_use_the_async_form():
    async def nested() -> str:
        return Greeter('Ada').greet('hello')

    async def nested_iterator() -> Iterator[int]:
        return Greeter('Ada').count()

    with pytest.raises(PortalError, match=r'AsyncGreeter\.greet') as caught:
        get_portal().call(nested)
    assert isinstance(caught.value, RuntimeError)
    assert 'async form' in caught.value.hint
    with pytest.raises(PortalError):
        get_portal().call(nested_iterator)


def test_leaving_a_loop_early_closes_the_generator():
    greeter = Greeter('Ada')
    for number in greeter.count(100):
        if number == 1:
            break
    gc.collect()
    assert greeter.log[-1] == 'closed'

    other = Greeter('Ada')
    numbers = other.count(100)
    next(numbers)
    numbers.close()
    assert other.log == ['0 unset', 'closed']


def test_an_error_ends_an_iterator():
    async def fail() -> AsyncIterator[int]:
        yield 1
        raise ValueError('broken')

    numbers = get_portal().iterate(fail)
    assert next(numbers) == 1
    with pytest.raises(ValueError, match='broken'):
        next(numbers)
    with pytest.raises(StopIteration):
        next(numbers)


def test_a_generator_lives_in_one_task():
    async def tasks() -> AsyncIterator[object]:
        async with asyncio.timeout(10):
            for _ in range(3):
                yield id(asyncio.current_task())

    assert len(set(get_portal().iterate(tasks))) == 1


INTERRUPTED = """
import asyncio, sys
from sandbox.portal import get_portal

async def wait():
    print('waiting', flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.05)
        print('cleaned up', flush=True)

async def ticks():
    yield 1
    await wait()

try:
    if sys.argv[1] == 'call':
        get_portal().call(wait)
    else:
        list(get_portal().iterate(ticks))
except KeyboardInterrupt:
    print('interrupted', flush=True)
print(get_portal().call(asyncio.sleep, 0, 'alive'))
"""


@pytest.mark.parametrize('way', ['call', 'iterate'])
def test_ctrl_c_cancels_the_call_and_waits_for_its_clean_up(way):
    with subprocess.Popen(
        [sys.executable, '-c', INTERRUPTED, way], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout.readline() == 'waiting\n'
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert out.split('\n') == ['cleaned up', 'interrupted', 'alive', '']
    assert process.returncode == 0


FORKED = """
import asyncio, os
from sandbox.portal import get_portal

assert get_portal().call(asyncio.sleep, 0, 1) == 1
child = os.fork()
answer = get_portal().call(asyncio.sleep, 0, 'child' if child == 0 else 'parent')
if child == 0:
    os._exit(0 if answer == 'child' else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert answer == 'parent'
assert get_portal().call(asyncio.sleep, 0, 2) == 2
"""


def test_it_is_made_anew_in_a_forked_child():
    subprocess.run(
        [sys.executable, '-W', 'ignore::DeprecationWarning', '-c', FORKED],
        check=True,
        timeout=30,
        cwd=ROOT,
    )


def test_a_call_is_cheap():
    portal = get_portal()
    portal.call(asyncio.sleep, 0)
    took = []
    for _ in range(200):
        began = time.perf_counter()
        portal.call(asyncio.sleep, 0)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.005  # the others may have waited for a busy machine


def test_many_threads_at_once():
    results: list[str] = []

    def work(name: str) -> None:
        greeter = Greeter(name)
        results.extend(greeter.greet('hi') for _ in range(50))

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(f'hi {n}!' for n in range(8) for _ in range(50))


def test_the_portal_is_not_started_by_importing_it():
    code = 'import threading, sandbox.portal, sandbox.session; print(threading.active_count())'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == '1\n'
