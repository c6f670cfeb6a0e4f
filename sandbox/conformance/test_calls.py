"""Calls: several at once, cancelled, abandoned, closed."""

import asyncio
import json
import threading
import time

import pytest

from sandbox import AsyncSandbox, Outcome, Sandbox, SandboxClosed
from sandbox.conformance.expectation import (
    SWALLOW,
    MakeAsyncBox,
    MakeBox,
    error_of,
    expectation,
)


@expectation(24)
def test_leaving_a_stream_early_ends_the_cell(shared: Sandbox) -> None:
    shared.execute('kept = 1')
    began = time.monotonic()
    for _ in shared.stream('import time\nprint(1, flush=True)\ntime.sleep(60)'):
        break
    assert shared.execute('print(kept)').stdout == '1\n'
    assert time.monotonic() - began < 20


@expectation(26)
def test_cells_of_one_session_run_one_after_the_other(shared: Sandbox) -> None:
    shared.execute('order = []')
    threads = [
        threading.Thread(
            target=shared.execute,
            args=(f'import time\norder.append({n})\ntime.sleep(0.05)\norder.append({n})',),
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = json.loads(shared.execute('print(order)').stdout)
    assert sorted(order) == sorted([0, 1, 2, 3] * 2)
    assert order[::2] == order[1::2]


@expectation(26)
def test_a_restart_ends_the_running_cell_and_not_those_that_wait(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        async with amake() as box:
            await box.execute('x = 1')
            running = asyncio.create_task(box.execute('import time\ntime.sleep(60)'))
            await asyncio.sleep(0.3)
            waiting = asyncio.create_task(box.execute('print(1)'))
            await asyncio.sleep(0)
            await box.restart()
            assert (await running).outcome is Outcome.INTERRUPTED
            assert (await waiting).stdout == '1\n'
            assert (error_of(await box.execute('x'))).name == 'NameError'

    asyncio.run(scenario())


@expectation(26)
def test_cells_run_in_the_order_asked(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        async with amake() as box:
            results = await asyncio.gather(*(box.execute(f'print({n})') for n in range(5)))
            assert [result.stdout for result in results] == [f'{n}\n' for n in range(5)]
            counts = [result.execution_count or 0 for result in results]
            assert counts == sorted(counts)
            assert results[-1].timings.queued > 0

    asyncio.run(scenario())


@expectation()
def test_the_blocking_form_works_inside_a_running_loop(shared: Sandbox) -> None:

    async def scenario() -> None:
        assert shared.execute('1 + 1').result == '2'

    asyncio.run(scenario())


@expectation(19)
def test_sessions_are_strangers(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        async with amake() as one, amake() as two:
            await one.execute('x = 1')
            await one.upload(b'secret', name='f')
            assert (error_of(await two.execute('x'))).name == 'NameError'
            assert await two.files() == []

    asyncio.run(scenario())


@expectation(24)
def test_a_cancelled_call_leaves_the_session_usable(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        async with amake() as box:
            await box.execute('kept = 1')
            task = asyncio.create_task(box.execute('import time\ntime.sleep(60)'))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await box.execute('print(kept)')).stdout == '1\n'

    asyncio.run(scenario())


@expectation(24, 7)
def test_a_cancelled_call_that_will_not_end_is_killed(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        async with amake(interrupt_grace=0.3) as box:
            await box.execute('gone = 1')
            task = asyncio.create_task(box.execute(SWALLOW))
            await asyncio.sleep(0.5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            result = await box.execute('gone')
            assert error_of(result).name == 'NameError'
            assert 'new kernel' in result.notices[0]
            assert not result.state_preserved

    asyncio.run(scenario())


@expectation(24)
def test_a_queued_call_that_is_cancelled_never_runs(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        async with amake() as box:
            first = asyncio.create_task(box.execute('import time\ntime.sleep(0.5)'))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(box.execute("open('ran', 'w')"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert (await first).ok
            assert await box.files() == []

    asyncio.run(scenario())


@expectation(40)
def test_closing_ends_a_running_cell(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        box: AsyncSandbox = amake()
        await box.start()
        task = asyncio.create_task(box.execute('import time\ntime.sleep(60)'))
        await asyncio.sleep(0.3)
        await box.close()
        async with asyncio.timeout(30):
            result = await task
        assert result.outcome is Outcome.SANDBOX_LOST
        with pytest.raises(SandboxClosed):
            await box.execute('1')

    asyncio.run(scenario())


@expectation(40)
def test_closing_during_the_start_leaves_nothing(amake: MakeAsyncBox) -> None:

    async def scenario() -> None:
        box: AsyncSandbox = amake()
        task = asyncio.create_task(box.start())
        await asyncio.sleep(0.05)
        await box.close()
        with pytest.raises(SandboxClosed):
            await task
        assert box.container_id is None
        assert box.closed

    asyncio.run(scenario())


@expectation()
def test_interrupt_ends_the_running_cell(make: MakeBox) -> None:
    box = make()
    box.execute('kept = 1')
    result = None
    for event in (events := box.stream('import time\nprint("on", flush=True)\ntime.sleep(60)')):
        if event.output and event.output.text == 'on\n':
            box.interrupt()
        result = event.result
    assert list(events) == []
    assert result is not None
    assert result.outcome is Outcome.INTERRUPTED
    assert result.state_preserved
    assert box.execute('print(kept)').stdout == '1\n'
    box.interrupt()
    assert box.execute('print(kept)').stdout == '1\n'


@expectation()
def test_restart_loses_variables_and_keeps_files(make: MakeBox) -> None:
    box = make()
    box.execute("x = 1\nopen('f', 'w').write('data')")
    box.restart()
    result = box.execute('x')
    assert error_of(result).name == 'NameError'
    assert result.execution_count == 1
    assert box.read('f') == b'data'
