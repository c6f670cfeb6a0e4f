import time

import pytest

from lagent.llms import Completion
from lagent.prompts.parsers import (
    CodeParser,
    InterpreterParser,
    MixedToolParser,
    PluginParser,
    Segment,
    StreamParser,
    StrParser,
    ToolParser,
    ToolStatusCode,
)


def shown(parser, *chunks):
    """The segments, neighbours of one kind joined."""
    stream = StreamParser(parser)
    joined = []
    for segment in [*(s for chunk in chunks for s in stream.feed(chunk)), *stream.flush()]:
        if joined and joined[-1].kind == segment.kind:
            joined[-1] = Segment(segment.kind, joined[-1].text + segment.text)
        else:
            joined.append(segment)
    return joined


REPLY = (
    '<think>\nhm `x`\n</think>\nLook:\n```python\nx = 1\nprint(x)\n```\nand\n```json\n{}\n```\nok'
)


def test_segments_of_a_reply():
    assert shown(CodeParser(), REPLY) == [
        ('reasoning', '\nhm `x`\n'),
        ('text', '\nLook:\n'),
        ('code', 'x = 1\nprint(x)\n'),
        ('text', 'and\n```json\n{}\n```\nok'),
    ]


def test_one_character_at_a_time():
    assert shown(CodeParser(), *REPLY) == shown(CodeParser(), REPLY)


def test_text_is_shown_at_once_and_a_possible_fence_is_not():
    stream = StreamParser(CodeParser())
    assert stream.feed('Hel') == [('text', 'Hel')]
    assert stream.feed('lo\n``') == [('text', 'lo\n')]
    assert stream.feed('`python') == []
    assert stream.feed('\nx =') == [('code', 'x =')]
    assert stream.feed(' 1 <thi') == [('code', ' 1 <thi')]


def test_plain_marks():
    parser = MixedToolParser(parsers=[PluginParser(), InterpreterParser()])
    text = 'a<|action_start|><|interpreter|>\n1 < 2<|action_end|>\nb'
    assert shown(parser, *text) == [('text', 'a'), ('code', '1 < 2'), ('text', '\nb')]


def test_fences_of_a_tool_parser():
    parser = ToolParser('db', begin='```sql\n', end='\n```\n')
    assert shown(parser, 'a\n```sql\nSELECT 1\n```\n') == [('text', 'a\n'), ('code', 'SELECT 1\n')]


def test_a_parser_of_other_things():
    assert shown(StrParser(), *'a ```python\n') == [('text', 'a ```python\n')]


def test_the_partial_result():
    stream = StreamParser(CodeParser())
    stream.feed('Look:\n')
    assert stream.partial() == {
        'tool_type': None,
        'thought': 'Look:\n',
        'action': None,
        'status': ToolStatusCode.NO_TOOL,
    }
    stream.feed('```python\nx = 1\nprint(')
    assert stream.partial() == {
        'tool_type': 'interpreter',
        'thought': 'Look:\n',
        'action': 'x = 1\nprint(',
        'status': ToolStatusCode.INCOMPLETE,
    }


def test_the_final_result_is_the_parsers_own():
    stream = StreamParser(CodeParser())
    for character in REPLY:
        stream.feed(character)
    assert stream.finish() == CodeParser().parse_response(REPLY)
    cut = Completion('```python\nx', finish_reason='length')
    assert StreamParser(CodeParser()).finish(cut)['status'] is ToolStatusCode.INCOMPLETE


@pytest.mark.parametrize('piece', ['x', ' ', '`', '<', '```\n', '<think', 'word ', '\n'])
def test_many_small_chunks_take_linear_time(piece):
    stream = StreamParser(CodeParser())
    start = time.perf_counter()
    for _ in range(50_000):
        stream.feed(piece)
    stream.flush()
    assert time.perf_counter() - start < 10
