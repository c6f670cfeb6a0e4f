import asyncio
from dataclasses import replace

import pytest

from sandbox.events import EventQueue
from sandbox.types import ExecutionEvent, Output


def piece(text: str, kind: str = 'stdout') -> ExecutionEvent:
    return ExecutionEvent('output', output=Output(kind, text))


def display(text: str, display_id: str) -> ExecutionEvent:
    return ExecutionEvent('output', output=Output('display', text, display_id=display_id))


async def test_pieces_that_wait_become_one():
    queue = EventQueue(1_000_000)
    for event in (piece('a'), piece('b'), piece('e', 'stderr'), piece('c'), piece('d')):
        queue.put(event)
    queue.end()
    seen = [(event.output.kind, event.output.text) async for event in queue]
    assert seen == [('stdout', 'ab'), ('stderr', 'e'), ('stdout', 'cd')]


async def test_pieces_that_wait_keep_their_colours():
    def coloured(text: str, ansi: str) -> ExecutionEvent:
        return ExecutionEvent('output', output=Output('stdout', text, ansi=ansi))

    queue = EventQueue(1_000_000)
    for event in (piece('a '), coloured('red', '\x1b[31mred\x1b[0m'), piece(' plain\n')):
        queue.put(event)
    queue.end()
    (joined,) = [event.output async for event in queue]
    assert joined.text == 'a red plain\n'
    assert joined.ansi == 'a \x1b[31mred\x1b[0m plain\n'


async def test_colours_count_as_what_waits():
    queue = EventQueue(100)
    queue.put(ExecutionEvent('output', output=Output('stdout', 'x', ansi='x' * 90)))
    queue.put(piece('y' * 20, 'stderr'))
    queue.end()
    assert [event.output.kind async for event in queue] == ['stderr']


async def test_what_was_cleared_does_not_wait_any_more():
    queue = EventQueue(1_000_000)
    for _ in range(3):
        queue.put(piece('a'))
        queue.put(display('b', 'id'))
        queue.put(ExecutionEvent('output', clear=True))
    queue.put(display('c', 'id'))
    queue.end()
    seen = [event.output.text if event.output else 'clear' async for event in queue]
    assert seen == ['clear', 'c']


async def test_an_update_takes_the_place_of_what_it_updates():
    queue = EventQueue(1_000_000)
    for event in (display('1', 'a'), display('1', 'b'), display('2', 'a'), display('3', 'a')):
        queue.put(event)
    events = aiter(queue)
    assert (await anext(events)).output.text == '3'
    queue.put(display('4', 'a'))
    queue.end()
    assert [event.output.text async for event in events] == ['1', '4']


@pytest.mark.parametrize(
    'more',
    [{'text': 'x' * 400}, {'data': {'image/png': b'x' * 400}}, {'metadata': {'x': 'y' * 400}}],
)
async def test_the_oldest_events_give_way(more):
    queue = EventQueue(1_000)
    for number in range(100):
        event = display('', f'{number}')
        queue.put(replace(event, output=replace(event.output, **more)))
    queue.end()
    assert [event.output.display_id async for event in queue] == ['98', '99']


async def test_there_are_never_more_events_than_allowed():
    queue = EventQueue(1_000, max_events=2)
    for text in 'abc':
        queue.put(piece(text, 'display'))
    queue.end()
    assert [event.output.text async for event in queue] == ['b', 'c']


async def test_one_event_may_be_larger_than_all_may_be_together():
    queue = EventQueue(10)
    queue.put(piece('a'))
    queue.put(piece('x' * 100, 'display'))
    queue.end()
    assert [len(event.output.text) async for event in queue] == [100]


async def test_displays_stay_apart():
    queue = EventQueue(1_000_000)
    queue.put(piece('a', 'display'))
    queue.put(piece('b', 'display'))
    queue.end()
    assert [event.output.text async for event in queue] == ['a', 'b']


async def test_a_consumer_is_woken():
    queue = EventQueue(1_000_000)
    seen: list[str] = []

    async def consume() -> None:
        seen.extend([event.output.text async for event in queue])

    task = asyncio.create_task(consume())
    for text in 'xyz':
        queue.put(piece(text))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    queue.end()
    await asyncio.wait_for(task, 5)
    assert ''.join(seen) == 'xyz'
