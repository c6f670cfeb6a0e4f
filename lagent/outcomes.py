"""How a command ended: its exit code, and the words for it."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from lagent.console import printable
from lagent.errors import LagentError, LimitExceeded, ModelError, ParseFailed, RunSuspended

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
def told_errors(console: Console, json_lines: bool = False) -> Iterator[None]:
    """Turn lagent's and the sandbox's errors into a message and an exit code.

    Args:
        console: where the message goes.
        json_lines: whether there is a line ``failure`` on standard output as well.

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
        show_error(console, shown)
    else:
        console.print('[yellow]Interrupted.[/]')
    if json_lines:
        print_json(
            event='failure',
            outcome=_OUTCOMES[code],
            exit_code=code,
            type=type(shown).__name__,
            message=str(shown),
        )
    raise typer.Exit(code)


def show_error(console: Console, error: Exception) -> None:
    """Show what failed.

    Args:
        console: the terminal.
        error: what was raised.
    """
    console.print(f'[red]{type(error).__name__}[/]: ', end='')
    console.print(printable(str(error)), markup=False, highlight=False)


def print_json(**values: Any) -> None:
    """Print a JSON object on a line of standard output.

    Args:
        values: its members.
    """
    # In ASCII, since what a model or a kernel wrote may hold halves of surrogate pairs.
    sys.stdout.write(json.dumps(values) + '\n')
    sys.stdout.flush()
