"""A run as lines that a person can read, and the difference between two runs."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lagent.journal.codec import TAG
from lagent.journal.contract import Journal, Record, Run
from lagent.journal.difference import differing, pretty
from lagent.journal.history import TASK
from lagent.journal.intents import ASIDE
from lagent.journal.validation import damaged, records_of
from lagent.utils.counts import many

_LINE = 90  # characters of arguments that stay on one line


@dataclass(frozen=True, slots=True)
class Line:
    """One event of a run.

    Attributes:
        position: the effect; ``''`` for a note.
        type: the record's type.
        what: kind and name of the effect, or the name of the note.
        seconds: seconds since the run was created.
        elapsed: seconds that the effect took, after it.
        detail: what was asked, given, decided or raised; whole.
        usage: tokens that it cost.
    """

    position: str
    type: str
    what: str
    seconds: float
    elapsed: float | None
    detail: str
    usage: int


def timeline(journal: Journal, run: Run) -> list[Line]:
    """The records of a run, in order.

    Args:
        journal: where it is recorded.
        run: the run.

    Returns:
        A line for each record.
    """
    return [
        Line(
            '' if record.type == 'note' else record.position,
            record.type,
            record.position if record.type == 'note' else f'{record.kind} {record.name}'.strip(),
            record.time - run.created,
            record.elapsed,
            detail(journal, record),
            record.usage.get('prompt_tokens', 0) + record.usage.get('completion_tokens', 0),
        )
        for record in records_of(journal, run.id)
        if not record.position.startswith(TASK)
    ]


def detail(journal: Journal, record: Record) -> str:
    """What a record says, in text; classes that this program does not know are no obstacle.

    Args:
        journal: where it is.
        record: the record.

    Returns:
        The last message that a model was asked, its reply, code, what came out of it, the
        arguments of a tool, a decision, an exception, or what a note is about.
    """
    body = plain(journal, record.body)
    match record.type:
        case 'error':
            return f'{body["type"].rpartition(":")[2]}: {body["words"]}'
        case 'note':
            return _note(body)
        case 'request':
            return f'{body["words"]}: {pretty(body["payload"])}'
        case 'decision':
            said = body.get('reason') or body.get('payload') or ''
            return f'{body["verdict"]} {pretty(said)}'.strip()
        case 'intent' if record.kind == ASIDE and record.name.endswith('.look'):
            return ''  # code of ours
        case 'intent' if record.kind == 'model' and isinstance(body, list) and body:
            last = body[-1]
            return pretty(last.get('content', last) if isinstance(last, dict) else last)
    essence = _essence(body)
    compact = essence if isinstance(essence, str) else json.dumps(essence, ensure_ascii=False)
    return compact if len(compact) <= _LINE else pretty(essence)


def ending_of(journal: Journal, run: Run) -> str | None:
    """The answer of a run, or what it failed with, in text; None if it has not ended."""
    outcome = plain(journal, run.outcome) or {}
    if (error := outcome.get('error')) is not None:
        return f'{error["type"].rpartition(":")[2]}: {error["words"]}'
    answer = outcome.get('answer')
    if isinstance(answer, dict) and answer.keys() >= {'sender', 'content'}:
        answer = answer['content']
    return None if answer is None else pretty(_essence(answer))


def plain(journal: Journal, tree: Any) -> Any:
    """An encoded value in plain JSON values, without its types; bytes by their size.

    Args:
        journal: where its blobs are.
        tree: the encoded value.

    Returns:
        The value.

    Raises:
        NotReadable: the journal is damaged.
    """
    if isinstance(tree, list):
        return [plain(journal, item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if (tag := tree.get(TAG)) is None:
        return {key: plain(journal, value) for key, value in tree.items()}
    try:
        return _untagged(journal, tag, tree)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(f'a value of the kind {str(tag)!r} lacks parts of it ({error!r})') from error


def _untagged(journal: Journal, tag: Any, tree: dict[str, Any]) -> Any:
    if tag == 'text':
        return journal.blob(tree['blob']).decode('utf-8', 'replace')
    if tag == 'bytes':
        return f'<bytes {tree["blob"][:12]}>' if 'blob' in tree else '<bytes>'
    if tag == 'int':
        sign, digits = ('-', tree['v'][1:]) if tree['v'].startswith('-') else ('', tree['v'])
        return f'{sign}0x{digits}'
    if tag == 'pieces':
        pieces = [item for each in tree['blobs'] for item in json.loads(journal.blob(each))]
        return [plain(journal, item) for item in [*pieces, *tree['v']]]
    if tag == 'dict':
        return {str(plain(journal, k)): plain(journal, v) for k, v in tree['v']}
    if tag == 'object':
        fields = plain(journal, tree.get('fields'))
        items = plain(journal, tree.get('items')) or {}
        return fields['value'] if fields and fields.keys() == {'value'} else {**fields, **items}
    return plain(journal, tree['v'])


def _essence(body: Any) -> Any:
    """The part of a result that a person looks for: a reply's text, a cell's or a tool's output."""
    if isinstance(body, list) and all(map(_is_file, body)):
        return '\n'.join(f'{each["path"]} ({many(each["size"], "byte")})' for each in body)
    if not isinstance(body, dict):
        return '' if body is None else body
    if 'outcome' in body and 'outputs' in body:
        texts = [str(output.get('text', '')) for output in body['outputs']]
        notices = [f'[{notice}]' for notice in body.get('notices') or ()]
        said = ''.join([*notices, *texts]).strip()
        return said if body['outcome'] == 'ok' else f'[{body["outcome"]}] {said}'
    if 'text' in body and 'finish_reason' in body:
        return body['text']
    if 'errmsg' in body and 'result' in body:
        results = body['result'] or []
        return body['errmsg'] or '\n'.join(str(item.get('content')) for item in results)
    return body


