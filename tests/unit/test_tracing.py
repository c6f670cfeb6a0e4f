"""Spans and metrics, as the real SDK of OpenTelemetry sees them."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from lagent.actions import (
    ActionExecutor,
    AsyncActionExecutor,
    AsyncInterpreter,
    Interpreter,
    tool_api,
)
from lagent.agents import (
    Agent,
    AsyncAgent,
    AsyncCoder,
    AsyncStreamingAgent,
    Coder,
    Sequential,
    StreamingAgent,
)
from lagent.errors import RunSuspended
from lagent.journal import Approval, record
from lagent.limits import RunLimits
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel, Usage
from lagent.schema import AgentMessage
from lagent.tracing import instrument, traced
from lagent.watch import watchers
from sandbox import ErrorInfo, ExecutionResult, FakeBackend, Outcome

CODE = '```python\nprint(6 * 7)\n```'
SECRET = 'sk-abcdefghijklmnopqrstuvwxyz'


class Seen:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        """All spans, by the time at which they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def paths(self) -> list[str]:
        """The names of each span and of what it is in, the outermost first."""
        by_id = {span.context.span_id: span for span in self.spans if span.context}

        def path(span: ReadableSpan) -> str:
            parent = by_id.get(span.parent.span_id) if span.parent else None
            return span.name if parent is None else f'{path(parent)} > {span.name}'

        return [path(span) for span in self.spans]

    def metrics(self) -> dict[str, list[Any]]:
        data: Any = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in (data.resource_metrics if data else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Iterator[Seen]:
    made = Seen()
    yield made
    assert not [each for each in caplog.records if each.name.startswith('opentelemetry')]
    made.tracers.shutdown()
    made.meters.shutdown()
    assert trace.get_current_span() is trace.INVALID_SPAN, 'a span is left behind'


def said(text: str, **fields: Any) -> Completion:
    return Completion(text, usage=Usage(20, 5, cached_tokens=12), **fields)


def sandbox(answer: Any = 'ran it') -> dict[str, Any]:
    return {'backend': FakeBackend(lambda _: answer), 'unsafe': True}


@tool_api
def add(a: int, b: int) -> int:
    """Add.

    Args:
        a (int): one.
        b (int): other.
    """
    return a + b


def test_a_coder_is_agents_with_models_and_code_below(seen: Seen) -> None:
    llm = ScriptedModel([said(CODE), said('It is 42.')])
    with Coder(llm, Interpreter(**sandbox())) as coder, traced(seen.tracers, seen.meters):
        coder('6 * 7?', session_id='user-7')
    outer = 'invoke_agent Coder'  # which asks an agent of the same name that talks to the model
    assert seen.paths() == [
        outer,
        f'{outer} > {outer}',
        f'{outer} > {outer} > chat scripted',
        f'{outer} > execute_tool interpreter',
        f'{outer} > {outer}',
        f'{outer} > {outer} > chat scripted',
    ]
    code = seen.named('execute_tool interpreter')
    chats = [span for span in seen.spans if span.name == 'chat scripted']
    assert len({span.context.trace_id for span in seen.spans if span.context}) == 1
    first = dict(chats[0].attributes or {})
    run_id = first.pop('lagent.run.id')
    assert first == {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': 'lagent',
        'gen_ai.request.model': 'scripted',
        'gen_ai.conversation.id': 'user-7',
        'gen_ai.response.finish_reasons': ('stop',),
        'gen_ai.usage.input_tokens': 20,
        'gen_ai.usage.output_tokens': 5,
        'gen_ai.usage.cache_read.input_tokens': 12,
    }
    assert dict(code.attributes or {}) == {
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': 'interpreter',
        'gen_ai.tool.type': 'function',
        'gen_ai.conversation.id': 'user-7',
        'lagent.effect.kind': 'kernel',
        'lagent.run.id': run_id,
    }
    assert [seen.spans[0].kind, chats[0].kind, code.kind] == [
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    ]
    assert all(span.status.status_code is StatusCode.UNSET for span in seen.spans)


def test_metrics_of_model_calls(seen: Seen) -> None:
    agent = Agent(ScriptedModel([said('Hello.'), ValueError('no')]))
    with traced(seen.tracers, seen.meters):
        agent('Hello?')
        with pytest.raises(ValueError, match='no'):
            agent('Hello?')
    found = seen.metrics()
    spent = {p.attributes['gen_ai.token.type']: p.sum for p in found['gen_ai.client.token.usage']}
    assert spent == {'input': 20, 'output': 5}
    assert found['gen_ai.client.token.usage'][0].explicit_bounds[:4] == (1, 4, 16, 64)
    durations = found['gen_ai.client.operation.duration']
    assert [(p.count, p.attributes.get('error.type')) for p in durations] == [
        (1, None),
        (1, 'ValueError'),
    ]
    assert durations[0].attributes['gen_ai.request.model'] == 'scripted'


def test_tool_calls_have_their_ids_and_nest_what_they_call(seen: Seen) -> None:
    helper = Agent(ScriptedModel(lambda _: 'helped'), name='helper')

    @tool_api
    def ask(text: str) -> str:
        """Ask.

        Args:
            text (str): what.
        """
        return str(helper(text).content)

    executor = ActionExecutor([add, ask])
    calls = [
        {'name': 'add', 'parameters': {'a': 1, 'b': 2}, 'id': 'call_1'},
        {'name': 'ask', 'parameters': {'text': 'help'}, 'id': 'call_2'},
    ]
    with traced(seen.tracers, seen.meters):
        executor(AgentMessage(sender='model', content=calls))
        executor(AgentMessage(sender='model', content={'name': 'add', 'parameters': {}}))
    first, failed = [span for span in seen.spans if span.name == 'execute_tool add']
    assert (first.attributes or {})['gen_ai.tool.call.id'] == 'call_1'
    assert 'gen_ai.tool.call.id' not in (failed.attributes or {})
    assert (failed.attributes or {})['error.type'] == 'ARGS_ERROR'
    assert failed.status.status_code is StatusCode.ERROR
    assert (seen.named('execute_tool ask').attributes or {})['gen_ai.tool.call.id'] == 'call_2'
    assert 'execute_tool ask > invoke_agent helper > chat scripted' in seen.paths()


async def test_concurrent_sessions_do_not_mix(seen: Seen) -> None:
    @tool_api
    async def tool(a: int) -> int:
        """Wait.

        Args:
            a (int): one.
        """
        await asyncio.sleep(0.01)
        return a

    agent = AsyncAgent(AsyncScriptedModel(lambda _: said('Yes.')))
    executor = AsyncActionExecutor([tool])

    async def one(number: int) -> None:
        with seen.tracers.get_tracer('test').start_as_current_span(f'user {number}'):
            await agent('Hello?', session_id=number)
            content = [{'name': 'tool', 'parameters': {'a': n}} for n in range(2)]
            await executor(AgentMessage(sender='model', content=content), session_id=number)

    with traced(seen.tracers, seen.meters):
        await asyncio.gather(*map(one, range(20)))
    by_trace: dict[int, list[ReadableSpan]] = {}
    for span in seen.spans:
        assert span.context
        by_trace.setdefault(span.context.trace_id, []).append(span)
    assert len(by_trace) == 20
    for spans in by_trace.values():
        names = sorted(span.name for span in spans)
        user = names[-1].removeprefix('user ')
        assert names[:-1] == [
            'chat scripted',
            'execute_tool tool',
            'execute_tool tool',
            'invoke_agent AsyncAgent',
        ]
        ids = {(span.attributes or {}).get('gen_ai.conversation.id') for span in spans}
        assert ids == {None, user}


async def test_asynchronous_and_streaming_agents_have_the_same_spans(seen: Seen) -> None:
    replies = [said('one two three four')]
    with traced(seen.tracers, seen.meters):
        for shown in StreamingAgent(ScriptedModel(replies))('Hello?'):
            assert trace.get_current_span() is trace.INVALID_SPAN, 'seen by the consumer'
            assert shown.content
        async for _ in AsyncStreamingAgent(AsyncScriptedModel(replies))('Hello?'):
            assert trace.get_current_span() is trace.INVALID_SPAN
        llm = AsyncScriptedModel([said(CODE), said('42')])
        async with AsyncCoder(llm, AsyncInterpreter(**sandbox())) as coder:
            await coder('6 * 7?')
    chats = [dict(span.attributes or {}) for span in seen.spans if span.name == 'chat scripted']
    assert len(chats) == 4
    assert {chat['gen_ai.usage.output_tokens'] for chat in chats} == {5}
    assert 'invoke_agent StreamingAgent > chat scripted' in seen.paths()
    assert 'invoke_agent AsyncStreamingAgent > chat scripted' in seen.paths()
    assert 'invoke_agent AsyncCoder > execute_tool interpreter' in seen.paths()


def test_a_stream_that_nobody_reads_to_its_end(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    agent = StreamingAgent(ScriptedModel(lambda _: 'one two three four'))
    with traced(seen.tracers, seen.meters):
        left = agent('Hello?')
        next(left)
        left.close()
        dropped = agent('Hello?', session_id=2)
        next(dropped)
        thread = threading.Thread(target=lambda kept: next(kept), args=(dropped,))
        thread.start()
        thread.join()
        del dropped, thread
        gc.collect()
    assert [(span.attributes or {})['lagent.ended'] for span in seen.spans] == ['abandoned'] * 4
    assert all(span.status.status_code is StatusCode.UNSET for span in seen.spans)
    assert caplog.records == []


def test_errors_have_their_type_and_no_secret(seen: Seen) -> None:
    agent = Agent(ScriptedModel([ValueError(f'key {SECRET} is wrong')]))
    with traced(seen.tracers, seen.meters), pytest.raises(ValueError, match='wrong'):
        agent('Hello?')
    for span in seen.spans:
        assert (span.attributes or {})['error.type'] == 'ValueError'
        assert span.status.description == 'key [redacted] is wrong'
    assert SECRET not in ''.join(span.to_json() for span in seen.spans)


def test_code_that_fails_is_an_error_of_its_span_only(seen: Seen) -> None:
    raised = ErrorInfo('ZeroDivisionError', 'division by zero', 'Traceback ...')
    interpreter = Interpreter(**sandbox(ExecutionResult(Outcome.ERROR, error=raised)))
    llm = ScriptedModel([said(CODE), said('It failed.')])
    with Coder(llm, interpreter) as coder, traced(seen.tracers, seen.meters):
        coder('6 * 7?')
    code = seen.named('execute_tool interpreter')
    assert code.status.status_code is StatusCode.ERROR
    assert (code.attributes or {})['error.type'] == 'ZeroDivisionError'
    assert seen.spans[0].status.status_code is StatusCode.UNSET


def test_content_is_recorded_when_asked_for_and_without_secrets(seen: Seen) -> None:
    @tool_api
    def shout(text: str, password: str) -> str:
        """Shout.

        Args:
            text (str): what.
            password (str): the password.
        """
        return f'{text}! {password}'

    llm = ScriptedModel([said('Fine.', reasoning='hm')])
    with traced(seen.tracers, seen.meters):
        Agent(ScriptedModel(['Fine.']))('private')
    assert 'private' not in ''.join(span.to_json() for span in seen.spans)
    seen.exporter.clear()
    with traced(seen.tracers, seen.meters, content=True):
        Agent(llm, template='Be kind.')(f'Hello, my key is {SECRET}')
        call = {'name': 'shout', 'parameters': {'text': 'oh', 'password': 'hunter2!x'}}
        ActionExecutor([shout])(AgentMessage(sender='model', content=call))
    chat = dict(seen.named('chat scripted').attributes or {})
    assert json.loads(str(chat['gen_ai.input.messages'])) == [
        {'role': 'system', 'parts': [{'type': 'text', 'content': 'Be kind.'}]},
        {
            'role': 'user',
            'parts': [{'type': 'text', 'content': 'Hello, my key is [redacted]'}],
        },
    ]
    assert json.loads(str(chat['gen_ai.output.messages'])) == [
        {
            'role': 'assistant',
            'parts': [
                {'type': 'reasoning', 'content': 'hm'},
                {'type': 'text', 'content': 'Fine.'},
            ],
            'finish_reason': 'stop',
        }
    ]
    tool = dict(seen.named('execute_tool shout').attributes or {})
    assert json.loads(str(tool['gen_ai.tool.call.arguments'])) == {
        'text': 'oh',
        'password': '[redacted]',
    }
    assert 'oh!' in str(tool['gen_ai.tool.call.result'])
    assert SECRET not in ''.join(span.to_json() for span in seen.spans)


def test_what_is_known_from_a_journal_is_marked_and_not_measured(
    seen: Seen, tmp_path: Path
) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(ZeroDivisionError), record(path, 'run'):
        ScriptedModel([said('first')]).chat('a')
        raise ZeroDivisionError
    with traced(seen.tracers, seen.meters), record(path, 'run'):
        ScriptedModel([]).chat('a')
        ScriptedModel([said('second')]).chat('b')
    assert [(span.attributes or {}).get('lagent.replayed') for span in seen.spans] == [True, None]
    assert [point.count for point in seen.metrics()['gen_ai.client.operation.duration']] == [1]


def test_a_run_that_waits_has_not_failed(seen: Seen, tmp_path: Path) -> None:
    with (
        Coder(ScriptedModel([said(CODE)]), Interpreter(**sandbox())) as coder,
        traced(seen.tracers, seen.meters),
        pytest.raises(RunSuspended),
    ):
        coder.run('6 * 7?', journal=tmp_path / 'runs.db', approval=Approval(kernel=True))
    code = seen.named('execute_tool interpreter')
    assert (code.attributes or {})['lagent.ended'] == 'suspended'
    assert code.status.status_code is StatusCode.UNSET


def test_a_chain_is_one_trace(seen: Seen) -> None:
    links = [Agent(ScriptedModel(lambda _: 'yes'), name=name) for name in ('first', 'second')]
    with traced(seen.tracers, seen.meters):
        Sequential(*links, name='chain')('Hello?')
    assert [path for path in seen.paths() if 'chat' in path] == [
        f'invoke_agent chain > invoke_agent {name} > chat scripted' for name in ('first', 'second')
    ]


def test_the_whole_process_is_traced_until_that_is_ended(seen: Seen) -> None:
    agent = Agent(ScriptedModel(lambda _: 'yes'))
    end = instrument(seen.tracers, seen.meters)
    try:
        thread = threading.Thread(target=agent, args=('Hello?',))
        thread.start()
        thread.join()
        assert [span.name for span in seen.spans] == ['invoke_agent Agent', 'chat scripted']
    finally:
        end()
    end()
    agent('Hello?')
    assert len(seen.spans) == 2
    assert watchers() == ()


def test_nothing_is_imported_where_nobody_asks_for_traces() -> None:
    program = """
import sys
import lagent.tracing
from lagent.agents import Agent
from lagent.llms import ScriptedModel
Agent(ScriptedModel(['Hello.']))('Hello?')
assert not [name for name in sys.modules if name.startswith('opentelemetry')]
sys.modules['opentelemetry'] = None
try:
    with lagent.tracing.traced():
        pass
except lagent.errors.ExtraMissing as error:
    print(error)
"""
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'lagent-sandbox[otel]' in done.stdout


def test_what_kernels_and_models_make_up_stays_small(seen: Seen) -> None:
    raised = ErrorInfo('x' * 10_000, 'no', 'Traceback ...')
    llm = ScriptedModel([said(CODE), said('It failed.')])
    box = Interpreter(**sandbox(ExecutionResult(Outcome.ERROR, error=raised)))
    with traced(seen.tracers, seen.meters):
        with Coder(llm, box) as coder:
            coder('6 * 7?')
        call = {'name': 'y' * 10_000, 'parameters': {}}
        ActionExecutor([add])(AgentMessage(sender='model', content=call))
    code = seen.named('execute_tool interpreter')
    assert (code.attributes or {})['error.type'] == '_OTHER'
    assert max(len(span.name) for span in seen.spans) < 200
    assert max(len(span.to_json()) for span in seen.spans) < 2_000


def test_an_answer_that_a_limit_gave_is_marked(seen: Seen) -> None:
    limits = RunLimits(model_calls=1, on_limit='return')
    links = [Agent(ScriptedModel(lambda _: 'yes'), name=name) for name in ('first', 'second')]
    with traced(seen.tracers, seen.meters):
        assert Sequential(*links, name='chain', limits=limits)('Hello?').type == 'limit'
    chain = seen.named('invoke_agent chain')
    assert (chain.attributes or {})['lagent.ended'] == 'limit'
    assert chain.status.status_code is StatusCode.UNSET
    second = seen.named('invoke_agent second')
    assert (second.attributes or {})['error.type'] == 'lagent.errors.LimitExceeded'
