"""A cassette as a ``with`` block or a decorator: recorded once, then played without the world."""

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

from lagent.effects import Stage, intercept, offline
from lagent.journal.cassette import KINDS, load, save
from lagent.journal.cassette_player import CassettePlayer, MissingCassette
from lagent.journal.cassette_recorder import CassetteRecorder
from lagent.journal.errors import BadCassette, NotRecorded
from lagent.journal.normalise import Normaliser
from lagent.journal.redact import Redactor
from lagent.llms.effect import model_name
from lagent.llms.recorded import AsyncRecordedModel, RecordedModel
from lagent.utils.counts import many

F = TypeVar('F', bound=Callable[..., Any])

Mode = Literal['none', 'once', 'all']
MODES: tuple[Mode, ...] = ('none', 'once', 'all')
RECORD = 'LAGENT_RECORD'
"""Environment variable with the mode of cassettes that name none."""


def replay(
    cassette: str | os.PathLike[str],
    *,
    record: Mode | None = None,
    kinds: Iterable[str] = KINDS,
    normalise: Iterable[Normaliser] = (),
    strict: bool = False,
    unused: Literal['error', 'warn'] = 'error',
    redactor: Redactor | None = None,
) -> 'Replay':
    """Play a cassette: models, tools and sandboxes give what they gave when it was recorded.

    ::

        with replay('tests/cassettes/sales.jsonl'):
            answer = agent('How much did we sell in May?')

        @replay('tests/cassettes/sales.jsonl')
        async def test_sales(): ...

    Inside, nothing is asked of a model or a server, and no sandbox is started. The first call that
    is not recorded ends the run with `NotRecorded`, which shows how it differs.

    Args:
        cassette: the file, in JSON lines; what is large is in a folder beside it.
        record: ``'none'`` only plays; ``'once'`` records if there is no such file; ``'all'``
            records, and replaces the file. By default what ``$LAGENT_RECORD`` or pytest's
            ``--lagent-record`` says, else ``'none'``. Nothing is written when the block raises.
        kinds: kinds of effects that are recorded; those of another kind are always done. With
            ``{'model', 'kernel'}`` tools are called, for tests of these tools.
        normalise: what makes calls equal that differ only in parts without a meaning, such as
            `lagent.journal.times`, `ids`, `paths`, or a `Normaliser` of your own.
        strict: execute the cells again, in a real sandbox, and raise `OutputsDiffer` at the end
            where they give something else than what is recorded.
        unused: what happens at the end if calls are recorded that were not made.
        redactor: takes secrets out of what is written and compared.

    Returns:
        What is entered or decorates; it gives the `Replay`.

    Raises:
        ValueError: there is no such mode or kind.
    """
    return Replay(
        Path(cassette),
        record,
        tuple(kinds),
        tuple(normalise),
        strict=strict,
        unused=unused,
        redactor=redactor,
    )


