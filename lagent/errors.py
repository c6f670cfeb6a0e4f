"""Every error that lagent raises on its own account.

::

    LagentError
    ├── LimitExceeded        a run reached one of its `RunLimits`
    │   └── RepeatedCall     the same call once too often; the model may be told instead
    ├── SessionBusy          another call of the same agent holds the session
    ├── RunCancelled         the run's cancel flag was set
    ├── RunSuspended         the run waits in its journal for somebody's decision
    ├── NotDone              an effect was not done, or nobody knows whether it was
    │   ├── EffectRejected       somebody said no to it
    │   └── OutcomeUnknown       it was begun before a crash, and nothing says how it ended
    ├── JournalError         a run can't be recorded or resumed (see `lagent.journal.errors`)
    ├── RecordedFailure      what an effect once raised, where its class is not there
    ├── ParseFailed          a model's replies could not be parsed, several times in a row
    ├── ModelError           a model call failed (its subclasses live in `lagent.llms.errors`)
    ├── WebError             a request on the web failed (see `lagent.actions.web.errors`)
    ├── ParseError           a tool was called with arguments that are not its own
    ├── NoSuchAgent          a container has no agent of that name (also a `KeyError`)
    ├── Refused              the web page asked for what can't be done now
    ├── ServerFailed         a server that was started here did not come up, or has ended
    ├── ConfigError          a configuration dict names something that cannot be built
    └── ExtraMissing         an optional library is not installed (also an `ImportError`)

A tool that fails, or code that raises in a sandbox, is a result and not one of these. Each
message says what happened, what was kept and what to do next.
"""

from typing import Any, ClassVar


class LagentError(Exception):
    """Base class of lagent's errors.

    Attributes:
        code: stable identifier of the kind of error, for logs and programs.
        retryable: whether the same call may succeed when it is made again.
        results: the message with what had been done of the request that the error broke off, such
            as the other tool calls of a reply; None if nothing had. It is not pickled.
    """

    code: ClassVar[str] = 'lagent_error'
    retryable: bool = False
    results: Any = None


class LimitExceeded(LagentError):
    """A run reached a limit and was stopped before the effect that would have passed it.

    Attributes:
        limit: name of the field of `RunLimits`.
        allowed: what the limit allows.
        used: what the run has used.
        by: what has used it, in a few words; ``''`` where that is the run as a whole.
        usage: the `RunUsage` that the limit bounds; None for a limit of an agent's own, such as
            `max_turn`. It is not pickled.
    """

    code = 'limit_exceeded'
    usage: Any = None

    def __init__(self, limit: str, allowed: float, used: float, by: str = '') -> None:
        super().__init__(
            f'The run reached its limit {limit}={allowed:g} (used: {used:g}{by and f", by {by}"}). '
            'Memory holds everything up to this point; raise the limit to go on.'
        )
        self.limit, self.allowed, self.used, self.by = limit, allowed, used, by

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.limit, self.allowed, self.used, self.by)


class RepeatedCall(LimitExceeded):
    """The same tool call, or the same code, was asked for too many times in a row.

    Raised in place of the call, unless the limits say ``on_repeat='raise'``. Executors and coders
    give its words to the model and go on.
    """

    code = 'repeated_call'

    def __init__(self, limit: str, allowed: float, used: float, by: str = '') -> None:
        super().__init__(limit, allowed, used, by)
        words = (
            f'Not run: this is {by or "the same call"} as the last {used:g}, which were run one '
            'after the other. Its result will not change. Do something else, or answer with what '
            'you know.'
        )
        self.args = (words,)


class SessionBusy(LagentError):
    """A session is in use by another call of the same agent."""

    code = 'session_busy'
    retryable = True


class RunCancelled(LagentError):
    """The run was cancelled between two effects."""

    code = 'run_cancelled'


class RunSuspended(LagentError):
    """A run waits for a decision, and its journal holds everything up to here.

    Attributes:
        run_id: the run.
        position: the effect that is waited for.
        request: what is to be decided, in a few words.
    """

    code = 'run_suspended'

    def __init__(self, run_id: str, position: str, request: str) -> None:
        super().__init__(
            f'Run {run_id!r} waits for a decision on effect {position}, which was not done: '
            f'{request}. Approve, reject or edit it (`lagent runs approve`, or the functions of '
            'the same names in `lagent.journal`), then resume the run.'
        )
        self.run_id, self.position, self.request = run_id, position, request

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_id, self.position, self.request)


class NotDone(LagentError):
    """An effect was not done, or nobody knows whether it was; the words are for the model.

    Executors, interpreters and loops with tools give them to the model and go on.
    """

    code = 'not_done'


class EffectRejected(NotDone):
    """Somebody decided that an effect must not be done."""

    code = 'effect_rejected'


class OutcomeUnknown(NotDone):
    """An effect was begun before a crash, and nothing says whether or how it ended."""

    code = 'outcome_unknown'


class JournalError(LagentError):
    """A run can't be recorded, or can't be resumed from what was recorded."""

    code = 'journal_error'


class ParseFailed(LagentError):
    """A model's replies could not be parsed several times in a row.

    Attributes:
        attempts: number of replies in a row that failed.
        reply: the last reply, unchanged.
    """

    code = 'parse_failed'

    def __init__(self, attempts: int, reason: str, reply: str) -> None:
        hint = 'check that the prompt shows the format the parser wants'
        if reason in ('incomplete', 'unclosed_reasoning'):
            hint = 'the last one ended too early: raise max_new_tokens, or ask for less reasoning'
        replies = '1 reply' if attempts == 1 else f'{attempts} replies in a row'
        super().__init__(
            f'{replies} could not be parsed (last reason: {reason}). What was said is in memory; '
            f'{hint}.'
        )
        self.attempts, self.reason, self.reply = attempts, reason, reply

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.attempts, self.reason, self.reply)


class ModelError(LagentError):
    """A model could not answer."""

    code = 'model_error'


class ServerFailed(LagentError):
    """A server of a model or of an agent did not come up, has ended, or is something else."""

    code = 'server_failed'


class ConfigError(LagentError, ValueError):
    """A configuration names something that cannot be built."""

    code = 'config_error'


class ExtraMissing(LagentError, ImportError):
    """An optional library is not installed."""

    code = 'extra_missing'

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"This needs the optional library '{module}', which is not installed. "
            f"Install it with: pip install 'lagent-sandbox[{extra}]'"
        )
        self.module, self.extra = module, extra

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.module, self.extra)


CONTROL_ERRORS = (LimitExceeded, RunCancelled, RunSuspended, JournalError)
"""Errors that end a run, wherever they are raised: never the result of a tool call."""
