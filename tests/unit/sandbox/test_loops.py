"""One object for each event loop, which goes with its loop."""

import asyncio
import gc
import weakref

from sandbox.loops import per_loop


class Thing:
    pass


def test_each_loop_has_its_own_as_long_as_it_lives():
    own = per_loop(Thing)

    async def twice() -> tuple[Thing, Thing]:
        return own(), own()

    first, again = asyncio.run(twice())
    other, _ = asyncio.run(twice())
    assert first is again
    assert first is not other
    gone = weakref.ref(other)
    del other, _
    gc.collect()
    assert gone() is None
