"""A recorded call of an agent: its question, its memory before it, its effects, its answer."""

import uuid
import weakref
from collections.abc import Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from lagent.context import resolve_session, run_context
from lagent.errors import JournalError, RunSuspended
from lagent.flow import Flow, blocking_call
from lagent.journal.codec import Decoder, Encoder, canonical
from lagent.journal.contract import Journal, Run
from lagent.journal.difference import differing, pretty
from lagent.journal.errors import Diverged, NotRecordable
from lagent.journal.recording import Recording
from lagent.journal.redact import Redactor
from lagent.journal.redacted import warn_redacted
from lagent.journal.redactor_check import check_redactor
from lagent.journal.rerun import Rerun
from lagent.journal.runs import (
    Options,
    Where,
    answer_of,
    begin,
    fail,
    find,
    open_journal,
    opening_of,
    take_up,
)
from lagent.journal.validation import damaged
from lagent.schema import AgentMessage

if TYPE_CHECKING:
    from lagent.agents.base import Agent


class Keeper(Protocol):
    """What an agent works with, and what has something of a session that a run may need again."""

    def _begin_run(self, session: Hashable) -> Flow[None]:
        """The flow that notes it in the journal, when a recorded run begins."""


def recorded_turn(
    agent: 'Agent',
    messages: tuple[Any, ...],
    session: Hashable | None,
    kwargs: dict[str, Any],
    where: Where,
    options: Options,
    stream_: 'weakref.ref[Any] | None' = None,
) -> Flow[AgentMessage]:
    """The flow of an agent's call that is recorded, or goes on where its journal ends.

    Args:
        agent: the agent.
        messages: the question; none at all to ask again what the run began with.
        session: the session; that of the run when it is resumed.
        kwargs: given to `forward`.
        where: the journal.
        options: the run's name, and how it is recorded.
        stream_: the generator that drives all this, where there is one.

    Returns:
        The answer.
    """
    journal, is_own = yield from blocking_call(open_journal, where)
    try:
        turn = _Turn(agent, journal, options)
        return (yield from turn.flow(messages, session, kwargs, stream_))
    finally:
        if is_own:
            journal.close()


def rerun_turn(
    agent: 'Agent',
    run_id: str,
    where: Where,
    redactor: Redactor | None,
    stream_: 'weakref.ref[Any] | None' = None,
) -> Flow[AgentMessage]:
    """The flow of an agent's call that is answered by the journal of a run, and does nothing.

    Args:
        agent: the agent.
        run_id: the run.
        where: the journal.
        redactor: the one that it was recorded with.
        stream_: the generator that drives all this, where there is one.

    Returns:
        The answer.
    """
    journal, is_own = yield from blocking_call(open_journal, where, 'read')
    try:
        turn = _Turn(agent, journal, Options(run_id=run_id, redactor=redactor))
        return (yield from turn.again(run_id, stream_))
    finally:
        if is_own:
            journal.close()


_PARTS = {'messages': list, 'session': Hashable, 'kwargs': dict, 'state': dict}


