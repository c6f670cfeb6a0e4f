"""How a command ended: its exit code, and the words for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from lagent.console import ConsoleView, printable
from lagent.errors import LagentError, LimitExceeded, ModelError, ParseFailed, RunSuspended
from lagent.events import JsonLines

NO_ANSWER, USAGE, SANDBOX_FAILED, MODEL_FAILED, WAITING, INTERRUPTED = 1, 2, 3, 4, 5, 130

_OUTCOMES = {
    NO_ANSWER: 'no_answer',
    USAGE: 'usage',
    SANDBOX_FAILED: 'sandbox_failed',
    MODEL_FAILED: 'model_failed',
    WAITING: 'waiting',
    INTERRUPTED: 'interrupted',
}


@contextmanager
def told_errors(
    console: Console, lines: JsonLines | None = None, view: ConsoleView | None = None
) -> Iterator[None]:
    """Turn lagent's and the sandbox's errors into a message and an exit code.

    Args:
        console: where the message goes.
        lines: where a line ``failure`` goes as well.
        view: what may have shown an error already; that is not shown again.

    Raises:
        typer.Exit: there was an error.
    """
    from lagent.actions.interpreter import SandboxError

    shown: BaseException
    try:
        yield
    except (LimitExceeded, ParseFailed) as error:
        code, shown = NO_ANSWER, error
    except RunSuspended as error:
        code, shown = WAITING, error
    except ModelError as error:
        code, shown = MODEL_FAILED, error
    except SandboxError as error:
        code, shown = SANDBOX_FAILED, error
    except LagentError as error:
        code, shown = USAGE, error
    except KeyboardInterrupt as error:
        code, shown = INTERRUPTED, error
    else:
        return
    if isinstance(shown, Exception):
        show_error(console, shown, view)
    else:
        console.print('[yellow]Interrupted.[/]')
    if lines:
        lines.write(
            event='failure',
            outcome=_OUTCOMES[code],
            exit_code=code,
            type=type(shown).__name__,
            message=str(shown),
        )
    raise typer.Exit(code)


def show_error(console: Console, error: Exception, view: ConsoleView | None = None) -> None:
    """Show what failed, once.

    Args:
        console: the terminal.
        error: what was raised.
        view: what may have shown it already.
    """
    if view is not None and view.last_error is error:
        return
    console.print(f'[red]{type(error).__name__}[/]: ', end='')
    console.print(printable(str(error)), markup=False, highlight=False)
