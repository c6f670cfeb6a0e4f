"""The `lagent` command: ask a question about files, or talk about them.

Exit codes: 0 answered; 1 a limit was reached, or the model's replies could not be parsed; 2 wrong
usage; 3 the sandbox failed, or a file could not be saved; 4 the model failed; 5 the run waits for a
decision; 130 interrupted.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel

from lagent.console import ConsoleView, printable
from lagent.effects import Subscriber, subscribe
from lagent.errors import LagentError, LimitExceeded, ModelError, ParseFailed, RunSuspended
from lagent.events import JsonLines
from lagent.journal import Approval
from lagent.runs_cli import WAITING, resume, runs_app
from lagent.version import __version__

NO_ANSWER, USAGE, SANDBOX_FAILED, MODEL_FAILED, INTERRUPTED = 1, 2, 3, 4, 130

app = typer.Typer(
    name='lagent',
    help='Agents that run code in a sandbox.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(runs_app)
app.command()(resume)

Files = Annotated[
    list[Path] | None,
    typer.Argument(exists=True, dir_okay=False, help='Files that the session starts with.'),
]
Model = Annotated[
    str | None,
    typer.Option(
        envvar='MODEL',
        help='Name of a served model, or folder of a local one. Without it the keys in the '
        'environment decide (OPENAI_API_KEY, ANTHROPIC_API_KEY).',
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(envvar='OPENAI_BASE_URL', help='Address of an OpenAI-compatible server.'),
]
Backend = Annotated[str, typer.Option(help='Where code runs: docker, or local with --unsafe.')]
Unsafe = Annotated[bool, typer.Option('--unsafe', help='Allow a back end without isolation.')]
Timeout = Annotated[float, typer.Option(min=0.1, help='Seconds that one piece of code may run.')]
MaxTurn = Annotated[int, typer.Option(min=1, help='How many times code may run for one question.')]
Save = Annotated[
    Path | None, typer.Option(help='Folder for the files that the code creates or changes.')
]


@app.callback()
def _options(
    version: Annotated[bool, typer.Option('--version', help='Print the version.')] = False,
) -> None:
    if version:
        typer.echo(f'lagent {__version__}')
        raise typer.Exit


@app.command()
def run(
    question: Annotated[str, typer.Argument(help='What you want to know.')],
    files: Files = None,
    model: Model = None,
    base_url: BaseUrl = None,
    backend: Backend = 'docker',
    unsafe: Unsafe = False,
    timeout: Timeout = 60.0,
    max_turn: MaxTurn = 10,
    save: Save = None,
    journal: Annotated[
        str | None,
        typer.Option(
            '--journal',
            '-j',
            envvar='LAGENT_JOURNAL',
            help='Record the run in this file or database, so that it can be resumed.',
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help='Name of the recorded run; one that is there is resumed.')
    ] = None,
    ask: Annotated[
        bool, typer.Option('--ask', help='Wait for `lagent runs approve` before code is run.')
    ] = False,
    json_lines: Annotated[
        bool, typer.Option('--json', help='Print one JSON object a line instead of text.')
    ] = False,
) -> None:
    """Answer one question, then exit with a code that tells how it went."""
    console = Console(stderr=json_lines)
    lines = JsonLines(sys.stdout, deltas=False)
    view: Subscriber = lines if json_lines else ConsoleView(console)
    if journal is None and (run_id is not None or ask):
        raise typer.BadParameter('--run-id and --ask need a --journal')
    options = (files, model, base_url, backend, unsafe, timeout, max_turn)
    with (
        _told_errors(console),
        _coder(console, *options) as coder,
        subscribe(view),
    ):
        if journal is None:
            answer = coder(question)
        else:
            answer = coder.run(
                question,
                journal=journal,
                run_id=run_id,
                approval=Approval(kernel=True) if ask else None,
                factory=_remade_by(*options),
            )
        saved = _save(coder, save, console)
        if json_lines:
            lines.write(event='answer', answer=str(answer.content), type=answer.type)
        else:
            _show_answer(console, answer)
        if answer.type == 'limit':
            raise typer.Exit(NO_ANSWER)
        if not saved:
            raise typer.Exit(SANDBOX_FAILED)


@app.command()
def chat(
    files: Files = None,
    model: Model = None,
    base_url: BaseUrl = None,
    backend: Backend = 'docker',
    unsafe: Unsafe = False,
    timeout: Timeout = 60.0,
    max_turn: MaxTurn = 10,
    save: Save = None,
) -> None:
    """Talk with an agent; variables and files are kept from question to question.

    Ctrl-C ends the running turn and keeps the session. `/files` lists the session's files, `/reset`
    forgets everything, `/quit` or Ctrl-D ends.
    """
    console = Console()
    with (
        _told_errors(console),
        _coder(console, files, model, base_url, backend, unsafe, timeout, max_turn) as coder,
        subscribe(ConsoleView(console)),
    ):
        while (line := _read_line(console)) is not None:
            if line.startswith('/'):
                if not _command(coder, line, console):
                    break
            elif line:
                _turn(coder, line, console)
                _save(coder, save, console)


def _turn(coder: Any, line: str, console: Console) -> None:
    try:
        answer = coder(line)
    except KeyboardInterrupt:
        console.print('[yellow]Interrupted; variables and files are kept.[/]')
    except (LimitExceeded, ParseFailed, ModelError) as error:
        _show_error(console, error)
    else:
        _show_answer(console, answer)


def _command(coder: Any, line: str, console: Console) -> bool:
    """Obey a slash command; False when the conversation is to end."""
    match line.strip():
        case '/quit' | '/exit':
            return False
        case '/files':
            for info in coder.interpreter.files():
                console.print(f'{printable(info.path)}  {info.size:,} bytes', markup=False)
        case '/reset':
            coder.reset(recursive=True)
            coder.interpreter.close_session()
            console.print('Memory, variables and files are gone.')
        case _:
            console.print('Commands: /files /reset /quit')
    return True


def _read_line(console: Console) -> str | None:
    try:
        return console.input('[bold green]›[/] ').strip()
    except (EOFError, KeyboardInterrupt):
        return None


def remade(files: list[str], **options: Any) -> AbstractContextManager[Any]:
    """The coder of a recorded `lagent run`, for `lagent runs resume`.

    Args:
        files: paths of the files that the session starts with.
        options: the command's other options.

    Returns:
        A context manager that gives the coder.
    """
    return _coder(Console(stderr=True), [Path(path) for path in files], **options)


def _remade_by(files: list[Path] | None, *options: Any) -> str:
    names = ('model', 'base_url', 'backend', 'unsafe', 'timeout', 'max_turn')
    arguments = dict(zip(names, options, strict=True))
    paths = [str(path.resolve()) for path in files or ()]
    return f'lagent.cli:remade {json.dumps({"files": paths, **arguments})}'


@contextmanager
def _coder(
    console: Console,
    files: list[Path] | None,
    model: str | None,
    base_url: str | None,
    backend: str,
    unsafe: bool,
    timeout: float,
    max_turn: int,
) -> Iterator[Any]:
    from lagent.actions import Interpreter
    from lagent.agents import Coder
    from lagent.agents.coder import CODER_PROMPT
    from lagent.llms.from_env import model_from_env

    with console.status('Loading the model …'):
        llm = model_from_env(model, base_url)
    names = ', '.join(path.name for path in files or ())
    template = f'{CODER_PROMPT}\nFiles in the working directory: {names or "none"}\n'
    interpreter = Interpreter(backend=backend, unsafe=unsafe, timeout=timeout, files=files or ())
    with Coder(llm, interpreter, template, max_turn=max_turn) as coder:
        yield coder


def _save(coder: Any, folder: Path | None, console: Console) -> bool:
    """Copy the session's files, each into its own sub-folder; False if not all could be."""
    from lagent.actions.interpreter import SandboxError

    if folder is None:
        return True
    try:
        files = [info for info in coder.interpreter.files() if info.kind == 'file']
    except (SandboxError, OSError) as error:
        _show_error(console, error)
        return False
    saved = 0
    for info in files:
        try:
            # A name that leads out of the folder is refused before anything is written.
            to = folder / PurePosixPath(info.path).parent
            path = coder.interpreter.download(info.path, to)
        except (SandboxError, OSError) as error:
            _show_error(console, error)
        else:
            saved += 1
            console.print(f'saved {printable(str(path))}', style='green', markup=False)
    return saved == len(files)


@contextmanager
def _told_errors(console: Console) -> Iterator[None]:
    """Turn lagent's and the sandbox's errors into a message and an exit code."""
    from lagent.actions.interpreter import SandboxError

    shown: Exception
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
    except KeyboardInterrupt:
        console.print('[yellow]Interrupted.[/]')
        raise typer.Exit(INTERRUPTED) from None
    else:
        return
    _show_error(console, shown)
    raise typer.Exit(code)


def _show_answer(console: Console, answer: Any) -> None:
    title = 'no answer' if answer.type == 'limit' else 'answer'
    style = 'red' if answer.type == 'limit' else 'green'
    body = Markdown(printable(str(answer.content)))
    console.print(Panel(body, title=title, border_style=style))


def _show_error(console: Console, error: Exception) -> None:
    console.print(f'[red]{type(error).__name__}[/]: ', end='')
    console.print(printable(str(error)), markup=False, highlight=False)


def main() -> None:
    """Run the command line."""
    app()
