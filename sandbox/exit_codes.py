"""How a command of `sandbox` ended: its exit code, and the words for it.

Exit codes of `sandbox run`: 0 the code ran to its end; 1 it raised; 2 wrong usage; 124 its time
ran out; 125 the sandbox failed, not the code; 130 interrupted; 137 the kernel died or ran out of
memory. A number that the code passes to `sys.exit` is passed on. The other commands: 0 done; 1
something is missing (doctor); 2 wrong usage; 3 the base image cannot be had (build); 125 failed.
"""

import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console

from sandbox.console import is_number, printable
from sandbox.errors import SandboxError
from sandbox.types import ExecutionResult, Outcome

NO_BASE, FAILED, TERMINATED = 3, 125, 143

_EXIT_CODES = {
    Outcome.OK: 0,
    Outcome.ERROR: 1,
    Outcome.TIMEOUT: 124,
    Outcome.INTERRUPTED: 130,
    Outcome.OOM: 137,
    Outcome.KERNEL_DIED: 137,
    Outcome.SANDBOX_LOST: FAILED,
    Outcome.UNKNOWN: FAILED,
}


def exit_code(result: ExecutionResult) -> int:
    """Return what `sandbox run` exits with after a result.

    A script that ends by `sys.exit` ends as it would without a sandbox.
    """
    if result.outcome is Outcome.ERROR and result.error and result.error.name == 'SystemExit':
        message = result.error.message.strip()
        if message in ('', 'None'):
            return 0
        return int(message) & 0xFF if is_number(message) else 1
    return _EXIT_CODES[result.outcome]


@contextlib.contextmanager
def told_errors(console: Console) -> Iterator[None]:
    """Turn errors into a message and an exit code.

    Args:
        console: Where the message goes.

    Raises:
        typer.Exit: There was an error.
    """
    try:
        yield
    except SandboxError as error:
        show_error(console, error)
        raise typer.Exit(FAILED) from None
    except BrokenPipeError:
        raise  # whoever has read the output has enough of it
    except OSError as error:
        show(console, f'{error}.', style='red')
        raise typer.Exit(FAILED) from None


def show_error(console: Console, error: SandboxError) -> None:
    """Show what failed, and what can be done about it."""
    show(console, error.message, style='red')
    if error.hint:
        show(console, error.hint)


def show(console: Console, text: str, style: str | None = None) -> None:
    """Show a text as it is, without anything that a terminal would obey."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)
