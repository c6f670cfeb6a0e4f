"""Streaming agents and parsers: what is said of a reply before it has ended, and at its end."""

import asyncio

import pytest
from pydantic import BaseModel

from lagent.agents import AsyncStreamingAgent, StreamingAgent
from lagent.effects import subscribe
from lagent.llms import AsyncScriptedModel, Completion, ScriptedModel
from lagent.prompts.parsers import CodeParser, JSONParser, StrParser, ToolParser, ToolStatusCode
from lagent.schema import AgentMessage, ModelStatusCode

TEXT = 'I compute.\n```python\nprint(6)\nprint(7)\n```\n'


def collected(cls, replies, parser, chunk=1):
    if cls is StreamingAgent:
        return list(cls(ScriptedModel(replies, chunk=chunk), output_format=parser)('q'))

    async def read():
        agent = cls(AsyncScriptedModel(replies, chunk=chunk), output_format=parser)
        return [item async for item in agent('q')]

    return asyncio.run(read())


def is_partial(item):
    return item.stream_state == ModelStatusCode.STREAM_ING


@pytest.mark.parametrize('cls', [StreamingAgent, AsyncStreamingAgent])
@pytest.mark.parametrize(
    ('text', 'parser'),
    [(TEXT, CodeParser()), ('go<tool>\nx = 1</tool>\nthen', ToolParser('t'))],
)
def test_no_call_is_valid_before_the_reply_has_ended(cls, text, parser):
    items = collected(cls, [text], parser)
    statuses = [item.formatted['status'] for item in items if is_partial(item)]
    assert set(statuses) == {ToolStatusCode.NO_TOOL, ToolStatusCode.INCOMPLETE}
    assert items[-2].formatted == items[-1].formatted == parser.parse_response(text)
    assert items[-1].formatted['status'] == ToolStatusCode.VALID_TOOL


def test_the_code_so_far_is_shown():
    items = collected(StreamingAgent, [TEXT], CodeParser(), chunk=TEXT.index('print(7)'))
    assert items[0].formatted == {
        'tool_type': 'interpreter',
        'thought': 'I compute.\n',
        'action': 'print(6)\n',
        'status': ToolStatusCode.INCOMPLETE,
    }


def test_a_program_that_was_cut_off_is_not_valid():
    cut = Completion('```python\nprint(1)\n', finish_reason='length')
    items = collected(StreamingAgent, [cut], CodeParser())
    assert {item.formatted['status'] for item in items[-2:]} == {ToolStatusCode.INCOMPLETE}


class Counting(CodeParser):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parsed = []

    def parse_response(self, data):
        self.parsed.append(data)
        return super().parse_response(data)

    def stream_marks(self):
        return super().stream_marks()


def test_a_reply_is_parsed_once_and_with_what_the_provider_said():
    parser = Counting()
    collected(StreamingAgent, [Completion(TEXT, finish_reason='stop')], parser)
    assert [text.finish_reason for text in parser.parsed] == ['stop']


class Words(StrParser):
    """A parser that says nothing of what surrounds its calls."""

    def __init__(self):
        super().__init__()
        self.lengths = []

    def parse_response(self, data):
        self.lengths.append(len(data))
        if len(data) % 2:
            raise KeyError(data)
        return {'status': ToolStatusCode.VALID_TOOL}


def test_another_parser_is_asked_about_every_beginning():
    parser = Words()
    items = collected(StreamingAgent, ['abcd'], parser, chunk=1)
    statuses = [item.formatted and item.formatted['status'] for item in items]
    assert statuses == [None, -2, None, 1, 1]
    assert parser.lengths == [1, 2, 3, 4]


def test_but_not_about_long_ones():
    parser = Words()
    collected(StreamingAgent, ['ab' * 20_000], parser, chunk=2_000)
    assert parser.lengths == [*range(2_000, 20_001, 2_000), 40_000]


@pytest.mark.parametrize('cls', [StreamingAgent, AsyncStreamingAgent])
def test_what_the_parser_says_at_the_end_is_raised(cls):
    events = []
    with subscribe(events.append), pytest.raises(ValueError):
        collected(cls, ['no json'], JSONParser())
    assert events[-1].type == 'end'  # the model has done its part


def test_json_is_there_once_it_is_whole():
    parser = JSONParser(function_format=Answer)
    items = collected(StreamingAgent, ['{"a": 1}'], parser, chunk=4)
    assert [item.formatted for item in items] == [None, {'a': 1}, {'a': 1}]


class Answer(BaseModel):
    a: int


class Model:
    """Streams the items it was made with."""

    def __init__(self, *items):
        self.items = items

    def stream_chat(self, messages, session_id=None):
        yield from self.items


def streamed(*items):
    return list(StreamingAgent(Model(*items), output_format=CodeParser())('q'))


def test_a_model_that_never_says_that_it_has_ended():
    items = streamed((ModelStatusCode.STREAM_ING, TEXT[:35], None), (1, TEXT, None))
    assert [item.formatted['status'] for item in items] == [-2, -2, 1]
    assert isinstance(items[-1], AgentMessage)


def test_a_reply_that_ended_in_an_error_is_not_valid():
    items = streamed((1, TEXT[:40], None), (ModelStatusCode.SERVER_ERR, TEXT[:40], None))
    assert {item.formatted['status'] for item in items} == {ToolStatusCode.INCOMPLETE}


def test_a_model_may_take_back_what_it_said():
    items = streamed((1, '```python\nx', None), (1, 'No code', None), (0, 'No code.', None))
    assert [item.formatted['status'] for item in items] == [-2, 0, 0, 0]
    assert items[1].formatted['thought'] == 'No code'
