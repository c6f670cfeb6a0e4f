"""The files of cassettes: small, the same each time, without secrets, and not to be trusted."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from lagent.actions import Interpreter
from lagent.agents import Agent, Coder
from lagent.errors import JournalError
from lagent.journal import (
    BadCassette,
    NotRecorded,
    OutputsDiffer,
    SchemaTooNew,
    Unused,
    replay,
)
from lagent.journal.cassette import load
from lagent.journal.codec import Decoder
from lagent.journal.errors import RecordedFailure
from lagent.journal.failures import decode_error
from lagent.llms import Completion, ScriptedModel
from sandbox import ExecutionResult, FakeBackend, Outcome, Output

CODE = '```python\nprint(6 * 7)\n```'


def never() -> ScriptedModel:
    return ScriptedModel([])


def record(path: Path) -> None:
    model = ScriptedModel([Completion(CODE, latency=1.5), 'It is 42.'])
    printed = ExecutionResult(Outcome.OK, outputs=(Output('stdout', '42\n'),))
    backend = FakeBackend(lambda _: printed)
    with (
        Coder(model, interpreter=Interpreter(backend=backend, unsafe=True)) as agent,
        replay(path, record='once'),
    ):
        agent('What is six times seven?')


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def edit(path: Path, number: int, **values: Any) -> None:
    changed = lines(path)
    changed[number - 1].update(values)
    path.write_text(''.join(f'{json.dumps(line)}\n' for line in changed))


def test_a_cassette_is_a_line_an_effect_and_says_what_it_lacks(cassette_file: Path) -> None:
    record(cassette_file)
    head, first, cell, second = lines(cassette_file)
    assert head['cassette'] == 1
    assert any('contents of files' in words for words in head['not_captured'])
    assert first['gave']['v']['text'] == CODE
    assert cell['asked'] == 'print(6 * 7)'
    assert cell['gave']['v']['outputs'] == [{'kind': 'stdout', 'text': '42\n'}]
    # The second conversation is written as what came after the first.
    assert second['from'] == 1
    assert len(second['asked']) == 2
    assert cassette_file.stat().st_size < 3_000


def test_recording_again_gives_the_same_bytes(cassette_file: Path) -> None:
    record(cassette_file)
    before = cassette_file.read_bytes()
    cassette_file.unlink()
    record(cassette_file)
    assert cassette_file.read_bytes() == before


def test_all_records_anew_and_removes_texts_that_nobody_needs(cassette_file: Path) -> None:
    blobs = cassette_file.parent / 'run.blobs'
    for text in ('a' * 5_000, 'b' * 5_000, 'c'):
        with replay(cassette_file, record='all'):
            Agent(ScriptedModel([text]))('Go')
        assert len(list(blobs.glob('*'))) == (1 if len(text) > 1 else 0)
        with replay(cassette_file):
            assert Agent(never())('Go').content == text
    assert not blobs.exists()
    assert [path.name for path in cassette_file.parent.iterdir()] == ['run.jsonl']


def test_secrets_are_not_written_and_the_replay_works_without_them(
    cassette_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 'correct-horse-battery'
    monkeypatch.setenv('MAIL_PASSWORD', secret)
    with replay(cassette_file, record='once'):
        Agent(ScriptedModel([f'The word is {secret}.' + 'x' * 3_000]))(f'Is it {secret}?')
    written = cassette_file.read_text() + ''.join(
        p.read_text() for p in cassette_file.parent.glob('*.blobs/*')
    )
    assert secret not in written
    assert 'secrets: [redacted] stands in their place' in lines(cassette_file)[0]['not_captured']
    with replay(cassette_file):
        answer = Agent(never())(f'Is it {secret}?')
    assert str(answer.content).startswith('The word is [redacted].')


def test_text_is_readable_and_half_a_character_survives(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        for reply in ('你好', 'half \ud800'):
            Agent(ScriptedModel([reply]), memory=None)('ü')
    assert '你好' in cassette_file.read_text()
    with replay(cassette_file):
        for reply in ('你好', 'half \ud800'):
            assert Agent(never(), memory=None)('ü').content == reply


DAMAGE: list[tuple[str, Any, int]] = [
    ('', '', 1),
    ('not JSON', '{"cassette"', 1),
    ('no object', '[1]', 1),
    ('no version', '{}', 1),
    ('a version from before', '{"cassette": 0, "kinds": []}', 1),
    ('unknown kinds', '{"cassette": 1, "kinds": ["dreams"]}', 1),
    ('deep', '[' * 100_000, 2),
    ('NaN', '{"kind": "model", "name": "m", "asked": NaN, "gave": 1}', 2),
    ('no outcome', '{"kind": "model", "name": "m", "asked": 1}', 2),
    ('two outcomes', '{"kind": "model", "name": "m", "asked": 1, "gave": 1, "cut": ""}', 2),
    ('unknown kind', '{"kind": "dream", "name": "m", "asked": 1, "gave": 1}', 2),
    ('later one', '{"kind": "kernel", "name": "m", "follows": 9, "asked": 1, "gave": 1}', 2),
    (
        'true is no number',
        '{"kind": "model", "name": "m", "from": true, "asked": [], "gave": 1}',
        2,
    ),
    ('no error', '{"kind": "model", "name": "m", "asked": 1, "raised": "x"}', 2),
    (
        'a path as digest',
        '{"kind": "tool", "name": "", "asked": {"$": "text", "blob": "../../x"}, "gave": 1}',
        2,
    ),
    (
        'a missing blob',
        f'{{"kind": "tool", "name": "", "asked": {{"$": "text", "blob": "{"a" * 64}"}}, "cut": 1}}',
        2,
    ),
    ('no blob', '{"kind": "model", "name": "m", "asked": {"$": "text"}, "gave": 1}', 2),
    (
        'no text in it',
        '{"kind": "model", "name": "m", "asked": {"$": "text", "blob": 3}, "gave": 1}',
        2,
    ),
]


@pytest.mark.parametrize(
    ('text', 'line'), [(text, line) for _, text, line in DAMAGE], ids=[name for name, *_ in DAMAGE]
)
def test_a_damaged_cassette_is_refused_with_its_line(
    cassette_file: Path, text: str, line: int
) -> None:
    cassette_file.parent.mkdir()
    head = '{"cassette": 1, "kinds": ["model", "tool", "kernel"]}\n' if line == 2 else ''
    cassette_file.write_text(head + text)
    with pytest.raises(BadCassette, match=f'line {line}:') as caught, replay(cassette_file):
        pass
    assert caught.value.line == line


def test_a_changed_blob_is_refused(cassette_file: Path) -> None:
    with replay(cassette_file, record='once'):
        Agent(ScriptedModel(['a' * 5_000]))('Go')
    (blob,) = (cassette_file.parent / 'run.blobs').iterdir()
    blob.write_text('b' * 5_000)
    with (
        pytest.raises(BadCassette, match=r'line 2: the blob .* was changed'),
        replay(cassette_file),
    ):
        pass


def test_a_fifo_is_not_waited_for(cassette_file: Path) -> None:
    cassette_file.parent.mkdir()
    os.mkfifo(cassette_file)
    with pytest.raises(BadCassette, match='is no file'), replay(cassette_file):
        pass


@pytest.mark.parametrize(
    'gave',
    [
        {'$': 'nobody'},
        {'$': 'completion'},
        {'$': 'completion', 'v': {'texts': 3}},
        {'$': 'cell', 'v': {}},
        {'$': 'object', 't': 'os:system', 'fields': {}},
        {'$': ['x']},
    ],
)
def test_a_result_that_is_none_is_refused_when_it_is_asked_for(
    cassette_file: Path, gave: Any
) -> None:
    with replay(cassette_file, record='once'):
        Agent(ScriptedModel(['ok']))('Go')
    edit(cassette_file, 2, gave=gave)
    with pytest.raises(BadCassette, match='line 2'), replay(cassette_file):
        Agent(never())('Go')


def test_a_later_version_is_refused(cassette_file: Path) -> None:
    record(cassette_file)
    edit(cassette_file, 1, cassette=2)
    with pytest.raises(SchemaTooNew, match='Update lagent'), replay(cassette_file):
        pass


@pytest.mark.parametrize(
    'error',
    [
        BadCassette('a', 3, 'x'),
        NotRecorded('a', 'b', 'c'),
        Unused('a', ['b']),
        OutputsDiffer('a', ['b']),
    ],
)
def test_errors_can_be_sent_elsewhere(error: JournalError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (str(other), vars(other)) == (str(error), vars(error))


def test_cassettes_of_similar_names_keep_their_own_texts(tmp_path: Path) -> None:
    names = ['news', 'news.2024', 'news.2025', 'news.json', 'news.jsonl', 'news.2024.jsonl']
    said = {name: f'{number}' * 5_000 for number, name in enumerate(names)}
    for name, text in said.items():
        with replay(tmp_path / name, record='all'):
            Agent(ScriptedModel([text]))('q')
    for name, text in said.items():
        with replay(tmp_path / name):
            assert Agent(ScriptedModel([]))('q').content == text


def test_one_that_is_not_there_is_missed_at_the_first_call_or_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / 'none.jsonl'
    with pytest.raises(BadCassette, match='no such'), replay(path):
        Agent(ScriptedModel(['never']))('q')
    with pytest.raises(BadCassette, match='no such'), replay(path):
        pass
    with pytest.raises(BadCassette, match='no such'), replay(path) as cassette:
        cassette.model(lambda: ScriptedModel(['never']))
    with pytest.raises(pytest.skip.Exception), replay(path):
        pytest.skip('not here')


@pytest.mark.parametrize(
    'name',
    [
        '_pytest.outcomes:Exit',
        'unittest.case:SkipTest',
        'click.exceptions:Exit',
        'builtins:StopIteration',
        'builtins:StopAsyncIteration',
    ],
)
def test_no_file_ends_a_program(name: str) -> None:
    import unittest  # noqa: F401 - a class that is not loaded is not made anyway

    import click  # noqa: F401

    decoder = Decoder({}.__getitem__)
    error = decode_error({'type': name, 'words': 'x', 'args': ['all good', 0]}, decoder)
    assert type(error) is RecordedFailure
    assert type(
        decode_error({'type': 'builtins:KeyError', 'words': 'x', 'args': ['x']}, decoder)
    ) is (KeyError)


def test_a_chain_of_beginnings_is_bounded_and_a_last_blank_line_is_none(tmp_path: Path) -> None:
    head = {'cassette': 1, 'kinds': ['model'], 'models': [], 'not_captured': []}
    call = {'kind': 'model', 'name': 'x', 'asked': [1], 'gave': 'y'}
    chain = [{**call, 'from': number} for number in range(1, 4_000)]
    path = tmp_path / 'long.jsonl'
    path.write_text('\n'.join(map(json.dumps, [head, call, *chain])) + '\n')
    with pytest.raises(BadCassette, match="'from' is missing or wrong"):
        load(path)
    path.write_text('\n'.join(map(json.dumps, [head, call, *chain[:50]])) + '\n\n')
    assert len(load(path).effects) == 51
