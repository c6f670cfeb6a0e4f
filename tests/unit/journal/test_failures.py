"""What an effect has raised comes back as what it was, and nothing of its class is run for it."""

import json
import pickle
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Never, Self

import click
import httpx
import pytest

from lagent.agents import Agent
from lagent.errors import ExtraMissing
from lagent.journal import Decoder, Encoder, RecordedFailure, Redactor
from lagent.journal.codec import canonical
from lagent.journal.failures import decode_error, encode_error
from lagent.llms import ScriptedModel

CLEAN = Redactor(environ={})


def trip(error: BaseException, redactor: Redactor = CLEAN) -> Exception:
    encoder = Encoder(redactor)
    tree = json.loads(canonical(encode_error(error, encoder)))
    return decode_error(tree, Decoder(encoder.blobs.__getitem__))


class Busy(Exception):
    """Can't be made of its arguments, as most that services raise."""

    def __init__(self, words: str, *, code: int) -> None:
        super().__init__(words)
        self.code = code


class Slotted(Exception):
    __slots__ = ('never', 'place')

    def __init__(self, place: str) -> None:
        super().__init__(f'at {place}')
        self.place = place


class Both(ValueError, OSError):
    def __init__(self, code: int, words: str, *, path: str) -> None:
        super().__init__(code, words, path)
        self.hint = f'look at {path}'


class Several(ExceptionGroup):
    def __new__(cls, errors: list[Exception], *, of: str) -> Self:
        return super().__new__(cls, f'all of {of}', errors)

    def __init__(self, errors: list[Exception], *, of: str) -> None:
        self.of = of


class Watchful(Exception):
    """Notes whatever is run of it."""

    ran: ClassVar[list[str]] = []

    def __new__(cls, *args: Any) -> Self:
        cls.ran.append('new')
        return super().__new__(cls, *args)

    def __init__(self, *args: Any) -> None:
        self.ran.append('init')

    def __setattr__(self, name: str, value: Any) -> None:
        self.ran.append(name)
        super().__setattr__(name, value)

    def __setstate__(self, state: Any) -> None:
        self.ran.append('setstate')

    @property
    def setting(self) -> int:
        self.ran.append('get')
        return 1

    @setting.setter
    def setting(self, value: int) -> None:
        self.ran.append('set')


class Speechless(Exception):
    def __str__(self) -> str:
        raise AttributeError('no words')


REQUEST = httpx.Request('POST', 'http://localhost')


