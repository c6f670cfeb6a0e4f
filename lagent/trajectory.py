"""Runs as training data: exactly the tokens that a model was given and wrote, or an honest text.

A text that is tokenized again may come out as other tokens than those that were sampled, so nothing
is tokenized here. Where an engine gave its ids (``return_token_ids=True``), turns whose prompts go
on from what was said before are one sequence; a prompt that does not (an aggregator has dropped
messages, another conversation) begins a sample of its own. Where there are no ids, a sample is made
of messages, and its `missing` says why.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from lagent.effects import Event
from lagent.events import TextStream, json_value
from lagent.steps import Step, as_asked

VERSION = 1

_LAST = re.compile(r'(?:(?:^|\.)[^.\[\]]+|\[[^\]]*\])$')  # the last part of a position
_ROLE, _CONTENT = 'role', 'content'


@dataclass(kw_only=True, slots=True)
class Turn:
    """One reply of a model.

    Attributes:
        text: the reply.
        reasoning: what the model thought before it, where the provider separates that.
        tool_calls: calls in the provider's own format.
        tokens: where in the sample's `token_ids` it is: from, up to; None without ids.
        finish_reason: how it ended.
        stop_reason: the stop word or token that ended it.
        usage: tokens that it cost.
        seconds: how long it took.
        position: where in the run it stands.
    """

    text: str
    reasoning: str | None
    tool_calls: Sequence[Any]
    tokens: tuple[int, int] | None
    finish_reason: str | None
    stop_reason: str | int | None
    usage: Any
    seconds: float
    position: str


@dataclass(kw_only=True, slots=True)
class ToolSpan:
    """A tool call, or a piece of code, that a turn led to.

    Attributes:
        kind: ``'tool'`` or ``'kernel'``.
        name: the tool's or the interpreter's name.
        asked: its arguments, or the code.
        result: what it gave.
        error: what it failed with, in words.
        seconds: how long it took.
        turn: number of the turn before it, from 0.
        tokens: where in `token_ids` the model was told of it, with what else it was told before
            its next reply: from, up to; None without ids or without a next reply.
        position: where in the run it stands.
        call_id: what the provider calls the call, where that is known.
    """

    kind: str
    name: str
    asked: Any
    result: Any
    error: str | None
    seconds: float
    turn: int
    tokens: tuple[int, int] | None
    position: str
    call_id: str | None


@dataclass(kw_only=True, slots=True)
class Sample:
    """A conversation with a model, to train on.

    Attributes:
        run: the run; of a conversation that several calls went on with, the first one's.
        session: the session.
        model: the model.
        token_ids: all tokens, prompts and replies; None without ids.
        loss_mask: for each of them 1 if the model generated it, else 0.
        logprobs: for each of them its log probability, None where it was not generated or that was
            not asked for; None as a whole if there is none.
        messages: the dialog as messages, the last reply included; None if it was asked otherwise.
        message_mask: for each of them 1 if it is the model's reply of a turn, else 0.
        turns: the replies.
        tools: what was done between them.
        reward: free for a reward; None until somebody sets it.
        missing: why there are no ids; None if there are.
    """

    run: str
    session: Any
    model: str
    token_ids: list[int] | None = None
    loss_mask: list[int] | None = None
    logprobs: list[float | None] | None = None
    messages: list[Any] | None = None
    message_mask: list[int] | None = None
    turns: list[Turn] = field(default_factory=list)
    tools: list[ToolSpan] = field(default_factory=list)
    reward: float | None = None
    missing: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The sample in JSON's values, with ``v``, the version of this schema."""
        return {'v': VERSION} | {
            each.name: json_value(getattr(self, each.name)) for each in fields(self)
        }