class Replay:
    """A cassette that is recorded or played; made by `replay`.

    Attributes:
        path: the file.
    """

    def __init__(
        self,
        path: Path,
        record: Mode | None,
        kinds: tuple[str, ...],
        normalise: tuple[Normaliser, ...],
        *,
        strict: bool,
        unused: Literal['error', 'warn'],
        redactor: Redactor | None,
    ) -> None:
        if record is not None and record not in MODES:
            raise ValueError(f'record is one of {", ".join(MODES)}, not {record!r}')
        if wrong := set(kinds) - set(KINDS):
            raise ValueError(f'effects are of the kinds {", ".join(KINDS)}, not {wrong.pop()!r}')
        self.path = path
        self._record, self._normalise = record, normalise
        self._kinds = tuple(kind for kind in KINDS if kind in kinds)
        self._strict, self._unused, self._redactor = strict, unused, redactor
        self._recorder: CassetteRecorder | None = None
        self._player: CassettePlayer | MissingCassette | None = None
        self._models: list[dict[str, Any]] = []
        self._made = 0
        self._discarded = False
        self._stack = ExitStack()

    @property
    def is_recording(self) -> bool:
        """Whether the world is asked now, and what it gives is recorded."""
        return self._recorder is not None

    def model(self, make: Callable[[], Any]) -> Any:
        """A model for this cassette, which need not be there when the cassette is played.

        ::

            agent = Coder(cassette.model(lambda: VllmModel('Qwen/Qwen2.5-7B-Instruct')))

        Args:
            make: makes the model; called only when the cassette is recorded.

        Returns:
            The model; or what has its name and is never asked.

        Raises:
            NotRecorded: the cassette knows of fewer models.
        """
        if self._recorder is not None:
            model = make()
            awaited = inspect.iscoroutinefunction(getattr(model, 'chat', None))
            name = model_name(model)
            self._recorder.cassette.models.append({'name': name, 'awaited': awaited})
            return model
        if self._player is None:
            raise RuntimeError('A cassette makes models only inside of its block.')
        if isinstance(self._player, MissingCassette):
            raise self._player.error
        self._made += 1
        if self._made > len(self._models):
            raise NotRecorded(
                self.path,
                f'model number {self._made}',
                f'It knows of {many(len(self._models), "model")}.',
            )
        known = self._models[self._made - 1]
        return (AsyncRecordedModel if known['awaited'] else RecordedModel)(known['name'])

    def discard(self) -> None:
        """Write nothing, and compare nothing at the end: the block has failed."""
        self._discarded = True

    def __enter__(self) -> Self:
        if self._recorder is not None or self._player is not None:
            raise RuntimeError('This cassette is in use; make another one with replay(...).')
        redactor = self._redactor or Redactor()
        self._made, self._discarded = 0, False
        with ExitStack() as stack:
            if self._records():
                interceptor: Any = CassetteRecorder(self._kinds, redactor)
            else:
                interceptor = self._load(redactor)
                done = {'kernel'} if self._strict else set()
                stack.enter_context(offline(set(self._kinds) - done))
            stack.enter_context(intercept(interceptor, Stage.CASSETTE))
            self._stack = stack.pop_all()
        if isinstance(interceptor, CassetteRecorder):
            self._recorder = interceptor
        else:
            self._player = interceptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder, player = self._recorder, self._player
        self._recorder = self._player = None
        self._stack.close()
        if error is not None:
            if recorder is not None:
                error.add_note(f'{self.path} was not written, as the block has failed.')
            elif player is not None and player.over not in (None, error):
                error.add_note(f'Before that, in the replay: {player.over}')
        elif recorder is not None and not self._discarded:
            save(self.path, recorder.finished())
        elif player is not None and not self._discarded:
            self._conclude(player)

    def __call__(self, function: F) -> F:
        """Decorate a function or coroutine function: each call is a replay of its own."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError('replay decorates functions and coroutine functions, no generators.')

        @functools.wraps(function)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            with self._another():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with self._another():
                return await function(*args, **kwargs)

        return cast('F', awaited if inspect.iscoroutinefunction(function) else blocking)

    def _another(self) -> 'Replay':
        return Replay(
            self.path,
            self._record,
            self._kinds,
            self._normalise,
            strict=self._strict,
            unused=self._unused,
            redactor=self._redactor,
        )

    def _records(self) -> bool:
        mode = self._record or os.environ.get(RECORD) or 'none'
        if mode not in MODES:
            raise ValueError(f'${RECORD} is one of {", ".join(MODES)}, not {mode!r}')
        return mode == 'all' or (mode == 'once' and not self.path.exists())

    def _load(self, redactor: Redactor) -> CassettePlayer | MissingCassette:
        if not self.path.exists():
            self._models = []
            return MissingCassette(
                BadCassette(self.path, 1, 'there is no such cassette'), self._kinds
            )
        cassette = load(self.path)
        if cassette.kinds != self._kinds:
            raise BadCassette(
                self.path,
                1,
                f'it was recorded with kinds={set(cassette.kinds)} and is played with '
                f'kinds={set(self._kinds)}',
            )
        self._models = cassette.models
        return CassettePlayer(self.path, cassette, self._normalise, redactor, strict=self._strict)

    def _conclude(self, player: CassettePlayer | MissingCassette) -> None:
        player.check_end()
        if (unused := player.unused()) is None:
            return
        if self._unused == 'error':
            raise unused
        warnings.warn(str(unused), stacklevel=3)
