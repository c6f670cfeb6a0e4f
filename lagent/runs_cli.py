"""The `lagent runs` commands: look at recorded runs, decide what they wait for, resume them.

Exit codes are those of `lagent`; 5 says that a run waits for a decision, and 1 that runs differ.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lagent.agent_factory import factory_of, made
from lagent.agents.answers import last_answer
from lagent.console import ConsoleView, printable
from lagent.effects import subscribe
from lagent.errors import ExtraMissing, JournalError, RunSuspended
from lagent.events import as_line
from lagent.journal import decisions, pending
from lagent.journal.contract import Journal, Record, Run, Status
from lagent.journal.difference import pretty
from lagent.journal.errors import Diverged, NoSuchRun, NothingToDecide, RedactorMissing
from lagent.journal.lease import describe, is_gone
from lagent.journal.redact import Redactor
from lagent.journal.redactor_check import check_redactor
from lagent.journal.rerun import nothing_done
from lagent.journal.runs import Access, opened
from lagent.journal.timeline import Line, as_json, compare, ending_of, plain, timeline, when
from lagent.outcomes import USAGE, show_error, told_errors
from lagent.utils.counts import many

DIFFERS = 1
_INDENT = 12
_MOST_NAMED = 10  # runs that an error lists
DEFAULT_JOURNAL = '.lagent/runs.db'
_STYLES = {
    'done': 'green',
    'failed': 'red',
    'interrupted': 'red',
    'error': 'red',
    'suspended': 'yellow',
    'request': 'yellow',
    'ready': 'cyan',
    'decision': 'cyan',
    'running': 'blue',
}


class Form(StrEnum):
    """What a run can be written as."""

    TRAJECTORY = 'trajectory'
    NOTEBOOK = 'notebook'
    EVENTS = 'events'


runs_app = typer.Typer(name='runs', help='Recorded runs.', no_args_is_help=True)

Where = Annotated[
    str,
    typer.Option(
        '--journal', '-j', envvar='LAGENT_JOURNAL', help='File or database URL of the journal.'
    ),
]
RunId = Annotated[str, typer.Argument(metavar='RUN', help='A run, or the beginning of its id.')]
Position = Annotated[
    str | None,
    typer.Option(
        '--effect', help='Only if it is this effect, as `list` and `show` name it, that waits.'
    ),
]
MadeBy = Annotated[
    str | None,
    typer.Option(
        '--agent', metavar='MODULE:FUNCTION', help='What makes the agent, if not recorded.'
    ),
]


@runs_app.command('list')
def list_(
    where: Where = DEFAULT_JOURNAL,
    status: Annotated[Status | None, typer.Option(help='Only runs of this status.')] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
) -> None:
    """List the latest runs; those that wait for a decision say for what."""
    console = Console()
    with _journal(where) as journal:
        table = Table('run', 'status', 'updated', 'about', box=None, pad_edge=False)
        for run in journal.runs(status, limit):
            about = run.title
            if run.status == 'suspended':
                about = f'{_waits(journal, run)}  {about}'
            table.add_row(
                run.id,
                _status(run),
                when(run.updated),
                Text(printable(about), overflow='ellipsis', no_wrap=True),
            )
        console.print(table)


@runs_app.command()
def show(
    run_id: RunId,
    where: Where = DEFAULT_JOURNAL,
    full: Annotated[bool, typer.Option('--full', help='Whole texts.')] = False,
    json_lines: Annotated[bool, typer.Option('--json', help='A JSON object a line.')] = False,
) -> None:
    """Show what happened in a run, as a timeline."""
    console = Console()
    with _journal(where) as journal:
        run = _find(journal, run_id)
        lines = timeline(journal, run)
        if json_lines:
            typer.echo('\n'.join(as_json(lines)))
            return
        console.print(Text(f'{run.id}  {printable(run.title)}', style='bold'))
        console.print(_state(run))
        columns = None if full else console.width
        for line in lines:
            console.print(_head(line))
            if line.detail:
                console.print(Text(_indented(line.detail, columns)), style='dim')
        if (ending := ending_of(journal, run)) is not None:
            console.print(Text(f'= {_indented(ending, columns).strip()}', style='bold'))


@runs_app.command()
def export(
    run_id: RunId,
    form: Annotated[Form, typer.Option('--format', '-f', help='What to write.')],
    to: Annotated[
        typer.FileTextWrite, typer.Option('--to', '-o', encoding='utf-8', help='File.')
    ] = '-',  # type: ignore[assignment]
    where: Where = DEFAULT_JOURNAL,
) -> None:
    """Write a run for other programs: training data, a Jupyter notebook, or its events.

    Trajectories and events are JSON lines. Token ids hold what the model was told and said, also
    what the journal has taken out of texts.
    """
    from lagent import export as exports

    with _journal(where) as journal:
        run = _find(journal, run_id)
        if form is Form.NOTEBOOK:
            lines = [json.dumps(exports.notebook(journal, run), indent=1)]
        elif form is Form.TRAJECTORY:
            lines = [json.dumps(each.to_dict()) for each in exports.trajectories(journal, run)]
        else:
            lines = [as_line(line) for line in exports.events(journal, run)]
    to.writelines(f'{line}\n' for line in lines)


@runs_app.command()
def diff(one: RunId, other: RunId, where: Where = DEFAULT_JOURNAL) -> None:
    """Show where two runs differ; exit with 1 if they do."""
    console = Console()
    with _journal(where) as journal:
        lines = compare((journal, _find(journal, one)), (journal, _find(journal, other)))
        for line in lines:
            style = {'+': 'green', '-': 'red', '@': 'bold'}.get(line[:1], 'dim')
            console.print(Text(printable(line), style=style))
        if lines:
            raise typer.Exit(DIFFERS)
        console.print('The same effects, with the same results.')


@runs_app.command()
def approve(run_id: RunId, where: Where = DEFAULT_JOURNAL, effect: Position = None) -> None:
    """Allow what a run waits for."""
    _decide(
        where, run_id, lambda journal, run: decisions.approve(journal, run.id, effect), 'approved'
    )


@runs_app.command()
def reject(
    run_id: RunId,
    reason: Annotated[str, typer.Argument(help='For the model.')] = '',
    where: Where = DEFAULT_JOURNAL,
    effect: Position = None,
    agent: MadeBy = None,
) -> None:
    """Forbid what a run waits for; the model is told why."""

    def forbid(journal: Journal, run: Run) -> Record:
        redactor = _redactor(run, agent) if reason else None
        return decisions.reject(journal, run.id, reason, effect, redactor=redactor)

    _decide(where, run_id, forbid, 'rejected')


@runs_app.command()
def edit(
    run_id: RunId,
    file: Annotated[typer.FileText, typer.Argument(help='File with it, or - for the input.')],
    where: Where = DEFAULT_JOURNAL,
    effect: Position = None,
    agent: MadeBy = None,
) -> None:
    """Have other code run than what a run waits for, or other parameters (JSON) given to a tool."""
    payload: Any = file.read()

    def change(journal: Journal, run: Run) -> Record:
        nonlocal payload
        if pending(journal, run.id, effect).kind != 'kernel':
            try:
                payload = json.loads(payload)
            except json.JSONDecodeError as error:
                raise typer.BadParameter(f'the parameters of a tool are JSON: {error}') from None
        return decisions.edit(journal, run.id, payload, effect, redactor=_redactor(run, agent))

    _decide(where, run_id, change, 'edited')


@runs_app.command()
def resume(
    run_id: RunId,
    where: Where = DEFAULT_JOURNAL,
    agent: MadeBy = None,
    unsafe: Annotated[
        bool, typer.Option('--unsafe', help='Consent again to code that nothing isolates.')
    ] = False,
) -> None:
    """Go on with a run that was interrupted, has failed, or has its decision."""
    console = Console()
    with _journal(where, 'change') as journal:
        run = _find(journal, run_id)
        factory = factory_of(run, agent)
        if factory.keywords.get('unsafe') and not unsafe:
            raise JournalError(
                'The run had a back end that isolates nothing. Give --unsafe to go on with it.'
            )
        view = ConsoleView(console)
        with told_errors(console, view=view), made(factory) as resumed, subscribe(view):
            answer = last_answer(resumed.run(run_id=run.id, journal=journal))
        console.print(Text(printable(str(answer.content))))


@runs_app.command()
def replay(
    run_id: RunId,
    where: Where = DEFAULT_JOURNAL,
    agent: MadeBy = None,
) -> None:
    """See whether the agent, as it is now, takes the way of a recorded run.

    Every effect is answered from the journal, none is done: it needs no model, key, Docker or
    network, and the journal is not written. Exits with 0 if the way and the end are the same, with
    1 if they are others, 2 if the journal can't tell, 5 if the run waits for a decision.
    """
    console = Console()
    with _journal(where) as journal, told_errors(console):
        run = _find(journal, run_id)
        factory = factory_of(run, agent)
        with nothing_done(), made(factory) as again, subscribe(ConsoleView(console)):
            rerun, end = again.rerun, 'answer'
            try:
                said = str(last_answer(rerun(run.id, journal=journal)).content)
            except Diverged as error:
                show_error(console, error)
                raise typer.Exit(DIFFERS) from None
            except (JournalError, RunSuspended):
                raise
            except Exception as error:
                if run.status != 'failed':
                    raise
                said, end = f'{type(error).__name__}: {error}', 'failure'
        console.print(Text(printable(said)))
        console.print(f'The same way as recorded, and the same {end}.', style='green')


@runs_app.command()
def prune(
    days: Annotated[float, typer.Option(min=0.0, help='Only runs not changed for so long.')] = 30.0,
    everything: Annotated[
        bool, typer.Option('--all', help='Also runs that have failed or wait.')
    ] = False,
    where: Where = DEFAULT_JOURNAL,
) -> None:
    """Remove old runs, and what only they use."""
    statuses = ('done', 'failed', 'suspended', 'ready', 'running') if everything else ('done',)
    with _journal(where, 'change') as journal:
        removed = journal.prune(time.time() - days * 86_400, statuses)  # type: ignore[arg-type]
        typer.echo(f'{many(removed, "run")} removed')


@contextmanager
def _journal(where: str, access: Access = 'read') -> Iterator[Journal]:
    try:
        with opened(where, access) as journal:
            yield journal
    except (JournalError, ExtraMissing) as error:
        Console(stderr=True).print(Text(printable(str(error)), style='red'))
        raise typer.Exit(USAGE) from None


def _find(journal: Journal, name: str) -> Run:
    try:
        return journal.run(name)
    except NoSuchRun:
        found = journal.runs(limit=_MOST_NAMED + 1, prefix=name)
        if not found:
            raise
    if len(found) == 1:
        return journal.run(found[0].id)
    named = ', '.join(run.id for run in found[:_MOST_NAMED])
    more = ', …' if len(found) > _MOST_NAMED else ''
    raise JournalError(f'Several runs begin with {name!r}: {named}{more}. Write more of the id.')


def _redactor(run: Run, agent: str | None) -> Redactor | None:
    """What hides the secrets of a run in words of ours: the agent brings it, if one is needed."""
    try:
        check_redactor(run, None)
        return None
    except RedactorMissing:
        if not (agent or run.factory):
            raise
    with nothing_done(), made(factory_of(run, agent)) as its_agent:
        redactor: Redactor | None = its_agent.redactor
        return redactor


def _decide(where: str, name: str, decide: Callable[[Journal, Run], Record], word: str) -> None:
    with _journal(where, 'change') as journal:
        run = _find(journal, name)
        request = decide(journal, run)
        typer.echo(f'{word}: {printable(_request(request))}')
        if word == 'edited':
            typer.echo('It takes the place of:')
        typer.echo(_indented(pretty(plain(journal, request.body['payload'])), None))
        try:
            waits = _request(pending(journal, run.id))
            typer.echo(f'It also waits for a decision about {printable(waits)}')
        except NothingToDecide:
            typer.echo(f'Go on with: lagent runs resume {run.id}')


def _waits(journal: Journal, run: Run) -> str:
    """What a suspended run waits for; one that can't be read must not hide the others."""
    try:
        return f'waits: {_request(pending(journal, run.id))}'
    except NothingToDecide:
        return 'waits for no decision of its own, but maybe for a run inside of it'
    except JournalError as error:
        return str(error)


