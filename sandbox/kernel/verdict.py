"""From the facts about a cell's end to its outcome, and to the words that tell of it. Pure."""

import signal
from dataclasses import dataclass, field
from typing import Any

from sandbox.kernel.supervisor import Exit
from sandbox.kernel.text import plain
from sandbox.policy import GIB, MIB, SandboxPolicy
from sandbox.types import Outcome

KERNEL_RESTARTED = 'a new kernel was started: variables and imports are lost, files are kept'
RAN_IN_NEW_KERNEL = (
    'this cell ran in a new kernel: variables and imports from before it are lost, files are kept'
)

NEVER_BEGAN = 'the cell was interrupted before it began: none of it was run'


@dataclass
class Ending:
    """The facts about how a cell ended.

    Attributes:
        reply: Content of the kernel's reply, if there was one.
        output_ended: Whether the kernel confirmed that no more output follows.
        exit: How the kernel process ended, if it did by itself.
        timed_out: Whether the wall clock ran out, and after how many seconds.
        interrupted: Whether `interrupt()` was called while it ran.
        stopped: Whether its caller went away.
        disconnected: Whether the kernel closed its connections and lived on.
        loss: Why the whole sandbox is gone, if it is.
        steps: What was done to end it.
    """

    reply: dict[str, Any] | None = None
    output_ended: bool = False
    exit: Exit | None = None
    timed_out: float | None = None
    interrupted: bool = False
    stopped: bool = False
    disconnected: bool = False
    loss: str | None = None
    steps: list[str] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether we had to kill the kernel."""
        return 'kill' in self.steps

    @property
    def state_preserved(self) -> bool:
        """Whether the kernel lives on with its variables."""
        return self.loss is None and self.exit is None and not self.killed


def outcome(ending: Ending) -> Outcome:
    """Return how the cell ended. The kernel's texts have no part in this."""
    if ending.loss is not None:
        return Outcome.SANDBOX_LOST
    if ending.timed_out is not None:
        return Outcome.TIMEOUT
    if ending.exit is not None:
        return Outcome.OOM if _out_of_memory(ending.exit) else Outcome.KERNEL_DIED
    if ending.stopped:
        return Outcome.INTERRUPTED
    reply = ending.reply or {}
    match reply.get('status'):
        case 'ok':
            return Outcome.OK
        case 'error':
            broken_off = ending.interrupted and reply.get('ename') == 'KeyboardInterrupt'
            return Outcome.INTERRUPTED if broken_off else Outcome.ERROR
        case _:
            return Outcome.UNKNOWN


def ran_in_new_sandbox(loss: str) -> str:
    """Return what the first result of a new sandbox says about the one before it."""
    return (
        f'this cell ran in a new sandbox, the one before is gone ({loss}): variables, imports and '
        'files from before it are lost'
    )


def sandbox_gone(loss: str) -> str:
    """Return what the result says whose sandbox was lost."""
    return (
        f'the sandbox is gone ({loss}): variables, imports and files are lost; the next cell runs '
        'in a new one'
    )


def not_preloaded(module: str, reason: str) -> str:
    """Return what the first result says of a module that could not be preloaded."""
    what = f'{module!r} was not' if module else 'nothing was'
    return f'{what} preloaded ({" ".join(plain(reason).split())})'


def notices(ending: Ending, policy: SandboxPolicy) -> list[str]:
    """Return what there is to say about the end, for people and models alike."""
    said = []
    if ending.loss is not None:
        said.append(sandbox_gone(ending.loss))
    elif ending.timed_out is not None:
        said.append(_timeout(ending))
    elif ending.exit is not None:
        said.append(_death(ending.exit, policy))
    elif ending.disconnected:
        said.append('the kernel closed its connection to the host, and was killed')
    elif outcome(ending) is Outcome.UNKNOWN:
        said.append('the kernel did not say whether the cell succeeded')
    if ending.reply is not None and not ending.output_ended and ending.state_preserved:
        said.append('the kernel did not confirm the end of the output: some of it may be missing')
    return said


def _timeout(ending: Ending) -> str:
    limit = f'the cell reached its time limit of {ending.timed_out:g} s'
    if ending.killed:
        return f'{limit}, did not stop when interrupted, and its kernel was killed'
    if ending.exit is not None:
        return f'{limit}, and its kernel died when it was interrupted'
    return f'{limit} and was interrupted; variables and files are kept'


def _out_of_memory(end: Exit) -> bool:
    return end.signal == signal.SIGKILL and end.oom_kills > 0


def _death(end: Exit, policy: SandboxPolicy) -> str:
    if _out_of_memory(end):
        return (
            f'the kernel died: it was killed because the sandbox ran out of memory '
            f'(limit {_size(policy.memory)})'
        )
    if end.signal is None:
        return f'the kernel died: its process ended with exit code {end.code}'
    return f'the kernel died: signal {end.signal} ({_signal_name(end.signal)}) ended its process'


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return 'unknown'
    if name == 'SIGBUS':
        return 'SIGBUS, which means that shared memory or the disk was full'
    return name


def _size(size: int) -> str:
    return f'{size / GIB:g} GiB' if size >= GIB else f'{size / MIB:g} MiB'
