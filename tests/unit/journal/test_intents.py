"""What is asked is written in pieces: each once, and nothing of it is lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagent.effects import Effect, perform
from lagent.flow import run as drive
from lagent.journal import Diverged, Redactor, SqliteJournal, record
from lagent.journal.codec import Decoder
from lagent.journal.intents import PIECE, IntentEncoder
from lagent.journal.timeline import plain, timeline
from lagent.llms import Completion


def conversation(count: int, word: str = 'x') -> list[dict[str, Any]]:
    return [{'role': 'user', 'content': f'{number} {word}'} for number in range(count)]


def asked(payload: Any, asking: IntentEncoder | None = None) -> Any:
    return (asking or IntentEncoder(Redactor())).record(Effect('model', 'm', payload))


messages = st.lists(
    st.one_of(
        st.fixed_dictionaries({'role': st.just('user'), 'content': st.text(max_size=5)}),
        st.fixed_dictionaries({'role': st.just('user'), 'n': st.integers() | st.booleans()}),
        st.text(max_size=3),
        st.lists(st.none(), max_size=2),
    ),
    max_size=4 * PIECE,
)


@given(messages, messages)
def test_what_is_written_can_be_read_and_is_the_same_in_every_process(one, other):
    kept: set[str] = set()
    blobs: dict[str, bytes] = {}
    asking = IntentEncoder(Redactor(), kept)
    for payload in (one, other, one + other, one):
        written, new = asked(payload, asking)
        blobs.update(new)
        kept.update(new)
        assert Decoder(blobs.__getitem__).decode(written.body) == payload
        fresh, _ = asked(payload)
        assert (fresh.digest, fresh.body) == (written.digest, written.body)
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (asked(one)[0].digest == asked(other)[0].digest) == same


def test_a_number_is_not_taken_for_another_value_that_is_equal():
    asking = IntentEncoder(Redactor(), {'everything': 1})
    digests = {asked([{'a': value}] * 40, asking)[0].digest for value in (1, True, 1.0, '1')}
    assert len(digests) == 4
    reply = Completion('x', token_ids=[1, 2])
    assert asked([{'a': reply}] * 40, asking)[0].digest == asked([{'a': 'x'}] * 40)[0].digest


def test_only_what_is_new_of_a_conversation_is_written(tmp_path: Path):
    where = tmp_path / 'runs.db'
    with record(where, 'r'):
        for count in range(100, 200, 2):
            drive(perform(Effect('model', 'm', conversation(count, 'x' * 500)), lambda: 'y'))
    with SqliteJournal(where) as journal:
        intents = [each for each in journal.records('r') if each.type == 'intent']
        pieces = {digest for each in intents for digest in each.body['blobs']}
        assert len(pieces) == 198 // PIECE
        assert [len(each.body['v']) for each in intents[:3]] == [4, 6, 8]
        assert plain(journal, intents[-1].body) == conversation(198, 'x' * 500)
        lines = timeline(journal, journal.run('r'))
        assert lines[0].detail == f'99 {"x" * 500}'
    assert where.stat().st_size < 500_000  # the conversations alone have more than 3 MB


@pytest.mark.parametrize('changed', [0, 35, 39])
def test_a_difference_is_shown_wherever_it_is(tmp_path: Path, changed: int):
    where = tmp_path / 'runs.db'

    def ask(payload: Any) -> None:
        with record(where, 'r'):
            drive(perform(Effect('model', 'm', payload), lambda: 'y'))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(conversation(40))
    other = conversation(40)
    other[changed]['content'] = 'something else' + ' of length' * 400
    with pytest.raises(Diverged) as caught:
        ask(other)
    assert f'"{changed} x"' in str(caught.value)
    assert '"something else of length' in str(caught.value)


def test_secrets_are_in_no_piece(tmp_path: Path):
    where = tmp_path / 'runs.db'
    told = {'redactor': Redactor(values=['tiger-77-stripes'])}
    with record(where, 'r', **told):
        payload = conversation(64, 'tiger-77-stripes')
        drive(perform(Effect('model', 'm', payload), lambda: 'y'))
    assert b'tiger' not in where.read_bytes()
    with SqliteJournal(where) as journal:
        (first, *_) = plain(journal, journal.records('r')[0].body)
    assert first['content'] == '0 [redacted]'
