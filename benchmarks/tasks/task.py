"""The tasks, as they stand in `questions/*.toml`."""

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTIONS = Path(__file__).with_name('questions')

_FORMS = {
    'number': 'a number alone, without thousands separators',
    'text': 'the text alone',
    'list': 'a JSON array, such as ["a", 1.5]',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that must be made.

    Attributes:
        path: its name.
        kind: ``'png'``: a picture of at least 100 by 100 pixels that are not all alike. ``'csv'``:
            a table with a header. ``'json'``: an object.
        columns: of a table, its columns, in any order.
        count: of a table, its number of rows.
        rows: of a table, rows that must be in it, with values in the order of `columns`.
        equals: what an object holds, and nothing else.
        decimals: how many decimals of numbers count.
    """

    path: str
    kind: str
    columns: tuple[str, ...] = ()
    count: int | None = None
    rows: tuple[tuple[Any, ...], ...] = ()
    equals: dict[str, Any] | None = None
    decimals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question about files, with the one answer that is right.

    Attributes:
        id: its name.
        theme: the file that it stands in.
        question: what is asked, without the form of the answer.
        files: names of the files that are uploaded.
        check: ``'number'``, ``'text'`` or ``'list'``; see `benchmarks.tasks.checks`.
        answer: the right answer.
        solution: code that finds it, with pandas as ``pd``, and leaves it in ``answer``.
        decimals: to how many decimals numbers are asked for; None asks for exact ones.
        units: what may stand behind a number.
        also: other spellings of a text.
        ordered: whether the order of a list counts.
        artifacts: files that must be made.
    """

    id: str
    theme: str
    question: str
    files: tuple[str, ...]
    check: str
    answer: Any
    solution: str
    decimals: int | None = None
    units: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    ordered: bool = True
    artifacts: tuple[Artifact, ...] = ()

    @property
    def prompt(self) -> str:
        """The question as a model is asked it."""
        form = _FORMS[self.check]
        if self.decimals is not None:
            form = f'{form}; round to {self.decimals} decimals'
        return f'{self.question}\n\nEnd your reply with one line "ANSWER: " and {form}.'

    @property
    def digest(self) -> str:
        """Identifies what is asked and what counts as solved: a result holds for one digest."""
        judged = (self.prompt, self.files, self.answer, self.decimals, self.units, self.also)
        text = json.dumps([*judged, self.ordered, [repr(each) for each in self.artifacts]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(folder: Path = QUESTIONS) -> list[Task]:
    """Read the tasks.

    Args:
        folder: where their files are.

    Returns:
        The tasks by theme and in their order there.

    Raises:
        TypeError: a task has a field that there is not, or lacks one.
        ValueError: two tasks have the same id, or a kind of check is unknown.
    """
    tasks = [
        _task(path.stem, fields)
        for path in sorted(folder.glob('*.toml'))
        for fields in tomllib.loads(path.read_text(encoding='utf-8'))['task']
    ]
    if len({task.id for task in tasks}) < len(tasks):
        raise ValueError('two tasks have the same id')
    return tasks


def _task(theme: str, fields: dict[str, Any]) -> Task:
    artifacts = tuple(
        Artifact(
            **{
                **each,
                'columns': tuple(each.get('columns', ())),
                'rows': tuple(map(tuple, each.get('rows', ()))),
            }
        )
        for each in fields.pop('artifacts', ())
    )
    lists: dict[str, Any] = {
        name: tuple(fields.pop(name, ())) for name in ('files', 'units', 'also')
    }
    task = Task(theme=theme, artifacts=artifacts, **lists, **fields)
    if task.check not in _FORMS or any(
        each.kind not in ('png', 'csv', 'json') for each in artifacts
    ):
        raise ValueError(f'{task.id}: unknown kind of check')
    return task
