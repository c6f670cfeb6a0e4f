"""The host's side of the guest's supervisor: life and death of the kernel.

It runs beside hostile code and is not trusted: see `framing`.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from sandbox.errors import SandboxError, SandboxLost
from sandbox.kernel.framing import Refusal, checked, close, encode, integer, natural, receive
from sandbox.kernel.workspace import CHUNK, Workspace

_ANSWER = 10.0  # seconds until an answer is overdue
_PULSE = 5.0  # seconds until a sandbox that says nothing counts as gone
_RETRY = 0.005
_EXIT_NEWS = 1.0  # seconds for the news of a death after the kernel's connections have ended
_NOW = 0.02  # seconds after which an answer says nothing of the present any more
_MAX_LOG = 4_096
_MAX_MODULES, _MAX_REASON = 65, 200


class Exit(NamedTuple):
    """How a kernel process ended.

    Attributes:
        generation: Which kernel of this supervisor it was.
        code: Its exit code, or None where a signal ended it.
        signal: The signal that ended it, or None.
        oom_kills: Processes of the sandbox that were killed for lack of memory in its time.
        log: The end of what it wrote to its real standard error.
    """

    generation: int
    code: int | None
    signal: int | None
    oom_kills: int
    log: str


class Supervisor:
    """The owner's connection. Make it with `connect`.

    Attributes:
        workspace: The files.
        exit: How the kernel ended, or None while it runs.
        lost: Whether the connection has ended.
        ended: Done when the kernel has ended or the connection is lost.
        preloaded: What became of the last request to preload: why it failed, by module.
    """

    def __init__(
        self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.workspace = Workspace(path, self.request)
        self.exit: Exit | None = None
        self.lost = False
        self.preloaded: dict[str, str] | None = None
        self.generation = 0
        self._reader = reader
        self._writer = writer
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard = -_NOW
        self._preloaded = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        self._task = asyncio.create_task(self._read(), name='sandbox-supervisor')

    @classmethod
    async def connect(cls, path: str) -> Self:
        """Connect and become the owner. Goes on trying: the caller sets the deadline."""
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(path, limit=CHUNK)
            except OSError:
                await asyncio.sleep(_RETRY)
                continue
            client = cls(path, reader, writer)
            try:
                answer = await client.request('own')
            except SandboxLost:
                # It listens before it serves; or nobody could be told from a stale socket.
                await client.close()
                await asyncio.sleep(_RETRY)
            except BaseException:
                await client.close()
                raise
            else:
                client.generation = natural(answer.get('generation'))
                return client

    async def request(self, op: str, *, patience: float = _ANSWER, **fields: Any) -> dict[str, Any]:
        """Ask the supervisor for something and return its answer.

        Raises:
            Refusal: It refused.
            SandboxLost: It did not answer in time, or is gone.
        """
        if self.lost:
            raise SandboxLost('the sandbox is gone.')
        self._count += 1
        number = self._count
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(encode({'op': op, 'id': number, **fields}))
            async with asyncio.timeout(patience):
                return checked(await answer)
        except TimeoutError:
            raise SandboxLost(f'the sandbox did not answer within {patience:g} s.') from None
        finally:
            self._waiting.pop(number, None)

    async def signal(self, number: int) -> None:
        """Send a signal to the kernel and its process group; one that has ended is left alone."""
        with contextlib.suppress(Refusal):
            await self.request('signal', signal=number)

    async def kill(self) -> None:
        """Kill the kernel and all other processes of the session, and wait for the end.

        Raises:
            SandboxLost: It did not end, or the sandbox is gone.
        """
        await self.request('kill')
        try:
            async with asyncio.timeout(_ANSWER):
                await self.gone()
        except TimeoutError:
            raise SandboxLost(f'the kernel was killed but did not end in {_ANSWER:g} s.') from None

    @property
    def answers_now(self) -> bool:
        """Whether it has said something a moment ago, and not that its kernel has ended."""
        there = self.exit is None and not self.lost
        return there and time.monotonic() - self._heard < _NOW

    def seen_alive(self) -> None:
        """Take note that its kernel, which does not outlive it, has answered."""
        self._heard = time.monotonic()

    async def probe(self) -> None:
        """Return if the sandbox answers, soon.

        Raises:
            SandboxLost: It does not.
        """
        await self.request('status', patience=_PULSE)

    async def start(self) -> None:
        """Start a kernel where none runs."""
        answer = await self.request('start')
        self.generation = natural(answer.get('generation'))
        if self.exit and self.exit.generation < self.generation:
            self.exit = None
            self.ended = asyncio.get_running_loop().create_future()
            if self.lost:
                self._end()

    async def preload(self, modules: Sequence[str]) -> None:
        """Have modules imported for the kernels to come, in the background."""
        self._preloaded.clear()
        try:
            await self.request('preload', modules=list(modules))
        except Refusal as refusal:
            self._take_preloaded({'': refusal.message})

    async def has_preloaded(self) -> None:
        """Wait until that is done, or the connection is lost."""
        await self._preloaded.wait()

    async def gone(self) -> None:
        """Wait until the kernel has ended or the connection is lost."""
        await asyncio.shield(self.ended)

    async def exit_soon(self) -> Exit | None:
        """Return how a kernel ended that has closed its connections, or None where it lives on."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_NEWS):
                await self.gone()
        return self.exit

    async def close(self) -> None:
        """Close the connection."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await close(self._writer)

    async def _read(self) -> None:
        try:
            while True:
                message = await receive(self._reader, None)
                self._heard = time.monotonic()
                if message.get('event') == 'exited':
                    self._exited(message)
                elif message.get('event') == 'preloaded':
                    self._take_preloaded(message.get('failed'))
                else:
                    self._answered(message)
        except (OSError, SandboxError):
            self.lost = True
            self._end()
            self._preloaded.set()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(SandboxLost('the sandbox is gone.'))

    def _answered(self, message: dict[str, Any]) -> None:
        answer = self._waiting.get(natural(message.get('id')))
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _take_preloaded(self, failed: object) -> None:
        known = failed.items() if isinstance(failed, dict) else ()
        self.preloaded = {
            name: text[:_MAX_REASON]
            for name, text in itertools.islice(known, _MAX_MODULES)
            if isinstance(text, str)
        }
        self._preloaded.set()

    def _exited(self, event: dict[str, Any]) -> None:
        log = event.get('log')
        self.exit = Exit(
            generation=natural(event.get('generation')),
            code=integer(event.get('code')),
            signal=integer(event.get('signal')),
            oom_kills=natural(event.get('oom_kills')),
            log=log[-_MAX_LOG:] if isinstance(log, str) else '',
        )
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