class _Turn:
    """One attempt at a recorded call."""

    def __init__(self, agent: 'Agent', journal: Journal, options: Options) -> None:
        self.agent, self.journal, self.options = agent, journal, options
        self.recording: Recording | None = None
        self.opening: dict[str, Any] = {}
        self.is_new = True

    def flow(
        self,
        messages: tuple[Any, ...],
        session: Hashable | None,
        kwargs: dict[str, Any],
        stream_: 'weakref.ref[Any] | None',
    ) -> Flow[AgentMessage]:
        found = yield from blocking_call(find, self.journal, self.options.run_id)
        run_id = self.options.run_id or uuid.uuid4().hex
        if found is None:
            session = resolve_session(session)
            self.opening = {'messages': list(messages), 'session': session, 'kwargs': kwargs}
        else:
            self.is_new = False
            check_redactor(found, self.options.redactor)
            yield from blocking_call(self._read, found, messages, session)
            if not messages:
                asked = (found.opening or {}).get('value')
                yield from blocking_call(
                    warn_redacted, asked, self.journal.blob, found.id, 'what it began with'
                )
            # What is given again has its secrets, which what is recorded has not.
            messages = messages or tuple(self.opening['messages'])
            kwargs = kwargs or self.opening['kwargs']
            session = self.opening['session']
            if found.status == 'done':
                answer: AgentMessage = yield from blocking_call(self._recall, found)
                return answer
            self.recording = yield from blocking_call(take_up, self.journal, self.options, run_id)
        try:
            with run_context(session, run_id=run_id) as context:
                keep = partial(self.keep, context.run_id)
                return (yield from self.agent._turn(messages, session, kwargs, stream_, keep))
        except BaseException as error:
            if self.recording is not None:
                if isinstance(error, GeneratorExit):  # nobody is there to make a call
                    fail(self.recording, error)
                else:
                    yield from blocking_call(fail, self.recording, error)
            raise

    def again(self, run_id: str, stream_: 'weakref.ref[Any] | None') -> Flow[AgentMessage]:
        found = yield from blocking_call(self.journal.run, run_id)
        yield from blocking_call(self._learn, found)
        rerun = yield from blocking_call(Rerun, self.journal, found, self.options.redactor)
        messages, session = tuple(self.opening['messages']), self.opening['session']
        check_redactor(found, self.options.redactor)

        def keep(books: Flow[AgentMessage]) -> Flow[AgentMessage]:
            self._restore(self.opening['state'])
            with rerun.active():
                answer = yield from books
                rerun.check_end()
            return answer

        try:
            with run_context(session, run_id=run_id):
                kwargs = self.opening['kwargs']
                answer = yield from self.agent._turn(messages, session, kwargs, stream_, keep)
        except (JournalError, RunSuspended):
            raise
        except Exception as error:
            rerun.check_failure(error)
            raise
        yield from blocking_call(rerun.check_answer, answer)
        return answer

    def keep(self, run_id: str, books: Flow[AgentMessage]) -> Flow[AgentMessage]:
        """Record what happens while the session is the call's own."""
        if self.is_new:
            self.opening['state'] = self._state()
            self.recording = yield from blocking_call(self._begin, run_id)
        else:
            self._restore(self.opening['state'])
        recording = self.recording
        assert recording is not None, 'a run is recorded from its beginning'
        with recording.active():
            if self.is_new:
                for part in _keepers(self.agent):
                    yield from part._begin_run(self.opening['session'])
            answer = yield from books
            recording.check_end()
        yield from blocking_call(recording.release, 'done', answer, self._state())
        self.recording = None
        return answer

    def _begin(self, run_id: str) -> Recording:
        asked = self.opening['messages']
        last = getattr(asked[-1], 'content', asked[-1]) if asked else '(asked again)'
        return begin(self.journal, self.options, run_id, str(last), self.opening)

    def _read(self, found: Run, messages: tuple[Any, ...], session: Hashable | None) -> None:
        """Read what the run began with, and see that the same is asked now."""
        self._learn(found)
        redactor = self.options.redactor or Redactor()

        def text(opening: dict[str, Any]) -> str:
            asked = {
                'messages': [message_of(each) for each in opening['messages']],
                'session': opening['session'],
            }
            return canonical(Encoder(redactor).encode(asked))

        now = {
            'messages': list(messages) or self.opening['messages'],
            'session': self.opening['session'] if session is None else session,
        }
        if text(now) != text(self.opening):
            lines = differing(pretty(self.opening['messages']), pretty(now['messages']))
            difference = ''.join(f'  {line}\n' for line in lines)
            raise Diverged('0', 'another question or session', 'this one', difference)

    def _learn(self, found: Run) -> None:
        """Read what the run began with."""
        opening = opening_of(self.journal, found)
        if not opening:
            raise JournalError(
                f'Run {found.id!r} was recorded around code of your own, and no call of an agent: '
                'only that code can take its way again.'
            )
        if not isinstance(opening, dict) or not all(
            name in opening and isinstance(opening[name], kind) for name, kind in _PARTS.items()
        ):
            raise damaged(f'it does not say what run {found.id!r} was asked')
        self.opening = opening

    def _recall(self, found: Run) -> AgentMessage:
        """The answer of a run that has ended; an agent that is where it began learns the rest."""
        state = Decoder(self.journal.blob).decode((found.outcome or {}).get('state'))
        known = self._state()
        if state and (not any(known.values()) or self._is_same(known, self.opening['state'])):
            self._restore(state)
        answer: AgentMessage = answer_of(self.journal, found)
        return answer

    def _is_same(self, *states: dict[str, Any]) -> bool:
        encoder = Encoder(self.options.redactor or Redactor())
        said = ({key: saved for key, saved in state.items() if saved} for state in states)
        try:
            return len({canonical(encoder.encode(each)) for each in said}) == 1
        except NotRecordable:  # what the agent knows now is of no run
            return False

    def _state(self) -> dict[str, Any]:
        session = self.opening['session']
        return {
            key: None if (memory := manager.get(session)) is None else memory.save()
            for key, manager in self.agent._memories()
        }

    def _restore(self, state: dict[str, Any]) -> None:
        session = self.opening['session']
        self.agent.load_state_dict(state, session)
        for key, manager in self.agent._memories():
            if state.get(key) is None:
                manager.reset(session)


def _keepers(agent: 'Agent') -> Iterator[Keeper]:
    for _, layer in agent.named_layers():
        for part in vars(layer).values():
            if _is_keeper(part):
                yield part


def _is_keeper(part: Any) -> TypeGuard[Keeper]:
    # What its class says: a proxy or a mock has every attribute that it is asked for.
    return hasattr(type(part), '_begin_run')


def message_of(message: Any) -> AgentMessage:
    """A message; a text is one of the user."""
    if isinstance(message, str):
        return AgentMessage(content=message)
    return message  # type: ignore[no-any-return]
