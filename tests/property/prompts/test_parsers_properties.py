"""What holds for every reply, and for every way in which it may arrive."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from lagent.llms import Completion
from lagent.prompts.parsers import (
    CodeParser,
    CustomFormatParser,
    InterpreterParser,
    JSONParser,
    MixedToolParser,
    PluginParser,
    StreamParser,
    ToolParser,
    ToolStatusCode,
)
from lagent.prompts.parsers.json_lenient import loads

relaxed = settings(deadline=None, max_examples=80)


class Note(BaseModel):
    title: str
    tags: list[str] = []


FRAGMENTS = [
    '```', '````', '~~~', '``', '`', '```python', '```py\n', '\n```\n', '```sh\n', '```json\n',
    '\n', '\r\n', ' ', '    ', '\t', '<think>', '</think>', '[THINK]', '<tool_call>',
    '</tool_call>', '{"name": "python", "arguments": {"code": "print(1)"}}', '{', '}', '"', "'",
    '"""', '\\', ',', ':', '#', '//', '/*', 'x = 1\n', 'print("a")\n', 'if x:\n', '%%time\n',
    '!ls\n', '%x\n', 'Observation: 1\n', 'Output:', '<|observation|>', '<stop>', '<sto', 'words ',
    '<|action_start|><|plugin|>\n', '<|action_start|><|interpreter|>\n', '<|action_end|>\n',
    '<title>', '</title>', '<tags>', '<item>', '</item>', '<!--', '-->', '\ud800', '\x00', 'é',
]  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=25).map(
    ''.join
)
endings = st.sampled_from(['stop', 'length', None])

TOOL_PARSERS = [
    ToolParser('t', begin='```python\n', end='\n```\n'),
    ToolParser('t', begin='```sql\n', end='```'),
    ToolParser('t', begin='```\n', end='```\n'),
    InterpreterParser(),
    PluginParser(),
    MixedToolParser(parsers=[PluginParser(), InterpreterParser()]),
    MixedToolParser(parsers=[PluginParser(), CodeParser()]),
]
CODE_PARSERS = [
    CodeParser(),
    CodeParser(blocks='first', stop_words=['<stop>']),
    CodeParser(blocks='last', stop_words=['```\n']),
    CodeParser(blocks='one', reasoning_tags=(), observation_marks=()),
]


@pytest.mark.parametrize('parser', CODE_PARSERS, ids=lambda parser: parser.blocks)
@relaxed
@given(text=texts, finish=endings)
def test_the_code_parser_always_answers(parser, text, finish):
    parsed = parser.parse_response(Completion(text, finish_reason=finish))
    valid = parsed['status'] is ToolStatusCode.VALID_TOOL
    assert valid == bool(parsed['cells'])
    assert parsed['action'] == ('\n\n'.join(parsed['cells']) if valid else None)
    assert text.endswith(parsed.dropped)
    assert valid or parsed.hint
    assert all(cell.strip() for cell in parsed['cells'])
    assert (parsed['reason'], parsed['hint'], parsed['dropped']) == (
        parsed.reason,
        parsed.hint,
        parsed.dropped,
    )


@pytest.mark.parametrize('parser', TOOL_PARSERS)
@relaxed
@given(text=texts, finish=endings)
def test_the_tool_parsers_always_answer(parser, text, finish):
    parsed = parser.parse_response(Completion(text, finish_reason=finish))
    assert list(parsed)[:4] == ['tool_type', 'thought', 'action', 'status']
    assert text.endswith(parsed.dropped)
    if parsed['status'] is ToolStatusCode.NO_TOOL:
        assert parsed['action'] is None


@relaxed
@given(text=texts)
def test_the_other_parsers_give_a_value_or_a_value_error(text):
    for parser in (JSONParser('', note=Note), CustomFormatParser('', default_format=Note)):
        with contextlib.suppress(ValueError):
            parser.parse_response(text)


# ---- chunks --------------------------------------------------------------
def joined(segments):
    result = []
    for kind, text in segments:
        if result and result[-1][0] == kind:
            result[-1] = (kind, result[-1][1] + text)
        else:
            result.append((kind, text))
    return result


@pytest.mark.parametrize('parser', [CODE_PARSERS[0], *TOOL_PARSERS])
@relaxed
@given(text=texts, data=st.data(), finish=endings)
def test_any_chunking_equals_the_whole(parser, text, data, finish):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    whole, stream = StreamParser(parser), StreamParser(parser)
    seen = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        seen += stream.feed(text[start:end])
    seen += stream.flush()
    assert joined(seen) == joined([*whole.feed(text), *whole.flush()])
    assert stream.finish() == parser.parse_response(text)
    reply = Completion(text, finish_reason=finish)
    assert stream.finish(reply) == parser.parse_response(reply)


# ---- safety --------------------------------------------------------------
REAL = '\n```python\nreal()\n```\n'


