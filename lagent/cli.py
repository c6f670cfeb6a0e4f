"""The `lagent` command: ask a question about files, or talk about them.

Exit codes: 0 answered; 1 a limit was reached, or the model's replies could not be parsed; 2 wrong
usage; 3 the sandbox failed, or a file could not be saved; 4 the model failed; 5 the run waits for a
decision; 130 interrupted.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from lagent import settings
from lagent.agent_factory import OWN
from lagent.console import ConsoleView
from lagent.conversation import (
    CellInterrupt,
    Conversation,
    save_all,
    show_answer,
    tell_upload,
)
from lagent.dialogue import Dialogue, made_for
from lagent.effects import Subscriber, subscribe
from lagent.errors import ConfigError
from lagent.events import JsonLines
from lagent.inline_images import Pictures
from lagent.journal import Approval
from lagent.llms.effect import model_name
from lagent.machine_cli import config, doctor, models
from lagent.outcomes import (
    INTERRUPTED,
    MODEL_FAILED,
    NO_ANSWER,
    SANDBOX_FAILED,
    USAGE,
    WAITING,
    show_error,
    told_errors,
)
from lagent.runs_cli import resume, runs_app
from lagent.settings import default_map, variables
from lagent.version import __version__

__all__ = [
    'INTERRUPTED',
    'MODEL_FAILED',
    'NO_ANSWER',
    'SANDBOX_FAILED',
    'USAGE',
    'WAITING',
    'app',
    'main',
]

app = typer.Typer(
    name='lagent',
    help='Agents that run code in a sandbox.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(runs_app)
for command in (resume, doctor, models, config):
    app.command()(command)

Files = Annotated[
    list[Path] | None,
    typer.Argument(exists=True, dir_okay=False, help='Files that the session starts with.'),
]
Model = Annotated[
    str | None,
    typer.Option(
        envvar=variables('model'),
        help='Name of a served model, or folder of a local one. Without it the keys in the '
        'environment decide (OPENAI_API_KEY, ANTHROPIC_API_KEY).',
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        envvar=variables('base_url'),
        show_envvar=False,
        help='Address of an OpenAI-compatible server.',
    ),
]
Backend = Annotated[
    settings.Backend,
    typer.Option(
        envvar=variables('backend'),
        help='Where code runs; auto: docker, or else bubblewrap; local needs --unsafe.',
    ),
]
Unsafe = Annotated[bool, typer.Option('--unsafe', help='Allow a back end without isolation.')]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1, envvar=variables('timeout'), help='Seconds that one piece of code may run.'
    ),
]
MaxTurn = Annotated[
    int,
    typer.Option(
        min=1,
        envvar=variables('max_turn'),
        help='How many times code may run for one question.',
    ),
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        envvar=variables('max_new_tokens'),
        help='Tokens that one reply of the model may have, what it reasons included.',
    ),
]
Save = Annotated[
    Path | None,
    typer.Option(
        envvar=variables('save'),
        help="Folder that the session's files are copied to, those that it was given as well.",
    ),
]
Language = Annotated[
    settings.Language,
    typer.Option(envvar=variables('language'), help="Language of the model's instructions."),
]
Images = Annotated[
    settings.Images,
    typer.Option(
        envvar=variables('images'),
        help='How the terminal shows images; none: save them and print their paths.',
    ),
]


class AnalystOptions(NamedTuple):
    """What a command makes its analyst with.

    A recorded run names them all. What older runs do not name has a default.
    """

    model: str | None
    base_url: str | None
    backend: str
    unsafe: bool
    timeout: float
    max_turn: int
    language: str = 'en'
    max_new_tokens: int | None = None
    variant: Any = None  # of the kernel image; by default the one that is there

    def factory_for(self, analyst: Any) -> str:
        """The factory that makes an analyst again, also on a machine with other keys and images."""
        named = self._replace(
            model=self.model or model_name(analyst.agent.llm),
            variant=analyst.interpreter.policy.variant,
        )
        return f'{OWN} {json.dumps(named._asdict())}'


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option('--version', help='Print the version.')] = False,
) -> None:
    if version:
        typer.echo(f'lagent {__version__}')
        raise typer.Exit
    commands = [command.name or '' for command in runs_app.registered_commands]
    try:
        context.default_map = default_map(commands)
    except ConfigError as error:
        show_error(Console(stderr=True), error)
        raise typer.Exit(USAGE) from None


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
    max_new_tokens: MaxNewTokens = None,
    save: Save = None,
    language: Language = 'en',
    images: Images = 'auto',
    journal: Annotated[
        str | None,
        typer.Option(
            '--journal',
            '-j',
            envvar=variables('journal'),
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
    """Answer one question, then exit with a code that tells how it went.

    0 answered; 1 a limit was reached, or the replies could not be parsed; 2 wrong usage; 3 the
    sandbox failed, or a file could not be saved; 4 the model failed; 5 the run waits for a
    decision; 130 interrupted.
    """
    console = Console(stderr=json_lines)
    pictures = Pictures.of(console, images, save)
    lines = JsonLines(sys.stdout, deltas=False) if json_lines else None
    view = ConsoleView(console, show_image=pictures.show_output)
    subscriber: Subscriber = lines or view
    if journal is None and (run_id is not None or ask):
        raise typer.BadParameter('--run-id and --ask need a --journal')
    options = AnalystOptions(
        model, base_url, backend, unsafe, timeout, max_turn, language, max_new_tokens
    )
    with (
        told_errors(console, lines, view),
        _analyst(console, files, options) as analyst,
        subscribe(subscriber),
    ):
        if journal is None:
            answer = analyst(question)
        else:
            answer = analyst.run(
                question,
                journal=journal,
                run_id=run_id,
                approval=Approval(kernel=True) if ask else None,
                factory=options.factory_for(analyst),
            )
        saved = save_all(Dialogue(analyst), save, console)
        if lines:
            lines.write(
                event='answer',
                answer=str(answer.content),
                type=answer.type,
                finish_reason=getattr(answer.content, 'finish_reason', None),
                artifacts=made_for(answer),
            )
        else:
            show_answer(console, answer)
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
    max_new_tokens: MaxNewTokens = None,
    save: Save = None,
    language: Language = 'en',
    images: Images = 'auto',
) -> None:
    """Talk with a data analyst; variables and files are kept from question to question.

    Ctrl-C interrupts the running code; pressed again, or while the model replies, it ends the turn
    and keeps the session. `/help` lists the commands: files, saving, undo, reset, notebooks.
    `/quit` or Ctrl-D ends.
    """
    console = Console()
    pictures = Pictures.of(console, images)
    view = ConsoleView(console, show_image=pictures.show_output)
    options = AnalystOptions(
        model, base_url, backend, unsafe, timeout, max_turn, language, max_new_tokens
    )
    with told_errors(console, view=view), _analyst(console, files, options) as analyst:
        dialogue = Dialogue(analyst, files or ())
        interrupt = CellInterrupt(dialogue, console)
        with subscribe(view), subscribe(dialogue):
            Conversation(dialogue, console, view, pictures, interrupt, save).talk()


@app.command()
def ui(
    files: Files = None,
    model: Model = None,
    base_url: BaseUrl = None,
    backend: Backend = 'docker',
    unsafe: Unsafe = False,
    timeout: Timeout = 60.0,
    max_turn: MaxTurn = 10,
    max_new_tokens: MaxNewTokens = None,
    language: Language = 'en',
    host: Annotated[
        str, typer.Option(help='Address to listen at; others than loopback open it to the network.')
    ] = '127.0.0.1',
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help='Port to listen at; 0 for a free one.')
    ] = 0,
    browser: Annotated[bool, typer.Option(help='Open a browser.')] = True,
) -> None:
    """Talk with a data analyst in a web page: sessions side by side, files, tables and plots.

    The page is served on this machine alone, and opens with a link of one use. Every session starts
    with the given files, in a sandbox of its own. Ctrl-C ends.
    """
    console = Console(stderr=True)
    with told_errors(console):
        from lagent.ui.server import serve

        options = AnalystOptions(
            model, base_url, backend, unsafe, timeout, max_turn, language, max_new_tokens
        )
        with _made(console, options) as analyst:
            serve(analyst, files or (), host=host, port=port, open_browser=browser, console=console)


def remade(**options: Any) -> AbstractContextManager[Any]:
    """The analyst of a recorded `lagent run`, for `lagent runs resume` and `replay`.

    The files that the session started with come from the journal.

    Args:
        options: the command's options.

    Returns:
        A context manager that gives the analyst.
    """
    return _made(Console(stderr=True), AnalystOptions(**options))


@contextmanager
def _analyst(console: Console, files: list[Path] | None, options: AnalystOptions) -> Iterator[Any]:
    with _made(console, options) as analyst:
        if files:
            tell_upload(Dialogue(analyst), files, console)
        yield analyst


@contextmanager
def _made(console: Console, options: AnalystOptions) -> Iterator[Any]:
    from lagent.actions import Interpreter
    from lagent.actions.interpreter import policy_for_data
    from lagent.agents import DataAnalyst
    from lagent.llms.from_env import model_from_env

    with console.status('Loading the model …'):
        llm = model_from_env(options.model, options.base_url, options.max_new_tokens)
    interpreter = Interpreter(
        policy=policy_for_data(options.variant) if options.backend == 'docker' else None,
        backend=options.backend,
        timeout=options.timeout,
        unsafe=options.unsafe,
    )
    with DataAnalyst(
        llm, interpreter, language=options.language, max_turn=options.max_turn
    ) as analyst:
        yield analyst


def main() -> None:
    """Run the command line."""
    app()
