"""The process that kernels are forked from: what it may import, and what becomes of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from sandbox.image import guest_folder

KERNEL = """
import os, pathlib, random, sys, time

def rehearse():
    pass

def run(connection, workspace):
    number = len(os.listdir(workspace))
    threads = len(os.listdir('/proc/self/task'))
    told = (random.random(), os.getppid(), 'made_up' in sys.modules, threads)
    pathlib.Path(workspace, str(number)).write_text(repr(told) + '\\n')
    time.sleep(600)
"""


def importing(source: str) -> str:
    """A kernel beside which there is a module `made_up`."""
    return (
        'import pathlib, sys\n'
        'place = pathlib.Path(__file__).parent\n'
        f'(place / "made_up.py").write_text({source!r})\n'
        'sys.path.append(str(place))\n'
        f'{KERNEL}'
    )


def restart(owner) -> None:
    owner.send({'op': 'kill', 'id': 1})
    event, answer = sorted((owner.receive(), owner.receive()), key=lambda sent: 'id' in sent)
    assert event['event'] == 'exited'
    assert answer['ok']
    assert owner.ask('start')['ok']


def zygote_of(guest, owner) -> int:
    while not (kernel := owner.ask('status')['pid']):
        pass
    pid = guest.process.pid
    children = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
    (zygote,) = set(map(int, children)) - {kernel}
    return zygote


def told(guest, patience, number: int) -> tuple:
    return eval(patience.line(guest.workspace / str(number)))


def test_kernels_are_adopted_and_draw_their_own_random_numbers(start_guest, patience):
    guest = start_guest(KERNEL)
    with guest.owned() as owner:
        first = told(guest, patience, 0)
        zygote = zygote_of(guest, owner)
        restart(owner)
        second = told(guest, patience, 1)
        assert zygote_of(guest, owner) == zygote
    assert first[0] != second[0]
    assert first[1] == second[1] == guest.process.pid


def test_what_is_preloaded_is_there_in_the_next_kernel(start_guest, patience):
    guest = start_guest(importing('x = 1'))
    with guest.owned() as owner:
        assert not told(guest, patience, 0)[2]
        assert owner.ask('preload', modules=['made_up', 'no_such_module'])['ok']
        event = owner.receive()
        assert event['event'] == 'preloaded'
        assert event['failed'] == {
            'no_such_module': "ModuleNotFoundError: No module named 'no_such_module'"
        }
        restart(owner)
        assert told(guest, patience, 1)[2]


def test_a_library_that_leaves_a_thread_is_not_forked(start_guest, patience):
    source = 'import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n'
    guest = start_guest(importing(source))
    with guest.owned() as owner:
        told(guest, patience, 0)
        zygote = zygote_of(guest, owner)
        owner.ask('preload', modules=['made_up'])
        assert owner.receive()['failed'] == {'': 'a library has left a thread behind'}
        patience.gone(zygote)
        restart(owner)
        assert told(guest, patience, 1)[2:] == (False, 1)


def test_a_library_that_ends_the_process_costs_no_more_than_time(start_guest, patience):
    guest = start_guest(importing('import os; os.abort()'))
    with guest.owned() as owner:
        told(guest, patience, 0)
        owner.ask('preload', modules=['made_up'])
        assert '' in owner.receive()['failed']
        restart(owner)
        assert not told(guest, patience, 1)[2]


def test_names_of_modules_are_checked(start_guest):
    with start_guest(KERNEL).owned() as owner:
        for modules in (None, 'os', [1], ['x' * 300], ['os'] * 65):
            assert owner.ask('preload', modules=modules)['error'] == 'bad_request'


def test_one_that_was_killed_is_replaced_when_it_is_needed(start_guest, patience):
    guest = start_guest(KERNEL)
    with guest.owned() as owner:
        told(guest, patience, 0)
        zygote = zygote_of(guest, owner)
        os.kill(zygote, signal.SIGKILL)
        patience.gone(zygote)
        assert owner.ask('status')['kernel'] == 'running'
        restart(owner)
        told(guest, patience, 1)
        assert zygote_of(guest, owner) != zygote


def test_one_that_was_stopped_goes_on(start_guest, patience):
    guest = start_guest(KERNEL)
    with guest.owned() as owner:
        told(guest, patience, 0)
        zygote = zygote_of(guest, owner)
        os.kill(zygote, signal.SIGSTOP)
        restart(owner)
        told(guest, patience, 1)
        assert zygote_of(guest, owner) == zygote


def test_it_ends_with_its_supervisor(start_guest, patience):
    guest = start_guest(KERNEL)
    with guest.owned() as owner:
        zygote = zygote_of(guest, owner)
    guest.process.kill()
    patience.gone(zygote)


def test_a_kernel_that_is_on_its_way_can_be_killed(start_guest, patience):
    slow = f'import time\ntime.sleep(600)\n{KERNEL}'
    with start_guest(slow).owned() as owner:
        assert owner.ask('status')['kernel'] == 'running'
        owner.send({'op': 'kill', 'id': 1})
        event, answer = sorted((owner.receive(), owner.receive()), key=lambda sent: 'id' in sent)
        assert (event['event'], event['signal']) == ('exited', 9)
        assert answer['ok']


def test_a_kernel_does_not_begin_once_its_parent_has_ended():
    program = (
        'import os, runpy, sys\n'
        'become = runpy.run_path(sys.argv[1])["become_session"]\n'
        'become(os.open(os.devnull, os.O_RDWR), os.getpid())\n'  # nobody is their own parent
    )
    command = [sys.executable, '-c', program, guest_folder() / 'processes.py']
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert 'the supervisor has not adopted the kernel, or has ended' in ended.stderr
