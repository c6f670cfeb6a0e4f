"""What users of other frameworks reported about model calls, each from the wire to the agent."""

import email.utils
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from lagent.actions import ActionExecutor, BaseAction, tool_api
from lagent.agents import Agent, Coder
from lagent.agents.aggregator import ToolCallAggregator
from lagent.effects import subscribe
from lagent.llms import GPTAPI, EmptyReply, RateLimited, RetryPolicy, StreamCut
from lagent.prompts.parsers import ToolCallParser

from .conftest import FakeServer, Reply, document, ends, events, failure, message

Serve = Callable[..., FakeServer]
ASK = [{'role': 'user', 'content': 'q'}]
QUICK = RetryPolicy(attempts=3, base=0.001, total=20)


class Python(BaseAction):
    """Runs code."""

    @tool_api
    def run(self, code: str) -> str:
        """Run code.

        Args:
            code: Python.
        """
        if 'Ctrl-C' in code:
            raise KeyboardInterrupt
        return str(eval(code.removeprefix('print')))


def native_agent(server: FakeServer) -> Agent:
    return Agent(
        GPTAPI('m', QUICK, key='k', base_url=server.base),
        output_format=ToolCallParser(),
        aggregator=ToolCallAggregator(),
    )


def calls(*said: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [
        {'id': id_, 'type': 'function', 'function': {'name': name, 'arguments': arguments}}
        for id_, name, arguments in said
    ]


def delta(index: int, arguments: str, **first: str) -> dict[str, Any]:
    name = {'name': first.pop('name')} if 'name' in first else {}
    call = {'index': index, **first, 'function': {**name, 'arguments': arguments}}
    return {'choices': [{'index': 0, 'delta': {'tool_calls': [call]}}]}


def answers(server: FakeServer) -> list[tuple[str, str]]:
    """Id and text of each tool message of the last request."""
    sent = server.requests[-1]['messages']
    return [(m['tool_call_id'], m['content']) for m in sent if m['role'] == 'tool']


def date_ahead() -> str:
    return email.utils.formatdate(time.time() + 3, usegmt=True)  # of whole seconds: 2 to 3


@pytest.mark.parametrize('asked', [lambda: '2', date_ahead])
def test_retry_after_in_seconds_and_as_a_date(asked: Callable[[], str], serve: Serve) -> None:
    # huggingface/smolagents#2107, earendil-works/pi#9595
    replies = iter([lambda: failure(429, retry_after=asked()), lambda: message('ok')])
    server = serve(lambda body: next(replies)())
    started = time.monotonic()
    assert GPTAPI('m', 2, key='k', base_url=server.base).chat(ASK) == 'ok'
    assert 1.9 <= time.monotonic() - started < 10
    assert len(server.requests) == 2, 'the SDK does not retry as well'


@pytest.mark.parametrize('value', ['0', 'soon', None])
def test_without_a_usable_retry_after_the_wait_is_our_own(value: str | None, serve: Serve) -> None:
    headers = {} if value is None else {'retry_after': value}
    server = serve(failure(429, **headers), message('ok'))
    started = time.monotonic()
    assert GPTAPI('m', QUICK, key='k', base_url=server.base).chat(ASK) == 'ok'
    assert time.monotonic() - started < 10


def test_a_wait_of_an_hour_is_an_error_unless_it_is_allowed(serve: Serve) -> None:
    server = serve(failure(429, retry_after='3600'))
    with pytest.raises(RateLimited, match='3600') as caught:
        GPTAPI('m', QUICK, key='k', base_url=server.base).chat(ASK)
    assert caught.value.retry_after == 3600
    allowed = RetryPolicy(total=8000, max_retry_after=4000)
    assert 3600 <= allowed.wait(caught.value, 1, 0.0, 0.5) < 3602


@pytest.mark.parametrize(
    ('reply', 'finish_reason', 'requests'),
    [
        (message(None, tool_calls=None), 'stop', 2),
        (message(''), 'stop', 2),
        (message(None, 'content_filter'), 'content_filter', 1),
        (document({'choices': []}), None, 2),
    ],
)
def test_a_reply_of_nothing_is_a_typed_error(
    reply: Reply, finish_reason: str | None, requests: int, serve: Serve
) -> None:
    # huggingface/smolagents#1896: a TypeError, and an endless loop of empty steps.
    server = serve(reply)
    llm = GPTAPI('m', QUICK, key='k', base_url=server.base, stop_words=['Observation:'])
    with pytest.raises(EmptyReply, match=r"stop words: \['Observation:'\]") as caught:
        Agent(llm)('q')
    assert caught.value.finish_reason == finish_reason
    assert len(server.requests) == requests


def test_the_code_of_a_stream_that_broke_off_is_never_run(serve: Serve) -> None:
    # NousResearch/hermes-agent#30963, QwenLM/Qwen-Agent#245: a closed fence proves nothing.
    code = "```python\nimport os\nos.remove('a.txt')\n```\n"
    server = serve(events(code, 'But first ', done=False, cut=True))
    ran: list[Any] = []
    coder = Coder(GPTAPI('m', QUICK, key='k', base_url=server.base), ran.append)
    with subscribe(lambda event: None), pytest.raises(StreamCut) as caught:
        coder('Delete it')
    assert caught.value.partial == f'{code}But first '
    assert ran == []
    assert len(server.requests) <= QUICK.attempts
    remembered = coder.agent.memory.get(0).get_memory()
    assert [it.content for it in remembered] == ['Delete it'], 'no turn of the assistant'


def test_streamed_arguments_that_lack_their_last_brace(serve: Serve) -> None:
    # vllm-project/vllm#32152
    server = serve(
        events(
            delta(0, '{"code": "pri', id='c1', name='Python'),
            delta(0, 'nt(1)"'),
            ends('tool_calls'),
        ),
        events('I see.', ends()),
    )
    agent, executor = native_agent(server), ActionExecutor(Python())
    with subscribe(lambda event: None):
        agent(executor(agent('q')))
    [(id_, text)] = answers(server)
    assert id_ == 'c1'
    assert 'JSON' in text


def test_streamed_fragments_of_two_calls(serve: Serve) -> None:
    # vllm-project/vllm#10395
    server = serve(
        events(
            delta(0, '{"code":', id='c1', name='Python'),
            delta(1, '{"code": "print(2)"}', id='c2', name='Python'),
            delta(0, ' "print(1)"}'),
            ends('tool_calls'),
        ),
        events('I see.', ends()),
    )
    agent, executor = native_agent(server), ActionExecutor(Python())
    with subscribe(lambda event: None):
        agent(executor(agent('q')))
    assert answers(server) == [('c1', '1'), ('c2', '2')]


THREE = calls(
    ('c1', 'Python', '{"code": "print(1)"}'),
    ('c2', 'Python', '{"code": "1/0"}'),
    ('c3', 'no_such_tool', '{}'),
)


def test_every_call_gets_its_answer(serve: Serve) -> None:
    # anomalyco/opencode#44852: a call id that stays unanswered, and every later request refused.
    server = serve(message(None, 'tool_calls', tool_calls=THREE), message('done'))
    agent, executor = native_agent(server), ActionExecutor(Python())
    agent(executor(agent('q')))
    one, two, three = answers(server)
    assert one == ('c1', '1')
    assert two[0] == 'c2'
    assert 'division by zero' in two[1]
    assert three[0] == 'c3'
    assert 'Python' in three[1]
    said = server.requests[-1]['messages'][1]
    assert [call['id'] for call in said['tool_calls']] == ['c1', 'c2', 'c3']


def test_every_call_gets_its_answer_after_ctrl_c(serve: Serve) -> None:
    stopped = [*THREE[:1], *calls(('c2', 'Python', json.dumps({'code': 'Ctrl-C'}))), THREE[2]]
    server = serve(message(None, 'tool_calls', tool_calls=stopped), message('done'))
    agent, executor = native_agent(server), ActionExecutor(Python())
    asked = agent('q')
    with pytest.raises(KeyboardInterrupt):
        executor(asked)
    agent('Go on')
    assert [id_ for id_, _ in answers(server)] == ['c1', 'c2', 'c3']
    assert all(text.startswith('[no result') for _, text in answers(server))