class Collector:
    """A subscriber of `lagent.effects` that keeps what is needed for samples, in memory.

    Tools that run while several models of one run talk at the same time are ascribed to the turn
    that ended last; a journal knows better, see `lagent.export`.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._running: dict[int, Step] = {}  # only the effect itself tells two equal ones apart

    def __call__(self, event: Event) -> None:
        """Note an event.

        Args:
            event: what happened.
        """
        effect, key = event.effect, id(event.effect)
        if event.type == 'begin':
            step = Step(
                kind=effect.kind,
                name=effect.name,
                payload=as_asked(effect.payload),
                run=event.run.run_id,
                session=event.run.session_id,
                call_id=effect.call_id,
            )
            self._steps.append(step)
            self._running[key] = step
        elif event.type != 'delta' and (step_ := self._running.pop(key, None)) is not None:
            step_.ended, step_.seconds = True, event.elapsed
            if event.type == 'error':
                step_.error = f'{type(event.data).__name__}: {event.data}'
            else:
                step_.result = event.data

    def samples(self, run: str | None = None) -> list[Sample]:
        """The samples so far.

        Args:
            run: only those of this run.

        Returns:
            The samples, in the order of their first turns.
        """
        return samples(step for step in [*self._steps] if run in (None, step.run))


def samples(steps: Iterable[Step]) -> list[Sample]:
    """Make training data of what was done.

    Model calls that failed have no tokens, and are no turns.

    Args:
        steps: effects, in the order in which they began.

    Returns:
        The samples, in the order of their first turns. Each generated token is in one of them.
    """
    made: list[Sample] = []
    turns: list[tuple[str, Sample, int]] = []  # scope, sample and number of each turn
    for step in steps:
        if not step.ended:
            continue
        if step.kind != 'model':
            _add_tool(step, turns)
        elif step.error is None:
            for prompt, reply in _replies(step):
                sample = _extended(made, step, prompt, reply)
                turns.append((next(_scopes(step.position), ''), sample, len(sample.turns) - 1))
    return made


def write_samples(found: Iterable[Sample], stream: TextStream) -> None:
    """Write samples as JSON lines.

    Args:
        found: the samples.
        stream: where to write.
    """
    for sample in found:
        stream.write(json.dumps(sample.to_dict()) + '\n')
    stream.flush()


def _replies(step: Step) -> Iterator[tuple[Any, Any]]:
    if isinstance(step.result, list):
        yield from zip(step.payload, step.result, strict=True)
    else:
        yield step.payload, step.result


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What an engine said of a reply's tokens."""

    before: list[int]
    written: list[int]
    logprobs: list[float | None]

    @classmethod
    def of(cls, reply: Any) -> '_Tokens | str':
        """The tokens of a reply, or why they are not known."""
        before, written = (getattr(reply, f'{name}token_ids', None) for name in ('prompt_', ''))
        if written is None:
            return 'the reply came without token ids; ask for them with return_token_ids=True'
        if before is None:
            return 'the ids of the prompt are not known; ask for them with return_token_ids=True'
        logprobs = getattr(reply, 'logprobs', None)
        if logprobs is None or len(logprobs) != len(written):
            logprobs = [None] * len(written)
        return cls([*before], [*written], [*logprobs])


def _extended(made: list[Sample], step: Step, prompt: Any, reply: Any) -> Sample:
    """The sample that goes on with a reply; a new one, unless an earlier one is its beginning."""
    tokens = _Tokens.of(reply)
    fitting = [
        each
        for each in made
        if (each.session, each.model) == (step.session, step.name) and _fits(each, prompt, tokens)
    ]
    own = [each for each in fitting if each.run == step.run]  # two runs may have begun alike
    if fitting:
        sample = (own or fitting)[-1]
    else:
        sample = Sample(run=step.run, session=step.session, model=step.name)
        if isinstance(tokens, str):
            sample.missing = tokens
        else:
            sample.token_ids, sample.loss_mask = [], []
        made.append(sample)
    where = None if isinstance(tokens, str) else _add_tokens(sample, tokens)
    _add_messages(sample, prompt, reply)
    sample.turns.append(
        Turn(
            text=str(reply),
            reasoning=getattr(reply, 'reasoning', None),
            tool_calls=getattr(reply, 'tool_calls', ()),
            tokens=where,
            finish_reason=getattr(reply, 'finish_reason', None),
            stop_reason=getattr(reply, 'stop_reason', None),
            usage=getattr(reply, 'usage', None),
            seconds=step.seconds,
            position=step.position,
        )
    )
    return sample


