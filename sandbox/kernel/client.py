"""A client of one kernel: runs a cell and tells when it ended. Deadlines are the caller's."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.errors import StartFailed
from sandbox.kernel.collector import Collector
from sandbox.kernel.wire import Incoming, Signer, WireError
from sandbox.kernel.zmtp import Channel, Message, SocketType

_RETRY = 0.005  # seconds between attempts to connect
_ASK_AGAIN = 0.25  # seconds after which readiness is asked for once more
_RECORD = 2 << 20  # bytes that are asked for of a cell that ended unseen
# Seconds of silence after the reply until "idle" counts as lost. On a busy machine more than one
# may pass between the two, and what a cell has put out must not be lost.
_IDLE_PATIENCE = 10.0


class Cell:
    """A cell that runs.

    Attributes:
        collector: Gathers its outputs.
        reply: Content of the shell reply, once it is there.
        idle: Whether the kernel has said that nothing more comes.
        heard: When the kernel last sent anything at all, on the monotonic clock.
        ended: Whether the reply and the end of the output are there. Where one of them is lost,
            after a silence.
        on_ended: Called at once when it ends, if it is set.
    """

    def __init__(self, message_id: str, collector: Collector) -> None:
        self.collector = collector
        self.reply: dict[str, Any] | None = None
        self.idle = False
        self._reply_lost = False
        self.message_id = message_id
        self.heard = time.monotonic()
        self.ended = False
        self.on_ended: Callable[[], None] | None = None
        self._silence: asyncio.TimerHandle | None = None

    def _check_ended(self) -> None:
        answered = self.reply is not None
        if self.ended or not (answered or (self._reply_lost and self.idle)):
            return
        if self._silence is not None:
            self._silence.cancel()  # it would keep the cell, with its outputs, until it is over
        patience = self.heard + _IDLE_PATIENCE - time.monotonic()
        if (answered and self.idle) or patience <= 0:
            self.ended = True
            if self.on_ended is not None:
                self.on_ended()
        else:
            loop = asyncio.get_running_loop()
            self._silence = loop.call_later(patience, self._check_ended)

    def on_unreadable(self, size: int, *, may_be_reply: bool) -> None:
        """Take note of a message that was malformed, forged or, with its size, too large."""
        self.collector.dropped_messages(1, size)
        if may_be_reply:
            self._reply_lost = True
            self._check_ended()

    def on_shell(self, message: Incoming) -> None:
        """Take a message of the shell channel that belongs to this cell."""
        if message.kind == 'execute_reply' and self.reply is None:
            self.reply = message.content()
            self._check_ended()

    def on_iopub(self, message: Incoming) -> None:
        """Take a message of the output channel that belongs to this cell."""
        content = message.content()
        if message.kind == 'status':
            if content.get('execution_state') == 'idle':
                self.idle = True
                self._check_ended()
        else:
            self.collector.feed(message.kind, content)


class KernelClient:
    """Connections to a kernel's shell and output sockets.

    Args:
        connection: Jupyter's connection information, with the `ipc` transport.
        max_message_bytes: Largest message that is read.
    """

    def __init__(self, connection: Mapping[str, Any], max_message_bytes: int) -> None:
        self._connection = connection
        self._max_bytes = max_message_bytes
        self._signer = Signer(str(connection['key']))
        self._channels: list[Channel] = []
        self._shell: Channel | None = None
        self._output: Channel | None = None
        self._cell: Cell | None = None
        self._asked = ''
        self._recalled: asyncio.Future[dict[str, Any]] | None = None
        self._answered = asyncio.Event()
        self._subscribed = asyncio.Event()

    async def connect(self) -> None:
        """Connect and wait until the kernel answers on both sockets.

        It goes on trying for as long as it is let: the caller sets the deadline.
        """
        self._output = await self._open('SUB', 'iopub_port', self._on_iopub)
        self._shell = await self._open('DEALER', 'shell_port', self._on_shell)
        while not (self._answered.is_set() and self._subscribed.is_set()):
            _, frames = self._signer.request('kernel_info_request', {})
            self._shell.send(frames)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASK_AGAIN):
                    await self._answered.wait()
                    await self._subscribed.wait()
            if self._shell.closed.done() or self._output.closed.done():
                raise StartFailed('the kernel closed the connection before it was ready.')

    def execute(
        self, code: str, collector: Collector, begins: Callable[[str], None] | None = None
    ) -> Cell:
        """Send a cell. It runs at once: there is never another one before it.

        Args:
            code: Its code.
            collector: Takes its outputs.
            begins: Is given the request's id before it is sent; then the kernel keeps what becomes
                of the cell, see `recall`.
        """
        assert self._shell is not None
        message_id, frames = self._signer.request(
            'execute_request',
            {
                'code': code,
                'silent': False,
                'store_history': True,
                'user_expressions': {},
                'allow_stdin': False,
                'stop_on_error': False,
            },
            {'keep': True} if begins else None,
        )
        if begins:
            begins(message_id)
        self._cell = Cell(message_id, collector)
        self._shell.send(frames)
        return self._cell

    async def recall(self) -> dict[str, Any]:
        """Return what the kernel has kept of its last cell; the caller sets the deadline."""
        assert self._shell is not None
        room = min(_RECORD, self._max_bytes // 2)
        self._asked, frames = self._signer.request('last_cell_request', {'room': room})
        self._recalled = asyncio.get_running_loop().create_future()
        self._shell.send(frames)
        return await self._recalled

    @property
    def closed(self) -> list[asyncio.Future[None]]:
        """Done as the kernel closes the connections, one for each."""
        return [channel.closed for channel in self._channels]

    async def drained(self) -> None:
        """Wait until the output of a kernel that has ended is read to its last byte."""
        if self._output is not None:
            await asyncio.shield(self._output.closed)

    async def close(self) -> None:
        """Close the connections."""
        self._cell = None
        for channel in self._channels:
            channel.close()
        for channel in self._channels:
            await channel.closed

    async def _open(
        self, kind: SocketType, port: str, on_message: Callable[[Incoming], None]
    ) -> Channel:
        path = f'{self._connection["ip"]}-{self._connection[port]}'

        def receive(message: Message) -> None:
            self._receive(message, on_message)

        loop = asyncio.get_running_loop()
        while True:
            try:
                _, channel = await loop.create_unix_connection(
                    lambda: Channel(kind, receive, self._max_bytes), path
                )
            except OSError:
                await asyncio.sleep(_RETRY)
            else:
                self._channels.append(channel)
                await asyncio.shield(channel.ready)
                return channel

    def _receive(self, message: Message, on_message: Callable[[Incoming], None]) -> None:
        if self._cell is not None:
            self._cell.heard = time.monotonic()
        if message.complete:
            with contextlib.suppress(WireError):
                incoming = self._signer.parse(message.frames)
                message.frames.clear()  # what is left of it is the content
                on_message(incoming)
                return
        if self._cell is not None:
            size = 0 if message.complete else message.size
            self._cell.on_unreadable(size, may_be_reply=on_message == self._on_shell)

    def _on_shell(self, message: Incoming) -> None:
        if message.kind == 'kernel_info_reply':
            self._answered.set()
        elif message.kind == 'last_cell_reply' and message.parent == self._asked:
            if self._recalled is not None and not self._recalled.done():
                self._recalled.set_result(message.content())
        elif self._cell is not None and message.parent == self._cell.message_id:
            self._cell.on_shell(message)

    def _on_iopub(self, message: Incoming) -> None:
        self._subscribed.set()
        if self._cell is not None and message.parent == self._cell.message_id:
            self._cell.on_iopub(message)
