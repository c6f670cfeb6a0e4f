"""Tests of agents: ask one, and say what it must have done.

::

    run = ask(agent, 'How much did we sell in May?')
    run.ran_code('read_csv')
    run.called_tool('mail', to='Ada')
    assert '1,234' in run.answer

For asynchronous agents it is ``await ask(...)``. The pytest plugin has `ask` as a fixture, which
also writes what the runs have used into the JUnit report.
"""

import inspect
import json
import re
from collections.abc import Awaitable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lagent.effects import Event, subscribe
from lagent.limits import RunUsage
from lagent.schema import AgentMessage
from lagent.steps import as_asked
from lagent.utils.counts import many

__all__ = ['Call', 'Run', 'ask', 'properties']

_WIDTH = 200
Words = str | re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Call:
    """An effect that a run had.

    Attributes:
        kind: ``'model'``, ``'tool'`` or ``'kernel'``.
        name: which model, tool or interpreter was asked.
        asked: the messages, the parameters, or the code.
        gave: the completion, the `ActionReturn`, or the `ExecutionResult`; None if it failed.
        error: what it raised.
        replayed: whether it came from a cassette or journal.
    """

    kind: str
    name: str
    asked: Any
    gave: Any = None
    error: BaseException | None = None
    replayed: bool = False

    def __str__(self) -> str:
        asked = self.asked if isinstance(self.asked, str) else repr(self.asked)
        asked = asked if len(asked) <= _WIDTH else f'{asked[: _WIDTH - 1]}…'
        outcome = getattr(self.gave, 'outcome', None)
        ended = f' -> {outcome.value}' if outcome is not None else ''
        ended = f' -> {type(self.error).__name__}: {self.error}' if self.error else ended
        return f'{self.name}: {asked}{ended}'


class Run:
    """What an agent did for one question. Its assertions say what they looked for and found.

    Attributes:
        message: the answer as a message.
        calls: every model call, tool call and cell, as they ended.
        usage: calls and tokens.
    """

    def __init__(self) -> None:
        self.message = AgentMessage(content='')
        self.calls: list[Call] = []
        self.usage = RunUsage()
        self._asked: dict[int, Any] = {}  # by effect, until it ends

    @property
    def answer(self) -> str:
        """The text of the answer."""
        return str(self.message.content)

    @property
    def model_calls(self) -> list[Call]:
        """The calls of models."""
        return self._of('model')

    @property
    def tool_calls(self) -> list[Call]:
        """The calls of tools."""
        return self._of('tool')

    @property
    def cells(self) -> list[Call]:
        """The cells of code."""
        return self._of('kernel')

    @property
    def artifacts(self) -> list[Any]:
        """The files that cells created or changed, as a `sandbox.FileInfo` each, latest state."""
        found = {
            info.path: info for cell in self.cells for info in getattr(cell.gave, 'artifacts', ())
        }
        return list(found.values())

    def ran_code(self, words: Words) -> Call:
        """Assert that a cell was run.

        Args:
            words: what occurs in its code: a text, or a compiled regular expression.

        Returns:
            The first such cell; its `gave` is the `ExecutionResult`.

        Raises:
            AssertionError: there is none; the message lists those that were run.
        """
        __tracebackhide__ = True
        for cell in self.cells:
            if _occurs(words, str(cell.asked)):
                return cell
        raise AssertionError(_miss(f'no code with {_shown(words)} was run', self.cells))

    def called_tool(self, name: str, **parameters: Any) -> Call:
        """Assert that a tool was called.

        Args:
            name: the tool, as the model calls it.
            parameters: values that some of its parameters had; a function says of a value whether
                it is right.

        Returns:
            The first such call; its `gave` is the `ActionReturn`.

        Raises:
            AssertionError: there is none; the message lists those that were made.
        """
        __tracebackhide__ = True
        for call in self.tool_calls:
            if call.name == name and _fits(parameters, _parameters(call.asked)):
                return call
        wanted = f'{name}({", ".join(f"{key}={value!r}" for key, value in parameters.items())})'
        raise AssertionError(_miss(f'{wanted} was not called', self.tool_calls))

    def answered(self, words: Words) -> None:
        """Assert something of the answer.

        Args:
            words: what occurs in it: a text, or a compiled regular expression.

        Raises:
            AssertionError: it does not.
        """
        __tracebackhide__ = True
        if not _occurs(words, self.answer):
            raise AssertionError(f'{_shown(words)} is not in the answer: {self.answer!r}')

    @contextmanager
    def watching(self) -> Iterator['Run']:
        """Note what is done inside the ``with`` block, for code that is more than one agent."""
        with subscribe(self._see):
            yield self

    def _see(self, event: Event) -> None:
        effect, failed = event.effect, event.type == 'error'
        if event.type == 'begin':
            self._asked[id(effect)] = as_asked(effect.payload)
        elif event.type in ('end', 'error'):
            self.calls.append(
                Call(
                    effect.kind,
                    effect.name,
                    self._asked.pop(id(effect), effect.payload),
                    None if failed else event.data,
                    event.data if failed else None,
                    event.replayed,
                )
            )
            self._count(effect.kind, None if failed else event.data)

    def _count(self, kind: str, gave: Any) -> None:
        if kind != 'model':
            self.usage.tool_calls += 1
            return
        self.usage.model_calls += 1
        if gave is not None:
            self.usage.count_reply(gave)

    def _of(self, kind: str) -> list[Call]:
        return [call for call in self.calls if call.kind == kind]


