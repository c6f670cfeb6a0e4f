"""Sandboxes without a kernel, for tests of programs that use one: results come from a script."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

from sandbox.backends.base import SANDBOX_SIDE
from sandbox.errors import SandboxError
from sandbox.kernel.contract import Listener
from sandbox.kernel.framing import Refusal
from sandbox.kernel.spill import Spill
from sandbox.kernel.workspace import FileEntry, Source
from sandbox.policy import SandboxPolicy
from sandbox.types import ErrorInfo, ExecutionEvent, ExecutionResult, Outcome, Output

Answer = str | ExecutionResult | BaseException
"""Text that the cell prints, a whole result, or an exception that the cell raises."""

Script = Iterable[Answer] | Mapping[str, Answer] | Callable[[str], Answer]
"""Answers in order, answers by code (blanks around it do not matter), or a function of the code."""


class FakeBackend:
    """A back end whose sandboxes answer from a script. Files work; nothing is executed.

    Args:
        script: Where answers come from. Each sandbox takes the answers of a list from its start.
            Without a script every cell succeeds and prints nothing.
    """

    name = 'fake'

    def __init__(self, script: Script = lambda _: '') -> None:
        if not callable(script) and not isinstance(script, Mapping):
            script = list(script)
        self._script = script

    def check(self) -> None:
        """Do nothing: it works everywhere."""

    def unenforced(self, policy: SandboxPolicy) -> dict[str, str]:
        """Return the fields that do not hold, each with the reason."""
        return dict.fromkeys(SANDBOX_SIDE, 'answers are scripted, and nothing runs')

    async def start(self, policy: SandboxPolicy, *, labels: Mapping[str, str]) -> 'FakeMachine':
        """Start a sandbox; what the labels say is of no use here."""
        del labels
        return FakeMachine(self._script, policy)


class FakeMachine:
    """A running sandbox that is made of a script and a dictionary of files."""

    _ids = itertools.count(1)

    def __init__(self, script: Script, policy: SandboxPolicy) -> None:
        self.id = f'fake-{next(self._ids)}'
        self.pid = None
        self.loss: str | None = None
        self.has_kernel = True
        self.unchanged = False
        self.files = FakeFiles(policy)
        self._policy = policy
        self._answer = _answering(script)
        self._count = 0

    def assign(self, session: str, policy: SandboxPolicy) -> None:
        """Take over a session's policy."""
        del session
        self._policy = policy

    async def gone(self) -> None:
        """Wait for ever: only the script can take it away, and that in a cell."""
        await asyncio.Event().wait()

    async def probe(self) -> None:
        """Do nothing: only the script can take it away."""

    async def run(
        self,
        code: str,
        limit: float,
        listener: Listener | None,
        stop: asyncio.Future[None],
        spill: Spill,
        tag: str | None = None,
    ) -> ExecutionResult:
        """Answer from the script, at once; nothing of it is cut."""
        del limit, stop, spill, tag
        self._count += 1
        result = _as_result(self._answer(code), self._count, self._policy)
        for output in result.outputs:
            if listener:
                listener(ExecutionEvent('output', output=output))
        self.has_kernel = result.state_preserved
        if result.outcome is Outcome.SANDBOX_LOST:
            self.loss = 'the script says so'
        return result

    async def interrupt(self) -> None:
        """Do nothing: no cell takes any time."""

    async def restart(self) -> None:
        """Count cells from one again."""
        self._count = 0
        self.has_kernel = True

    async def warm(self) -> None:
        """Do nothing: there is no kernel to load anything into."""

    async def close(self) -> None:
        """Forget all files."""
        self.files.clear()


class FakeFiles:
    """Files in a dictionary."""

    def __init__(self, policy: SandboxPolicy) -> None:
        self._policy = policy
        self._data: dict[str, bytes] = {}
        self._versions: dict[str, int] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._data.clear()
        self._versions.clear()

    async def list(
        self, path: str, limit: int, *, digests: bool = False
    ) -> tuple[list[FileEntry], bool]:
        """Return the files below a folder, and whether there are more."""
        below = f'{path}/' if path else ''
        names = sorted(name for name in self._data if name.startswith(below))
        if path and not names:
            raise Refusal('not_found', 'no such file or directory')
        return [self._entry(name) for name in names[:limit]], len(names) > limit

    def _entry(self, name: str) -> FileEntry:
        return FileEntry(name, len(self._data[name]), self._versions[name], 'file', 0)

    async def read(self, path: str, limit: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file."""
        data = self._data.get(path)
        if data is None:
            raise Refusal('not_found', 'no such file or directory')
        if len(data) > limit:
            raise Refusal('too_large', f'the file has {len(data)} bytes')
        yield data

    async def write(self, path: str, size: int, source: Source) -> FileEntry:
        """Write a file, if the workspace has room for it."""
        if size + sum(map(len, self._data.values())) > self._policy.disk:
            raise Refusal('no_space', 'no space left')
        if isinstance(source, AsyncIterator):
            self._data[path] = b''.join([chunk async for chunk in source])
        else:
            self._data[path] = source.read()
        self._versions[path] = time.time_ns()
        return self._entry(path)

    async def delete(self, path: str) -> None:
        """Remove a file, or a folder with all it holds."""
        names = [name for name in self._data if name == path or name.startswith(f'{path}/')]
        if not names:
            raise Refusal('not_found', 'no such file or directory')
        for name in names:
            del self._data[name], self._versions[name]


def _answering(script: Script) -> Callable[[str], Answer]:
    if callable(script):
        return script
    if isinstance(script, Mapping):
        answers = {code.strip(): answer for code, answer in script.items()}

        def look_up(code: str) -> Answer:
            if code.strip() not in answers:
                raise SandboxError(f'the script of this fake sandbox has no answer to: {code!r}')
            return answers[code.strip()]

        return look_up
    left = iter(script)

    def take(code: str) -> Answer:
        for answer in left:
            return answer
        raise SandboxError(f'the script of this fake sandbox is used up; asked: {code!r}')

    return take


def _as_result(answer: Answer, count: int, policy: SandboxPolicy) -> ExecutionResult:
    if isinstance(answer, ExecutionResult):
        return answer
    if isinstance(answer, BaseException):
        error = ErrorInfo(type(answer).__name__, str(answer), f'{type(answer).__name__}: {answer}')
        return ExecutionResult(
            Outcome.ERROR,
            (Output('error', error.traceback),),
            error,
            execution_count=count,
            text_limit=policy.model_text_chars,
        )
    return ExecutionResult(
        Outcome.OK,
        (Output('stdout', answer),) if answer else (),
        execution_count=count,
        text_limit=policy.model_text_chars,
    )