def _fits(sample: Sample, prompt: Any, tokens: _Tokens | str) -> bool:
    """Whether a prompt goes on where a sample ends."""
    if isinstance(tokens, str):
        if sample.messages is None or sample.missing is None or not _is_dialog(prompt):
            return False
        return _begins([*map(_key, prompt)], [*map(_key, sample.messages)])
    return sample.token_ids is not None and _begins(tokens.before, sample.token_ids)


def _add_tokens(sample: Sample, tokens: _Tokens) -> tuple[int, int]:
    """Append what a model was told and what it wrote; where the latter is."""
    ids, mask = sample.token_ids or [], sample.loss_mask or []
    told = tokens.before[len(ids) :]
    for tool in sample.tools:
        if tool.turn == len(sample.turns) - 1:
            tool.tokens = (len(ids), len(tokens.before))
    logprobs = [*(sample.logprobs or [None] * len(ids)), *[None] * len(told), *tokens.logprobs]
    sample.logprobs = None if all(each is None for each in logprobs) else logprobs
    sample.token_ids = [*ids, *told, *tokens.written]
    sample.loss_mask = [*mask, *[0] * len(told), *[1] * len(tokens.written)]
    return len(tokens.before), len(sample.token_ids)


def _add_messages(sample: Sample, prompt: Any, reply: Any) -> None:
    if isinstance(prompt, str):
        prompt = [{_ROLE: 'user', _CONTENT: prompt}]
    if not _is_dialog(prompt):
        sample.messages = sample.message_mask = None
        return
    sample.message_mask = [*_mask(prompt, sample.turns), 1]
    sample.messages = [*prompt, _as_message(str(reply), getattr(reply, 'tool_calls', ()))]


def _mask(prompt: list[Any], turns: list[Turn]) -> list[int]:
    """Which messages are the replies of turns; an example that reads like one stands before it."""
    replies = [_key(_as_message(turn.text, turn.tool_calls)) for turn in turns]
    mask = [0] * len(prompt)
    for number in reversed(range(len(prompt))):
        if (key := _key(prompt[number])) in replies:
            mask[number] = 1
            while replies.pop() != key:  # what came after it is not in this prompt
                pass
    return mask


def _as_message(text: str, calls: Iterable[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {_ROLE: 'assistant', _CONTENT: text}
    asked = [
        {
            'id': call.id,
            'type': 'function',
            'function': {'name': call.name, 'arguments': call.arguments},
        }
        for call in calls
    ]
    return message | ({'tool_calls': asked} if asked else {})


def _key(message: dict[str, Any]) -> Any:
    """What makes two messages the same one, however they are written."""
    ids = [call.get('id') for call in message.get('tool_calls') or ()]
    return message.get(_ROLE), message.get(_CONTENT) or '', ids


def _add_tool(step: Step, turns: list[tuple[str, Sample, int]]) -> None:
    for scope in _scopes(step.position):
        found = next((each for each in reversed(turns) if each[0] == scope), None)
        if found is not None:
            break
    else:
        found = turns[-1] if turns else None
    if found is None:
        return
    _, sample, turn = found
    sample.tools.append(
        ToolSpan(
            kind=step.kind,
            name=step.name,
            asked=step.payload,
            result=step.result,
            error=step.error,
            seconds=step.seconds,
            turn=turn,
            tokens=None,
            position=step.position,
            call_id=step.call_id,
        )
    )


def _scopes(position: str) -> Iterator[str]:
    """The scopes that a position is in, the innermost first."""
    while position:
        position = _LAST.sub('', position)
        yield position


def _begins(whole: list[Any], beginning: list[Any]) -> bool:
    # Most of what does not fit is told by one look.
    end = len(beginning)
    return (
        end <= len(whole)
        and (not end or whole[end - 1] == beginning[-1])
        and (whole[:end] == beginning)
    )


def _is_dialog(prompt: Any) -> bool:
    return isinstance(prompt, list) and all(isinstance(each, dict) for each in prompt)
