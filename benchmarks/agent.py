"""What an agent adds to its model, and a stream of chunks to its parser."""

import time
from collections.abc import AsyncIterator, Callable

from benchmarks.harness import MS, US, Goal, Measurement, Run, Side, blocking, interleave, timed
from lagent.agents import Agent
from lagent.llms import ScriptedModel
from lagent.memory import Memory
from lagent.prompts.parsers import CodeParser, StreamParser
from lagent.schema import AgentMessage

QUESTION, ANSWER = 'What is 6 times 7?', 'The answer is 42.'
LONG, CHUNK = 100_000, 10
_BATCH = 50


async def measure(run: Run) -> AsyncIterator[Measurement]:
    """Measure a step with short and long histories, and a streamed reply."""
    for history, goals in ((10, (Goal('value', 50.0),)), (100, ()), (1_000, ())):
        mine, theirs = await interleave(
            run.n(40, 10), _many(_step(history)), _many(_parts(history)), warm_up=3
        )
        yield Measurement(
            f'step of an agent, {history:,} messages of history',
            'us',
            mine,
            theirs,
            'its aggregator, model and parser, called by hand',
            goals,
            key='history',
            x=history,
        )
    for kind, reply in (('code', _long('code')), ('prose', _long('prose'))):
        mine, theirs = await interleave(
            run.n(25, 7),
            timed(blocking(lambda reply=reply: _streamed(reply))),  # type: ignore[misc]
            timed(blocking(lambda reply=reply: CodeParser().parse_response(reply))),  # type: ignore[misc]
        )
        yield Measurement(
            f'{LONG // 1000} kB of {kind} in {CHUNK}-byte chunks',
            'ms',
            mine,
            theirs,
            'parsed once, whole',
            (Goal('ratio', 2.0),),
        )
    double = _long('code') * 2
    mine, theirs = await interleave(
        run.n(15, 5),
        timed(blocking(lambda: _streamed(double)), MS / 2),
        timed(blocking(lambda: _streamed(double[:LONG]))),
    )
    yield Measurement(
        'a stream twice as long, half of its time',
        'ms',
        mine,
        theirs,
        'the stream',
        (Goal('ratio', 1.2),),
    )


def _history(number: int, name: str) -> list[AgentMessage]:
    senders = ('user', name)
    return [AgentMessage(sender=senders[i % 2], content='x' * 100) for i in range(number)]


def _step(history: int) -> Callable[[], object]:
    model = ScriptedModel(lambda _: ANSWER)
    agent = Agent(model, template='Be brief.', output_format=CodeParser())
    agent.update_memory(_history(history, agent.name or ''))
    memory = agent.memory.get(0) if agent.memory else None
    assert memory is not None

    def step() -> None:
        agent(QUESTION)
        del memory.memory[history:]
        model.calls.clear()

    return step


def _parts(history: int) -> Callable[[], object]:
    model = ScriptedModel(lambda _: ANSWER)
    agent = Agent(model, template='Be brief.', output_format=CodeParser())
    name = agent.name or ''
    memory = Memory()
    memory.add(_history(history, name))

    def parts() -> None:
        memory.add(AgentMessage(sender='user', content=QUESTION))
        chat = agent.aggregator.aggregate(memory, name, agent.output_format, agent.template)
        reply = model.chat(chat)
        formatted = agent.output_format.parse_response(reply)
        memory.add(AgentMessage(sender=name, content=reply, formatted=formatted))
        del memory.memory[history:]
        model.calls.clear()

    return parts


def _many(step: Callable[[], object]) -> Side:
    async def side() -> float:
        started = time.perf_counter()
        for _ in range(_BATCH):
            step()
        return (time.perf_counter() - started) * US / _BATCH

    return side


def _streamed(reply: str) -> object:
    stream = StreamParser(CodeParser())
    for at in range(0, len(reply), CHUNK):
        stream.feed(reply[at : at + CHUNK])
    stream.flush()
    return stream.finish()


def _long(kind: str) -> str:
    cell = 'Compute the next part.\n\n```python\nfor row in rows:\n    total += row * 2\n```\n\n'
    text = cell if kind == 'code' else 'This sentence is part of a long answer without any code. '
    return (text * (LONG // len(text) + 1))[:LONG]