def ask(agent: Any, *message: str | AgentMessage, **kwargs: Any) -> Any:
    """Ask an agent, and keep what it does.

    Args:
        agent: an agent of any kind; the answer of a streaming one is read to its end.
        message: what it is asked.
        kwargs: given to the call.

    Returns:
        The `Run`; of an asynchronous agent what gives it when it is awaited.
    """
    return watched(Run(), agent, message, kwargs)


def watched(run: Run, agent: Any, message: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ask an agent, and keep in a run that is there already what it does; see `ask`."""
    with run.watching():
        given = agent(*message, **kwargs)
        if isinstance(given, Generator):
            for item in given:
                run.message = item
            return run
    if inspect.isawaitable(given) or hasattr(given, '__aiter__'):
        return _awaited(run, given)
    run.message = given
    return run


def properties(runs: Iterable[Run]) -> list[tuple[str, str]]:
    """What a report says about runs.

    Args:
        runs: the runs of a test.

    Returns:
        Names and values; one ``lagent.artifact`` for each file that cells created or changed.
    """
    runs = list(runs)
    counts = {
        'lagent.model_calls': sum(run.usage.model_calls for run in runs),
        'lagent.prompt_tokens': sum(run.usage.prompt_tokens for run in runs),
        'lagent.completion_tokens': sum(run.usage.completion_tokens for run in runs),
        'lagent.tool_calls': sum(len(run.tool_calls) for run in runs),
        'lagent.cells': sum(len(run.cells) for run in runs),
    }
    files = [info for run in runs for info in run.artifacts]
    return [(name, str(count)) for name, count in counts.items()] + [
        ('lagent.artifact', f'{info.path} ({many(info.size, "byte")})') for info in files
    ]


async def _awaited(run: Run, given: Awaitable[Any] | Any) -> Run:
    with run.watching():
        if hasattr(given, '__aiter__'):
            async for item in given:
                run.message = item
        else:
            run.message = await given
    return run


def _occurs(words: Words, text: str) -> bool:
    return words in text if isinstance(words, str) else words.search(text) is not None


def _shown(words: Words) -> str:
    return repr(words) if isinstance(words, str) else repr(words.pattern)


def _miss(what: str, calls: list[Call]) -> str:
    listed = ''.join(f'\n  {call}' for call in calls)
    return f'{what}; there were:{listed}' if calls else f'{what}; there was nothing of the kind'


def _parameters(asked: Any) -> dict[str, Any]:
    """The parameters of a call; a model may have written them as JSON."""
    if isinstance(asked, str):
        try:
            asked = json.loads(asked)
        except ValueError:
            return {}
    return asked if isinstance(asked, dict) else {}


def _fits(wanted: dict[str, Any], given: dict[str, Any]) -> bool:
    return all(
        key in given and (value(given[key]) if callable(value) else given[key] == value)
        for key, value in wanted.items()
    )
