"""What a journal knows of a run, for other programs: events, training data, a notebook."""

import json
from collections.abc import Iterator
from typing import Any

from lagent.actions.interpreter import CellResult
from lagent.agents.durable import message_of
from lagent.context import RunContext
from lagent.effects import Effect, Event
from lagent.events import as_dict, json_value
from lagent.journal.codec import Decoder
from lagent.journal.contract import Journal, Record, Run
from lagent.journal.errors import NotReadable
from lagent.journal.failures import decode_error
from lagent.journal.intents import ASIDE
from lagent.journal.runs import answer_of, opening_of
from lagent.journal.timeline import plain
from lagent.journal.validation import records_of
from lagent.prompts.parsers import CodeParser, ToolStatusCode
from lagent.schema import AgentMessage
from lagent.steps import Step
from lagent.trajectory import Sample, samples

_AUTHOR = 'model'


def steps(journal: Journal, run: Run) -> list[Step]:
    """The effects of a run, in the order in which they first began.

    Args:
        journal: where it is recorded.
        run: the run.

    Returns:
        A step for each; one without an outcome has not `ended`.
    """
    found: dict[str, Step] = {}
    session = _session(journal, run)
    for record in _effects(journal, run):
        if record.type == 'intent':
            found.setdefault(
                record.position,
                Step(
                    kind=record.kind,
                    name=record.name,
                    payload=_value(journal, record.body),
                    run=run.id,
                    session=session,
                    position=record.position,
                ),
            )
        elif record.type in ('result', 'error') and (step := found.get(record.position)):
            step.ended, step.seconds = True, record.elapsed or 0.0
            if record.type == 'result':
                step.result, step.error = _value(journal, record.body), None
            else:
                error = _error(journal, record)
                step.result, step.error = None, f'{type(error).__name__}: {error}'
    return [*found.values()]


def trajectories(journal: Journal, run: Run) -> list[Sample]:
    """A run as training data, see `lagent.trajectory`.

    What a journal writes is without secrets, but token ids are what they were: a secret that a
    model was told, or said, is in them.

    Args:
        journal: where it is recorded.
        run: the run.

    Returns:
        The samples.
    """
    return samples(steps(journal, run))


def events(journal: Journal, run: Run) -> Iterator[dict[str, Any]]:
    """The events of a run by the schema of `lagent.events`, without what only a listener hears.

    Args:
        journal: where it is recorded.
        run: the run.

    Yields:
        The members of each line.
    """
    context = RunContext(_session(journal, run), run.id)
    running: dict[str, tuple[int, Effect]] = {}
    for record in _effects(journal, run):
        if record.type == 'intent':
            payload = _value(journal, record.body)
            effect = Effect(record.kind, record.name, payload)  # type: ignore[arg-type]
            number, _ = running.get(record.position, (len(running) + 1, effect))
            running[record.position] = number, effect
            yield _line(Event('begin', effect, None, context, 0.0), number, record)
        elif record.type in ('result', 'error') and record.position in running:
            number, effect = running[record.position]
            failed = record.type == 'error'
            data = _error(journal, record) if failed else _value(journal, record.body)
            elapsed = record.elapsed or 0.0
            event = Event('error' if failed else 'end', effect, data, context, elapsed)
            yield _line(event, number, record)
    answer = answer_of(journal, run)
    if isinstance(answer, AgentMessage):
        yield {'event': 'answer', 'answer': str(answer.content), 'type': answer.type}


def notebook(journal: Journal, run: Run) -> dict[str, Any]:
    """A run as a Jupyter notebook; see `lagent.analysis.notebook.to_notebook`.

    Args:
        journal: where it is recorded.
        run: the run.

    Returns:
        A valid notebook, as plain values.

    Raises:
        ExtraMissing: nbformat or nh3 is not installed (extra ``notebook``).
    """
    from lagent.analysis.notebook import to_notebook

    return to_notebook([*_messages(journal, run)], _AUTHOR)


def _messages(journal: Journal, run: Run) -> Iterator[AgentMessage]:
    """The conversation of a run: questions, replies, and what came out of their code."""
    opening = opening_of(journal, run)
    asked = opening.get('messages', ()) if isinstance(opening, dict) else ()
    yield from map(message_of, asked)
    reply: str | None = None
    cells: list[Step] = []
    for step in steps(journal, run):
        if step.kind == 'kernel':
            cells.append(step)
            continue
        yield from _said(reply, cells)
        reply, cells = None, []
        if step.kind == 'model':
            reply = None if step.error or not step.ended else str(step.result)
        else:
            words = f'{step.name}({_text(step.payload)})\n{step.error or _text(step.result)}'
            yield AgentMessage(sender=step.name, content=words, type='tool')
    yield from _said(reply, cells)


def _said(reply: str | None, cells: list[Step]) -> Iterator[AgentMessage]:
    """A reply, and what came out of its code."""
    if not cells:
        if reply is not None:
            yield AgentMessage(sender=_AUTHOR, content=reply)
        return
    codes = [str(cell.payload) for cell in cells]
    parsed = CodeParser().parse_response(reply or '')
    formatted = {
        'status': ToolStatusCode.VALID_TOOL,
        'cells': codes,
        'thought': parsed['thought'] if list(parsed.cells) == codes else reply,
    }
    yield AgentMessage(sender=_AUTHOR, content=reply or '', formatted=formatted)
    results = [cell.result for cell in cells if isinstance(cell.result, CellResult)]
    yield AgentMessage(sender='interpreter', content='', formatted=results, type='interpreter')


def _effects(journal: Journal, run: Run) -> Iterator[Record]:
    """The records of what agents did, without what the program did aside."""
    return (record for record in records_of(journal, run.id) if record.kind != ASIDE)


def _line(event: Event, number: int, record: Record) -> dict[str, Any]:
    return as_dict(event, number) | {'position': record.position, 'time': record.time}


def _text(value: Any) -> str:
    return json.dumps(json_value(value), ensure_ascii=False)


def _session(journal: Journal, run: Run) -> Any:
    opening = opening_of(journal, run)
    return opening.get('session', 0) if isinstance(opening, dict) else 0


def _value(journal: Journal, tree: Any) -> Any:
    """An encoded value; without its types, if this program does not know them."""
    try:
        return Decoder(journal.blob).decode(tree)
    except NotReadable:
        return plain(journal, tree)


def _error(journal: Journal, record: Record) -> Any:
    return decode_error(record.body, Decoder(journal.blob))