def _request(request: Record) -> str:
    return f'effect {request.position}: {request.kind} {request.name} ({request.body["words"]})'


def _head(line: Line) -> Text:
    head = Text(f'{line.seconds:8.2f} s  {line.position:<8} ')
    head.append(f'{line.type:<8}', style=_STYLES.get(line.type, ''))
    head.append(f' {printable(line.what)}', style='bold')
    if line.elapsed is not None:
        head.append(f'  {line.elapsed:.2f} s', style='dim')
    if line.usage:
        head.append(f'  {many(line.usage, "token")}', style='dim')
    return head


def _status(run: Run) -> Text:
    is_dead = run.status == 'running' and (run.expires < time.time() or is_gone(run.owner))
    status = 'interrupted' if is_dead else run.status
    return Text(status, style=_STYLES.get(status, ''))


def _state(run: Run) -> Text:
    text = _status(run)
    text.append(f'  created {when(run.created)}, updated {when(run.updated)}', style='dim')
    if run.owner:
        text.append(f'  by {describe(run.owner)}', style='dim')
    return text


def _indented(text: str, columns: int | None) -> str:
    """A text, cut to a few lines of so many columns; None for all of it."""
    lines = printable(text).splitlines() or ['']
    if columns is not None:
        if len(lines) > 6:
            lines = [*lines[:5], f'… {many(len(lines) - 5, "more line")}']
        most = max(columns - _INDENT, _INDENT)
        lines = [line if len(line) <= most else f'{line[: most - 1]}…' for line in lines]
    return '\n'.join(f'{"":{_INDENT}}{line}' for line in lines)
