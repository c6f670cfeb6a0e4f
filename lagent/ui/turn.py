"""One turn of a session: its events become blocks, and it can be left while somebody waits."""

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from lagent.console import printable
from lagent.context import RunContext
from lagent.effects import Effect, Event
from lagent.errors import RunCancelled
from lagent.flow import Flow, call, run
from lagent.ui.blocks import Block, Cell, Reply
from lagent.ui.outputs import Html, Media, Shown

_MAX_CODE = 64_000  # characters of a cell's code that are shown


class Turn:
    """Subscribes to the effects of a turn, and adds and changes blocks by them.

    Args:
        add: adds a block to the page.
        change: changes a block: calls the function, then tells who looks at the page.
        media: where images are kept.
        tables: where HTML for the page itself is kept.

    Attributes:
        last_reply: the last reply of a model.
        ran: whether code was run.
    """

    def __init__(
        self,
        add: Callable[[Block], None],
        change: Callable[[Block, Callable[[], None]], None],
        media: Media,
        tables: Media,
    ) -> None:
        self._add, self._change, self._media, self._tables = add, change, media, tables
        self._html = Html(media, tables)
        self._stopped: Future[None] = Future()
        self._lock = threading.Lock()
        self._over = False
        self._reply: Reply | None = None
        self._cell: Cell | None = None
        self.last_reply = ''
        self.ran = False

    def stop(self) -> None:
        """End the turn, also where it waits for a model or a sandbox."""
        with self._lock:
            if not self._stopped.done():
                self._stopped.set_result(None)

    def close(self) -> None:
        """Show nothing more: an effect that was left may still send events."""
        self._over = True
        for block in (self._reply, self._cell):
            if block is not None:
                self._end(block, 'stopped')

    def leaving(self, effect: Effect, context: RunContext, flow: Flow[Any]) -> Flow[Any]:
        """Do an effect on a thread of its own, so that the turn can be left before it ends.

        What cannot be broken off, such as a model that sends nothing, goes on there to its own
        limit of time, and its result is nobody's. An interceptor of `lagent.effects`.

        Args:
            effect: the effect.
            context: the run.
            flow: does the effect.

        Returns:
            The flow that does it.
        """
        return call(self._done_beside, flow)

    def _done_beside(self, flow: Flow[Any]) -> Any:
        done: Future[Any] = Future()

        def work() -> None:
            try:
                done.set_result(run(flow))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                done.set_exception(error)

        inside = contextvars.copy_context()
        threading.Thread(target=inside.run, args=(work,), name='lagent-ui', daemon=True).start()
        wait([done, self._stopped], return_when=FIRST_COMPLETED)
        if not done.done():
            raise _cancelled()
        return done.result()

    def __call__(self, event: Event) -> None:
        """Show an event.

        Args:
            event: what happened.

        Raises:
            RunCancelled: the turn was stopped; the effect ends by this.
        """
        if event.type in ('begin', 'delta') and self._stopped.done():
            raise _cancelled()
        if self._over:
            return
        handler = getattr(self, f'_{event.effect.kind}_{event.type}', None)
        if handler is not None:
            handler(event)

    def _model_begin(self, event: Event) -> None:
        self._reply = Reply(model=event.effect.name)
        self._add(self._reply)

    def _model_delta(self, event: Event) -> None:
        if (reply := self._reply) is not None:
            self._change(reply, lambda: reply.text.add(str(event.data)))

    def _model_end(self, event: Event) -> None:
        self.last_reply = str(event.data)
        if (reply := self._reply) is None:
            return

        def end() -> None:
            if not str(reply.text):
                reply.text.add(str(event.data))
            usage = getattr(event.data, 'usage', None)
            reply.tokens = getattr(usage, 'completion_tokens', None)
            reply.seconds = event.elapsed

        self._change(reply, end)
        self._reply = None

    def _model_error(self, event: Event) -> None:
        if self._reply is not None:
            self._end(self._reply, str(event.data), event.elapsed)
        self._reply = None

    def _kernel_begin(self, event: Event) -> None:
        self.ran = True
        self._html = Html(self._media, self._tables)
        self._cell = Cell(code=printable(str(event.effect.payload)[:_MAX_CODE]))
        self._add(self._cell)

    def _kernel_delta(self, event: Event) -> None:
        if (cell := self._cell) is None:
            return
        output = event.data
        if output.kind in ('stdout', 'stderr'):
            self._change(cell, lambda: cell.add_text(output.kind, output.text))
        else:
            shown = Shown.of(output, self._media, self._html)
            self._change(cell, lambda: cell.add(shown))

    def _kernel_end(self, event: Event) -> None:
        if (cell := self._cell) is None:
            return
        result = event.data
        shown = [Shown.of(output, self._media, self._html) for output in result.outputs]

        def end() -> None:
            cell.replace(shown)
            cell.outcome, cell.seconds = str(result.outcome), event.elapsed
            cell.notices = tuple(result.notices)

        self._change(cell, end)
        self._cell = None

    def _kernel_error(self, event: Event) -> None:
        if self._cell is not None:
            self._end(self._cell, str(event.data), event.elapsed)
        self._cell = None

    def _end(self, block: Reply | Cell, error: str, seconds: float = 0.0) -> None:
        def end() -> None:
            block.error, block.seconds = error, seconds
            if isinstance(block, Cell):
                block.end_text()

        self._change(block, end)


def _cancelled() -> RunCancelled:
    return RunCancelled('The turn was stopped; variables and files are kept.')