@pytest.mark.parametrize(
    'error',
    [
        Busy('busy', code=429),
        Slotted('home'),
        Both(2, 'no such file', path='a.csv'),
        FileNotFoundError(2, 'no such file', 'a.csv'),
        ImportError('no', name='numpy', path='/x'),
        ExtraMissing('numpy', 'arrays'),
        json.JSONDecodeError('bad', '{', 1),
        KeyError('k'),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_is_of_its_class_with_all_that_it_had(error: Exception) -> None:
    again = trip(error)
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    for name in ('place', 'errno', 'filename', 'strerror', 'name', 'path'):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_what_can_not_be_written_of_it_is_missing_and_its_class_stays() -> None:
    response = httpx.Response(429, request=REQUEST)
    error = httpx.HTTPStatusError('429', request=REQUEST, response=response)
    again = trip(error)
    assert type(again) is httpx.HTTPStatusError
    assert str(again) == '429'
    assert not hasattr(again, 'response')
    words = trip(ValueError(kept := object()))
    assert (type(words), words.args) == (ValueError, (str(kept),))


def test_a_group_has_its_parts() -> None:
    error = ExceptionGroup('many', [ValueError('a'), ExceptionGroup('more', [Busy('b', code=1)])])
    again = trip(error)
    assert type(again) is ExceptionGroup
    busy = again.subgroup(Busy)
    assert busy is not None
    assert again.message == 'many'
    assert [type(part) for part in again.exceptions] == [ValueError, ExceptionGroup]
    own = trip(Several([ValueError('a')], of='them'))
    assert isinstance(own, Several)
    assert (own.of, own.message, repr(own.exceptions)) == (
        'them',
        'all of them',
        "(ValueError('a'),)",
    )


def test_it_is_raised_from_what_it_was() -> None:
    error = RuntimeError('outer')
    error.__cause__ = Busy('inner', code=5)
    error.__cause__.__cause__ = KeyError('innermost')
    again = trip(error)
    inner = again.__cause__
    assert isinstance(inner, Busy)
    assert inner.code == 5
    assert isinstance(inner.__cause__, KeyError)


def test_neither_long_nor_round_chains_nor_wide_groups_are_without_end() -> None:
    error = RuntimeError('0')
    error.__cause__ = error
    depth, one = 0, trip(error)
    while one.__cause__ is not None:
        depth, one = depth + 1, one.__cause__  # type: ignore[assignment]
    assert depth == 10
    part: Exception = ValueError('x')
    for _ in range(12):  # each is there twice in the next one: 2 ** 12 of the first
        part = ExceptionGroup('g', [part, part])
    assert len(canonical(encode_error(part, Encoder(CLEAN)))) < 40_000


def test_nothing_of_the_class_is_run() -> None:
    error = Watchful('words')
    vars(error)['setting'] = 7
    error.number = 3
    Watchful.ran.clear()
    again = trip(error)
    assert Watchful.ran == []
    assert type(again) is Watchful
    assert again.args == ('words',)
    assert vars(again) == {'setting': 7, 'number': 3}


def test_one_without_words_is_recorded() -> None:
    assert type(trip(Speechless())) is Speechless


@pytest.mark.parametrize(
    'error',
    [
        pytest.exit.Exception('all good', 0),
        unittest.SkipTest('not today'),
        click.exceptions.Exit(0),
        click.Abort(),
        StopIteration(1),
        StopAsyncIteration(),
        SystemExit(0),
        KeyboardInterrupt(),
        pytest.skip.Exception('skipped'),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_ends_a_test_or_a_program_is_never_rebuilt(error: BaseException) -> None:
    again = trip(error)
    assert isinstance(again, RecordedFailure)
    hidden = trip(ExceptionGroup('g', [error])) if isinstance(error, Exception) else again
    assert isinstance(getattr(hidden, 'exceptions', [hidden])[0], RecordedFailure)


@pytest.mark.parametrize('part', ['args', 'state', 'parts', 'cause'])
@pytest.mark.parametrize('value', [None, 7, 'x', [7], {'x': 7}, {}])
def test_a_changed_record_gives_an_exception_all_the_same(part: str, value: Any) -> None:
    tree = encode_error(ExceptionGroup('g', [ValueError('a')]), Encoder(CLEAN)) | {part: value}
    decoder = Decoder({}.__getitem__)
    assert isinstance(decode_error(tree, decoder), ExceptionGroup | RecordedFailure)


def test_secrets_are_in_no_part_of_it() -> None:
    secret = 'known-by-its-value'
    error = Busy(f'with {secret}', code=1)
    error.__cause__ = Slotted(secret)
    error.password = 'hunter2hunter2'  # type: ignore[attr-defined]
    error.part = {'all': [secret]}  # type: ignore[attr-defined]
    encoder = Encoder(Redactor(values=[secret], environ={}))
    written = canonical(encode_error(error, encoder))
    assert secret not in written
    assert 'hunter2' not in written
    assert 'code' in written


class Falling(Agent):
    """Asks another model where the first one fails."""

    def __init__(self, error: Exception, *, is_cut: bool) -> None:
        super().__init__(ScriptedModel([error]))
        self.kind, self.is_cut = type(error), is_cut
        self.other = ScriptedModel([] if not is_cut else ['from the other'])

    def forward(self, *message: Any, **kwargs: Any) -> str:
        try:
            return str(self.llm.chat([{'role': 'user', 'content': 'x'}]))
        except self.kind as error:
            words = f'{error.args}'
        reply = self.other.chat([{'role': 'user', 'content': words}])
        if self.is_cut:
            raise RuntimeError('the process ends here')
        return str(reply)


def no_reply(*_: Any) -> Never:
    pytest.fail('the model was asked again')


@pytest.mark.parametrize(
    'make',
    [
        lambda: Busy('busy', code=429),
        lambda: httpx.HTTPStatusError('429', request=REQUEST, response=httpx.Response(429)),
        lambda: ExceptionGroup('many', [ValueError('a')]),
        lambda: Slotted('home'),
    ],
)
def test_a_run_that_has_caught_it_goes_the_same_way(
    make: Callable[[], Exception], tmp_path: Path
) -> None:
    path = tmp_path / 'runs.db'
    with pytest.raises(RuntimeError, match='ends here'):
        Falling(make(), is_cut=True).run('q', run_id='r', journal=path)
    resumed = Falling(make(), is_cut=False)
    resumed.llm = ScriptedModel(no_reply)
    assert resumed.run('q', run_id='r', journal=path).content == 'from the other'


def test_those_of_ours_can_still_be_pickled() -> None:
    again = trip(ExtraMissing('numpy', 'arrays'))
    assert str(pickle.loads(pickle.dumps(again))) == str(again)
