"""The commands that look at the machine: `lagent doctor`, `lagent models`, `lagent config`."""

import json
import os
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lagent.console import printable
from lagent.doctor import MODELS, Finding, examine, missing_modules, served_models
from lagent.errors import ConfigError, ModelError
from lagent.outcomes import MODEL_FAILED, USAGE, show_error
from lagent.settings import ENVIRONMENT, effective

_STYLES = {'ok': 'green', 'warning': 'yellow', 'missing': 'red'}

Json = Annotated[bool, typer.Option('--json', help='Print JSON instead of text.')]


def doctor(as_json: Json = False) -> None:
    """Show what is installed and found, what sandboxes can enforce here, and what to do.

    Keys are looked for and never shown. Exits with 1 if a question can't be answered here.
    """
    findings = examine()
    if as_json:
        typer.echo(json.dumps([vars(each) for each in findings]))
    else:
        table = Table('', 'what', 'found', 'what to do', box=None, pad_edge=False)
        for each in findings:
            table.add_row(*_cells(each))
        Console().print(table)
    raise typer.Exit(1 if any(each.status == 'missing' for each in findings) else 0)


def models(
    base_url: Annotated[
        str | None,
        typer.Option(
            envvar=ENVIRONMENT['base_url'],
            show_envvar=False,
            help='Address of an OpenAI-compatible server that is asked for its models.',
        ),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=0.1, max=600, help='Seconds that the server has.')
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """List the model classes that can be used here, and the models that a server has."""
    console = Console()
    served: list[str] = []
    failure: ModelError | ConfigError | None = None
    if base_url:
        try:
            served = served_models(base_url, os.environ.get('OPENAI_API_KEY'), deadline)
        except (ModelError, ConfigError) as error:
            failure = error
    classes = [(name, use, missing_modules(extra), extra) for name, use, extra in MODELS]
    if as_json:
        typer.echo(
            json.dumps(
                {
                    'classes': [
                        {'name': name, 'usable': not missing, 'extra': extra}
                        for name, _, missing, extra in classes
                    ],
                    'served': served,
                }
            )
        )
    else:
        table = Table('class', 'for', 'usable here', box=None, pad_edge=False)
        for name, use, missing, extra in classes:
            words = f"no: pip install 'lagent-sandbox[{extra}]'" if missing else 'yes'
            table.add_row(name, use, Text(words, style='yellow' if missing else 'green'))
        console.print(table)
        for each in served:
            console.print(Text(f'served: {printable(each)}'), soft_wrap=True)
    if failure is not None:
        _fail(failure, MODEL_FAILED if isinstance(failure, ModelError) else USAGE)


def config(as_json: Json = False) -> None:
    """Show the settings that files and the environment hold, and which of them decides."""
    try:
        found = list(effective())
    except ConfigError as error:
        _fail(error, USAGE)
    if as_json:
        names = ('setting', 'value', 'from')
        typer.echo(json.dumps([dict(zip(names, each, strict=True)) for each in found]))
        return
    table = Table('setting', 'value', 'from', box=None, pad_edge=False)
    for each in found:
        table.add_row(*(Text(printable(cell)) for cell in each))
    Console().print(table if found else 'Nothing is set; the defaults hold.')


def _cells(finding: Finding) -> list[Any]:
    found = (finding.name, finding.detail, finding.hint)
    return [
        Text(finding.status, style=_STYLES.get(finding.status, '')),
        *(Text(printable(each), overflow='fold') for each in found),
    ]


def _fail(error: Exception, code: int) -> NoReturn:
    show_error(Console(stderr=True), error)
    raise typer.Exit(code)
