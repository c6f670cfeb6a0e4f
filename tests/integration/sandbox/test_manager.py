"""Several sessions at once, each with a real kernel."""

import asyncio
import threading

import pytest

from sandbox import AsyncSandboxManager, Outcome, Sandbox, SandboxManager


def test_same_id_same_variables(options):
    with SandboxManager(**options) as manager:
        manager.session('a').execute('x = 1')
        assert manager.session('a').execute('print(x)').stdout == '1\n'
        assert manager.session('b').execute('x').outcome is Outcome.ERROR
        assert manager.sessions() == ['a', 'b']
        manager.close_session('a')
        assert manager.session('a').execute('x').outcome is Outcome.ERROR


async def test_eight_sessions_started_at_once(options):
    async with AsyncSandboxManager(**options) as manager:

        async def ask(number: int) -> str:
            box = await manager.session(f'user-{number}')
            return (await box.execute(f"print('me', {number})")).stdout

        answers = await asyncio.gather(*map(ask, range(8)))
        assert answers == [f'me {number}\n' for number in range(8)]


def test_one_name_twice_is_two_sandboxes(options):
    with Sandbox(id='report', **options) as one, Sandbox(id='report', **options) as two:
        one.execute('x = 1')
        assert two.execute('x').outcome is Outcome.ERROR
        assert one.execute('print(x)').stdout == '1\n'


def test_a_session_that_expired_says_so(options):
    with SandboxManager(idle_ttl=0.4, **options) as manager:
        box = manager.session('a')
        box.execute('x = 1')
        closed = threading.Event()
        for _ in range(200):
            if box.closed:
                break
            closed.wait(0.05)
        assert box.closed
        manager.idle_ttl = 600.0
        result = manager.session('a').execute('x')
        assert result.error.name == 'NameError'
        assert 'idle' in result.text


@pytest.mark.parametrize('count', [3])
def test_closing_the_manager_closes_all(options, count):
    manager = SandboxManager(**options)
    boxes = [manager.session(str(number)) for number in range(count)]
    manager.close()
    assert all(box.closed for box in boxes)