def _note(body: Any) -> str:
    """What a note is about: of copies of variables and files their names."""
    if isinstance(body, dict) and 'files' in body:
        names = [name for entry in body.get('kept', ()) for name in entry['names']]
        return ', '.join([*names, *(entry['path'] for entry in body['files'])])
    return json.dumps(body, ensure_ascii=False)


def _is_file(body: Any) -> bool:
    return isinstance(body, dict) and body.keys() >= {'path', 'size', 'modified'}


def compare(one: tuple[Journal, Run], other: tuple[Journal, Run]) -> list[str]:
    """Where two runs differ: their effects, position by position.

    Args:
        one: a run, and its journal.
        other: another one.

    Returns:
        Lines of a unified diff under a heading for each effect that differs; none if none does.
    """
    first, second = _steps(one), _steps(other)
    lines: list[str] = []
    for position in [*first, *(position for position in second if position not in first)]:
        before, after = first.get(position, {}), second.get(position, {})
        if before == after:
            continue
        lines.append(f'@ {position}  {(before or after)["what"]}')
        for part in ('asked', 'gave'):
            lines += differing(f'{before.get(part, "")}', f'{after.get(part, "")}')
    return lines


def _steps(of: tuple[Journal, Run]) -> dict[str, dict[str, str]]:
    journal, run = of
    steps: dict[str, dict[str, str]] = {}
    for record in records_of(journal, run.id):
        if record.type in ('intent', 'result', 'error'):
            step = steps.setdefault(record.position, {})
            step['what'] = f'{record.kind} {record.name}'
            step['asked' if record.type == 'intent' else 'gave'] = detail(journal, record)
    return steps


def as_json(lines: Iterable[Line]) -> list[str]:
    """Lines as JSON objects, one a line of text."""
    return [json.dumps({name: getattr(line, name) for name in Line.__slots__}) for line in lines]


def when(moment: float) -> str:
    """A Unix time for a person, in local time."""
    return time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(moment))
