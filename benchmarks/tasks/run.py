"""Asks a model one task after the other, and keeps what came of each."""

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.tasks.checks import MOST, Judged, judge
from benchmarks.tasks.data import CACHE
from benchmarks.tasks.files import problem
from benchmarks.tasks.task import Task
from lagent.actions.interpreter import Interpreter, SandboxError
from lagent.agents import DataAnalyst
from lagent.context import run_context
from lagent.errors import LimitExceeded, ModelError, ParseFailed
from lagent.limits import RunLimits
from lagent.llms.errors import ContextOverflow

BROKEN = ('model failed', 'sandbox failed')
"""Outcomes that say nothing of the model: they count as no try, and are tried again."""

FAILURES = (
    *('wrong answer', 'wrong file', 'unreadable answer', 'no answer'),
    *('out of turns', 'out of tokens', 'out of time', 'repeated itself', 'unparsable replies'),
    *('context full', *BROKEN),
)
"""How a task can fail, in the order of the tables."""

_LIMITS = {
    'tokens': 'out of tokens',
    'seconds': 'out of time',
    'repeated_calls': 'repeated itself',
    'parse_failures': 'unparsable replies',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run's results depend on besides the tasks.

    Attributes:
        model: the model, in words.
        max_turn: how many times code may run for one task.
        tokens: how many tokens a task may cost, prompts and replies together.
        seconds: how long a task may take.
        backend: where the code runs.
    """

    model: str
    max_turn: int = 10
    tokens: int = 200_000
    seconds: float = 600.0
    backend: str = 'docker'


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a task.

    Attributes:
        id: the task.
        theme: its theme.
        digest: what exactly was asked; see `Task.digest`.
        outcome: ``'solved'``, or one of `FAILURES`.
        answer: the answer that the model gave.
        reason: what was wrong, in words.
        steps: how many times code was run.
        model_calls: how many times the model was called.
        prompt_tokens: tokens sent, as far as the model reports them.
        completion_tokens: tokens received, as far as the model reports them.
        seconds: wall time, from the upload to the answer.
    """

    id: str
    theme: str
    digest: str
    outcome: str
    answer: str = ''
    reason: str = ''
    steps: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it says something of the model."""
        return self.outcome not in BROKEN

    @property
    def tokens(self) -> int:
        """Tokens of prompts and replies together."""
        return self.prompt_tokens + self.completion_tokens


class SettingsDiffer(Exception):
    """The results that are there were got under other settings."""


@dataclass(slots=True)
class Results:
    """The results of a run, in a file that is rewritten after each task.

    Attributes:
        settings: what they were got with.
        path: the file.
        by_id: a result for each task that was tried.
    """

    settings: Settings
    path: Path
    by_id: dict[str, Result] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, settings: Settings) -> Self:
        """Begin a run, or go on with the one in a file.

        Args:
            path: the file.
            settings: those of this run.

        Returns:
            The results so far.

        Raises:
            SettingsDiffer: the file is from a run with other settings; it was left as it is.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            return cls(settings, path)
        kept = json.loads(path.read_text(encoding='utf-8'))
        if kept['settings'] != asdict(settings):
            raise SettingsDiffer(
                f'{path} is from a run with other settings: {kept["settings"]}. '
                'Give another --out, or remove the file.'
            )
        return cls(settings, path, {each['id']: Result(**each) for each in kept['results']})

    def missing(self, tasks: Iterable[Task]) -> list[Task]:
        """Choose what must still be tried: new and changed tasks, and what broke.

        Args:
            tasks: the tasks of the run.

        Returns:
            Those without a result that counts.
        """
        return [task for task in tasks if not self._has(task)]

    def _has(self, task: Task) -> bool:
        result = self.by_id.get(task.id)
        return result is not None and result.counts and result.digest == task.digest

    def add(self, result: Result) -> None:
        """Keep a result, in the file as well.

        Args:
            result: the result; an earlier one of the same task is replaced.
        """
        self.by_id[result.id] = result
        rows = ',\n  '.join(json.dumps(asdict(each)) for each in self.by_id.values())
        settings = json.dumps(asdict(self.settings))
        part = self.path.with_name(f'.{self.path.name}.part')
        part.write_text(
            f'{{"settings": {settings},\n "results": [\n  {rows}]}}\n', encoding='utf-8'
        )
        part.replace(self.path)


def try_all(
    tasks: Iterable[Task],
    model: Callable[[Task], Any],
    interpreter: Interpreter,
    settings: Settings,
    parallel: int = 1,
    data: Path = CACHE,
) -> Iterator[Result]:
    """Try tasks, each in a session of its own.

    Args:
        tasks: the tasks.
        model: gives the model for a task; the same for all, unless replies are recorded.
        interpreter: runs the code of all of them.
        settings: limits of each.
        parallel: how many are tried at the same time.
        data: the folder with their files.

    Yields:
        The results, as they come.
    """
    with ThreadPoolExecutor(parallel) as pool:
        futures = [
            pool.submit(try_one, task, model(task), interpreter, settings, data) for task in tasks
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def try_one(
    task: Task,
    model: Any,
    interpreter: Interpreter,
    settings: Settings,
    data: Path = CACHE,
    session: str | None = None,
) -> Result:
    """Ask a model one task.

    Args:
        task: the task.
        model: the model.
        interpreter: runs the code.
        settings: limits.
        data: the folder with the files.
        session: a session that is kept, with the files and variables of the tasks before; by
            default the task has one of its own, which is closed in the end.

    Returns:
        What came of it.
    """
    analyst = DataAnalyst(model, interpreter, max_turn=settings.max_turn)
    limits = RunLimits(tokens=settings.tokens, seconds=settings.seconds)
    own = nullcontext(session) if session else _session(interpreter, task.id)
    with own as name, run_context(name, limits) as context:
        judged = _asked(analyst, task, data)
        usage, seconds = context.usage, time.monotonic() - context.usage.started
    return Result(
        id=task.id,
        theme=task.theme,
        digest=task.digest,
        outcome=judged[0],
        answer=judged[1],
        reason=judged[2],
        steps=usage.tool_calls,
        model_calls=usage.model_calls,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        seconds=round(seconds, 2),
    )


@contextmanager
def _session(interpreter: Interpreter, name: str) -> Iterator[str]:
    try:
        yield name
    finally:
        # One that can't be closed now goes with the interpreter; the result is worth more.
        with suppress(SandboxError):
            interpreter.close_session(name)


def _asked(analyst: DataAnalyst, task: Task, data: Path) -> tuple[str, str, str]:
    try:
        analyst.upload([data / name for name in task.files])
        reply = str(analyst(task.prompt).content)
        judged = judge(task, reply)
        if judged.verdict == 'solved':
            judged = _with_files(judged, analyst.interpreter, task)
    except LimitExceeded as error:
        return _LIMITS.get(error.limit, 'out of turns'), '', str(error)[:MOST]
    except ParseFailed as error:
        return 'unparsable replies', '', str(error)[:MOST]
    except ContextOverflow as error:
        return 'context full', '', str(error)[:MOST]
    except ModelError as error:
        return 'model failed', '', f'{type(error).__name__}: {error}'[:MOST]
    except SandboxError as error:
        return 'sandbox failed', '', f'{type(error).__name__}: {error}'[:MOST]
    return judged.verdict, judged.answer, judged.reason


def _with_files(judged: Judged, interpreter: Interpreter, task: Task) -> Judged:
    if not task.artifacts:
        return judged
    there = {info.path for info in interpreter.files()}
    with tempfile.TemporaryDirectory() as folder:
        for expected in task.artifacts:
            if expected.path not in there:
                return Judged('wrong file', judged.answer, f'there is no {expected.path}')
            copy = interpreter.download(expected.path, folder)
            if wrong := problem(expected, copy):
                return Judged('wrong file', judged.answer, f'{expected.path}: {wrong}')
    return judged