@relaxed
@given(thinking=texts)
def test_code_in_reasoning_is_never_found(thinking):
    for tag in ('</think>', '[/THINK]'):
        thinking = thinking.replace(tag, '')
    parsed = CodeParser().parse_response(f'<think>{thinking}</think>{REAL}')
    assert parsed['cells'] == ['real()']
    cut = Completion(f'<think>{thinking}', finish_reason='length')
    assert CodeParser().parse_response(cut)['status'] is ToolStatusCode.INCOMPLETE
    separate = CodeParser().parse_response(Completion(REAL, reasoning=thinking))
    assert separate['cells'] == ['real()']


CELLS = st.lists(
    st.sampled_from(
        [
            'print(1)',
            'doc = """\n```sh\nmake\n```\n"""\nprint(doc)',
            'x = 1  # ```\ny = 2',
            "s = '''\n```\n'''",
            'def f():\n    return 1\n\nf()',
            "re.findall('\\d', '```')",
            'await f()',
            '%time x\ny = 2',
        ]
    ),
    min_size=1,
    max_size=4,
)


@relaxed
@given(cells=CELLS, data=st.data())
def test_a_truncated_program_is_never_run(cells, data):
    text = 'Plan.\n' + '\nThen\n'.join(f'```python\n{cell}\n```\n' for cell in cells) + 'Done.'
    end = data.draw(st.integers(0, len(text)))
    assert CodeParser().parse_response(text)['cells'] == cells
    found = CodeParser().parse_response(Completion(text[:end], finish_reason='length'))['cells']
    assert found == cells[: len(found)]


@relaxed
@given(answer=st.text().filter(lambda text: text.strip() and not set('`~<{[') & set(text)))
def test_an_answer_without_marks_is_given_unchanged(answer):
    parsed = CodeParser().parse_response(answer)
    assert (parsed['status'], parsed['thought']) == (ToolStatusCode.NO_TOOL, answer)


# ---- writing and reading -------------------------------------------------
@relaxed
@given(cells=CELLS, thought=st.sampled_from(['', 'So:\n', 'Two\nlines.\n']))
def test_written_code_is_read_back(cells, thought):
    parser = CodeParser()
    call = {'tool_type': 'interpreter', 'thought': thought, 'action': '', 'cells': cells}
    parsed = parser.parse_response(parser.format_response(call))
    assert (parsed['cells'], parsed['thought']) == (cells, thought)


@relaxed
@given(code=texts.filter(str.strip))
def test_any_one_cell_is_read_back(code):
    code = code.replace('\r', '')
    for word in ('think>', 'THINK]'):
        code = code.replace(word, '')
    if not code.strip():
        return
    parser = CodeParser()
    written = parser.format_response({'tool_type': 'interpreter', 'thought': '', 'action': code})
    assert parser.parse_response(written)['cells'] == [code]


@relaxed
@given(
    thought=st.text(alphabet=st.characters(exclude_characters='<')),
    action=st.text(alphabet=st.characters(exclude_characters='/')),
)
def test_a_tool_call_is_read_back(thought, action):
    parser = ToolParser('t')
    call = {'tool_type': 't', 'thought': thought, 'action': action}
    assert parser.parse_response(parser.format_response(call)) == {
        **call,
        'status': ToolStatusCode.VALID_TOOL,
    }


# ---- JSON ----------------------------------------------------------------
printable = st.text(alphabet=st.characters(codec='ascii', categories=('L', 'N', 'P', 'S', 'Zs')))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        printable,
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(printable, inner)),
    max_leaves=6,
)


@relaxed
@given(value=values)
def test_python_literals_are_read_as_json(value):
    assert loads(repr(value)) == value


@relaxed
@given(value=st.dictionaries(printable, values), data=st.data())
def test_json_that_was_cut_is_never_completed(value, data):
    text = repr(value)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(ValueError):
        loads(text[:cut])


# ---- time ----------------------------------------------------------------
@pytest.mark.parametrize('finish', ['stop', 'length'])
@pytest.mark.parametrize(
    'piece',
    [
        '```python\n(\n', '```python\n(\n```\n', '```\nx\n```\n', '```', '~~~\n', '```python', ' ',
        '\n', 'a```\n', 'x # ```\n', '<think>', '</think>', '<think></think>', '```\n</think>x',
        '<tool_call>', '<tool_call>{}</tool_call>', 'Observation: 1\n', '<sto', '{"name": "python"',
        '```python x```\n', 'x ```python\n(\n', '(((', '"""', 'x = 1\n', '\\', ' = !', '\t`',
        '```python\nx = """\n```\n"""\n```\n', '<|action_start|><|plugin|>\n{', '\r', '%\n', '>*_#',
    ],
)  # fmt: skip
def test_hostile_replies_take_bounded_time(piece, finish):
    text = piece * (40_000 // len(piece))
    descending = '\n'.join('`' * n + 'python\n(\n' + '`' * n for n in range(100, 2, -1))
    start = time.perf_counter()
    for reply in (text, f'```python\n{text}', f'{descending}\n{text}'):
        for parser in (CODE_PARSERS[1], *TOOL_PARSERS[:5]):
            parser.parse_response(Completion(reply, finish_reason=finish))
    assert time.perf_counter() - start < 60
