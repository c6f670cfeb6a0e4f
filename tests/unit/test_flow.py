"""The four drivers give one flow the same life."""

import asyncio
import contextvars
import threading
import time

import pytest

from lagent.flow import (
    ConsumerLeft,
    Emit,
    arun,
    astream,
    blocking_call,
    call,
    each,
    run,
    stream,
)

variable = contextvars.ContextVar('variable', default='outside')


def double(x):
    return 2 * x


async def double_later(x):
    await asyncio.sleep(0)
    return 2 * x


def adding(fn):
    first = yield from call(fn, 1)
    yield Emit(first)
    second = yield from call(fn, first)
    yield Emit(second)
    return first + second


def test_a_flow_returns_under_both_plain_drivers():
    assert run(adding(double)) == 6
    assert asyncio.run(arun(adding(double))) == 6
    assert asyncio.run(arun(adding(double_later))) == 6


async def collected(items):
    return [item async for item in items]


def test_a_flow_emits_under_both_streaming_drivers():
    assert list(stream(adding(double))) == [2, 4]
    assert asyncio.run(collected(astream(adding(double_later)))) == [2, 4]


def failing(log):
    try:
        yield from call(double, None)
    except TypeError as error:
        log.append(type(error))
        raise


@pytest.mark.parametrize('drive', [run, lambda flow: asyncio.run(arun(flow))])
def test_an_exception_reaches_the_flow_and_then_the_caller(drive):
    log = []
    with pytest.raises(TypeError):
        drive(failing(log))
    assert log == [TypeError]


def stop_iteration():
    raise StopIteration('from user code')


def test_a_stray_stop_iteration_does_not_end_a_flow_quietly():
    with pytest.raises(RuntimeError, match='StopIteration'):
        run(call(stop_iteration))


def numbers(log):
    try:
        yield from [1, 2, 3]
    finally:
        log.append('closed')


async def numbers_later(log):
    try:
        for number in (1, 2, 3):
            await asyncio.sleep(0)
            yield number
    finally:
        await asyncio.sleep(0)
        log.append('closed')


def test_each_converts_items_and_closes_its_source():
    log = []
    assert list(stream(each(numbers(log), double))) == [2, 4, 6]
    assert asyncio.run(collected(astream(each(numbers_later(log), double)))) == [2, 4, 6]
    assert log == ['closed', 'closed']


def test_a_consumer_that_leaves_early_closes_the_source():
    log = []
    items = stream(each(numbers(log), double))
    assert next(items) == 2
    items.close()
    assert log == ['closed']


async def test_an_async_consumer_that_leaves_early_closes_the_source():
    log = []
    items = astream(each(numbers_later(log), double))
    assert await anext(items) == 2
    await items.aclose()
    assert log == ['closed']


def setting():
    variable.set('inside')
    yield Emit((yield from call(variable.get)))
    yield Emit((yield from call(variable.get)))


def test_what_a_stream_sets_is_not_seen_by_its_consumer():
    seen = [(item, variable.get()) for item in stream(setting())]
    assert seen == [('inside', 'outside')] * 2


async def test_what_an_async_stream_sets_is_not_seen_by_its_consumer():
    async def get():
        return variable.get()

    def later():
        variable.set('inside')
        yield Emit((yield from call(get)))

    assert [(item, variable.get()) async for item in astream(later())] == [('inside', 'outside')]


async def test_cancelling_reaches_the_awaited_call():
    log = []

    async def wait():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            log.append('cancelled')
            raise

    for drive in (arun(call(wait)), collected(astream(call(wait)))):
        task = asyncio.ensure_future(drive)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert log == ['cancelled', 'cancelled']


def test_a_flow_inside_a_flow_may_still_make_calls_when_its_consumer_leaves():
    closed = []

    def inner():
        try:
            yield Emit(1)
            yield Emit(2)
        finally:
            yield from call(closed.append, 'inner')

    def outer():
        try:
            yield from inner()
        except BaseException as error:
            closed.append(type(error))
            raise

    for item in stream(outer()):
        assert item == 1
        break
    assert closed == ['inner', ConsumerLeft]


async def test_what_a_stream_awaits_runs_in_the_task_of_its_reader():
    reader, log = asyncio.current_task(), []

    async def wait():
        log.append(asyncio.current_task() is reader)
        await asyncio.sleep(60)

    async def source():
        yield 1
        async with asyncio.timeout(0.01):
            await wait()

    items = astream(each(source(), double))
    assert await anext(items) == 2
    with pytest.raises(TimeoutError):
        await anext(items)
    assert log == [True]


async def test_a_task_group_that_spans_several_awaits_of_a_stream():
    log = []

    async def failing():
        await asyncio.sleep(0)
        raise ValueError('boom')

    async def source():
        async with asyncio.TaskGroup() as group:
            yield 1
            group.create_task(failing())
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                log.append('cancelled')
                raise

    items = astream(each(source(), double))
    assert await anext(items) == 2
    with pytest.raises(ExceptionGroup):
        await anext(items)
    assert log == ['cancelled']


async def test_awaits_of_a_stream_share_its_context():
    async def enter():
        token = variable.set('inside')
        await asyncio.sleep(0)
        return token

    async def leave(token):
        await asyncio.sleep(0)
        variable.reset(token)
        return variable.get()

    def flow():
        token = yield from call(enter)
        yield Emit(variable.get())
        yield Emit((yield from call(leave, token)))

    seen = [(item, variable.get()) async for item in astream(flow())]
    assert seen == [('inside', 'outside'), ('outside', 'outside')]


def test_a_blocking_call_is_plain_for_a_synchronous_driver():
    assert run(blocking_call(threading.get_ident)) == threading.get_ident()


async def test_a_blocking_call_is_made_in_a_thread_by_an_asynchronous_driver():
    assert await arun(blocking_call(threading.get_ident)) != threading.get_ident()


async def test_a_blocking_call_is_waited_for_when_it_is_cancelled():
    begun, done = asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def work():
        loop.call_soon_threadsafe(begun.set)
        time.sleep(0.05)
        done.append(True)
        raise ValueError('nobody hears this')

    task = asyncio.create_task(arun(blocking_call(work)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]
