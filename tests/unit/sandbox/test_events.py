import asyncio

from sandbox.events import EventQueue
from sandbox.types import ExecutionEvent, Output


def piece(text: str, kind: str = 'stdout') -> ExecutionEvent:
    return ExecutionEvent('output', output=Output(kind, text))


async def test_pieces_that_wait_become_one():
    queue = EventQueue()
    for event in (piece('a'), piece('b'), piece('e', 'stderr'), piece('c'), piece('d')):
        queue.put(event)
    queue.put(ExecutionEvent('output', clear=True))
    queue.put(piece('f'))
    queue.end()
    seen = [(e.output.kind, e.output.text) if e.output else 'clear' async for e in queue]
    assert seen == [
        ('stdout', 'ab'),
        ('stderr', 'e'),
        ('stdout', 'cd'),
        'clear',
        ('stdout', 'f'),
    ]


async def test_displays_stay_apart():
    queue = EventQueue()
    queue.put(piece('a', 'display'))
    queue.put(piece('b', 'display'))
    queue.end()
    assert [event.output.text async for event in queue] == ['a', 'b']


async def test_a_consumer_is_woken():
    queue = EventQueue()
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
