"""Files, outputs and profiles are hostile: whatever is in them, there is a short answer."""

import tempfile
from pathlib import Path

import nbformat
from hypothesis import given
from hypothesis import strategies as st

from lagent.analysis import to_notebook
from lagent.analysis.guest.profile import profile_file
from lagent.analysis.profiles import describe, parse_profile
from lagent.analysis.sanitize import safe_html, safe_markdown
from lagent.prompts.parsers import CodeParser
from lagent.schema import AgentMessage
from lagent.view.tables import short_table
from lagent.view.tracebacks import users_frames

SUFFIXES = ['.csv', '.tsv', '.txt', '.json', '.jsonl', '.xlsx', '.zip', '.db', '.png', '.jpg', '']
MAGICS = [
    *(b'', b'PK\x03\x04', b'\x89PNG\r\n\x1a\n', b'GIF8', b'\xff\xd8\xff', b'RIFF0000WEBP', b'BM'),
    *(b'SQLite format 3\x00', b'\xff\xfe', b'\xfe\xff', b'\xef\xbb\xbf', b'%PDF-', b'PAR1'),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
)
FIELDS = st.sampled_from(
    [
        'kind',
        'encoding',
        'delimiter',
        'decimal',
        'tables',
        'notes',
        'text',
        'error',
        'header',
        'skip',
    ]
)
LINES = st.sampled_from(
    [
        '-' * 75,
        'ValueError   Traceback (most recent call last)',
        'Cell In[1], line 2',
        'File /usr/lib/python3.11/json/x.py:3, in f()',
        'File /workspace/m.py:3',
        '----> 1 f()',
        'ValueError: no',
        'The above exception was the direct cause of the following exception:',
        '',
        '[... 1,000 characters left out ...]',
    ]
)
TAGS = st.sampled_from(
    [
        '<table class="dataframe">',
        '<tr>',
        '<td>',
        '</td>',
        '<th>',
        '1',
        '...',
        '</table>',
        '<![',
        '<!--',
    ]
)


@given(st.sampled_from(MAGICS), st.binary(max_size=400), st.sampled_from(SUFFIXES))
def test_a_look_at_any_file_ends_with_a_profile(magic, data, suffix):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f'file{suffix}')
        path.write_bytes(magic + data)
        profile = parse_profile(path.name, len(magic + data), profile_file(path))
    assert profile.size == len(magic + data)
    assert 'nothing credible' not in (profile.error or '')
    describe(profile).encode()


@given(st.text(max_size=300), st.sampled_from(['utf-8', 'utf-16', 'cp1252', 'gb18030']))
def test_a_look_at_any_text_ends_with_a_profile(text, encoding):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'file.csv')
        path.write_bytes(text.encode(encoding, 'ignore'))
        profile = parse_profile(path.name, 1, profile_file(path))
    assert profile.kind in ('table', 'empty', 'binary')


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=6))
def test_any_value_makes_a_profile(found):
    profile = parse_profile('a.csv', 7, found)
    assert (profile.path, profile.size) == ('a.csv', 7)
    assert describe(profile).startswith("'a.csv': ")


@given(st.lists(LINES | st.text(max_size=30), max_size=30))
def test_any_traceback_stays_a_text_that_is_hardly_longer(lines):
    trace = '\n'.join(lines)
    assert len(users_frames(trace)) <= len(trace) + 60 * (len(lines) + 1)


@given(st.lists(TAGS | st.text(max_size=10), max_size=40))
def test_any_html_is_a_table_or_none(pieces):
    table = short_table('<table class="dataframe">' + ''.join(pieces), 6, 6)
    assert table is None or table.endswith('columns]')


@given(st.text('<>&;:#/!?axjivscript()[]"= \n', max_size=80))
def test_nothing_that_opens_a_tag_is_left(text):
    marked = safe_markdown(text)
    assert all(f'<{letter}' not in marked for letter in 'axjivscript!/?')
    cleaned = safe_html(text)
    assert '<a' not in cleaned
    assert '<script' not in cleaned


@given(
    st.lists(
        st.tuples(st.sampled_from(['user', 'A', 'interpreter']), st.text(max_size=60)), max_size=8
    )
)
def test_any_conversation_makes_a_valid_notebook(said):
    messages = [
        AgentMessage(
            sender=sender,
            content=text,
            formatted=CodeParser().parse_response(text) if sender == 'A' else None,
            type='interpreter' if sender == 'interpreter' else None,
        )
        for sender, text in said
    ]
    nbformat.validate(to_notebook(messages, 'A'))
