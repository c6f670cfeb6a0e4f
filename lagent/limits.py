"""What a run may use, and what it has used."""

import math
import threading
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from lagent.errors import LimitExceeded, RepeatedCall

OnLimit = Literal['raise', 'return']
OnRepeat = Literal['raise', 'tell']
OnBusy = Literal['wait', 'raise']

# Tools of one message run at the same time, and are charged to the same usage.
_charging = threading.Lock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a million tokens of a model cost, in whatever currency you reckon.

    Attributes:
        input: tokens of prompts.
        output: tokens of replies.
        cached: tokens of prompts that the provider had cached; as much as `input` by default.
    """

    input: float
    output: float
    cached: float | None = None

    def of(self, usage: Any) -> float:
        """What a call cost.

        Args:
            usage: what the model's reply says that it used.

        Returns:
            The cost; failed requests that a provider may charge for are not in it.
        """
        prompt, written, cached = (
            getattr(usage, name, None) or 0
            for name in ('prompt_tokens', 'completion_tokens', 'cached_tokens')
        )
        of_cached = self.input if self.cached is None else self.cached
        cost = (prompt - cached) * self.input + cached * of_cached + written * self.output
        return float(cost / 1e6)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """Upper bounds of one run, where `None` means no bound, and what happens at them.

    Attributes:
        model_calls: calls of a model.
        tool_calls: calls of tools and executions of code, together.
        tokens: prompt and completion tokens, together, as far as the models report them.
        cost: what model calls may cost together, in the currency of `prices`, as far as the models
            report their tokens. A model that has no price there is not asked.
        prices: of models, by the name that events and traces give them.
        seconds: wall time, from the start of the outermost agent's call.
        parse_failures: replies in a row, to one question, that no parser could read.
        repeated_calls: identical calls of a tool, or identical code cells, in a row; each session
            and each tool counts for itself.
        on_limit: ``'raise'`` `LimitExceeded`, or ``'return'`` a message of the type ``'limit'``
            as the outermost agent's answer.
        on_repeat: what happens to a call beyond `repeated_calls`: ``'raise'`` treats it like any
            limit; ``'tell'`` doesn't make it and tells the model so. One that doesn't listen is
            told as many times again, then the limit counts.
        on_busy: what a call does whose session is in use by another one: ``'wait'`` for its turn,
            in order, as long as `seconds` allow; or ``'raise'`` `SessionBusy`.
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict, hash=False)
    seconds: float | None = None
    parse_failures: int | None = 5
    repeated_calls: int | None = 5
    on_limit: OnLimit = 'raise'
    on_repeat: OnRepeat = 'raise'
    on_busy: OnBusy = 'wait'

    def __post_init__(self) -> None:
        policies = {'on_limit': OnLimit, 'on_repeat': OnRepeat, 'on_busy': OnBusy}
        for each in fields(self):
            name = each.name
            value = getattr(self, name)
            if name in policies:
                allowed = get_args(policies[name])
                if value not in allowed:
                    raise ValueError(f'RunLimits.{name} is one of {allowed}, not {value!r}')
            elif (
                name != 'prices' and value is not None and not (value > 0 and math.isfinite(value))
            ):
                raise ValueError(f'RunLimits.{name} must be positive and finite, got {value!r}')


@dataclass(slots=True)
class RunUsage:
    """What a run has used so far.

    Attributes:
        model_calls: calls of a model.
        tool_calls: calls of tools and executions of code.
        prompt_tokens: tokens sent, as far as the models report them.
        completion_tokens: tokens received, as far as the models report them.
        cost: what they cost, as far as their prices are known.
        parse_failures: replies that could not be parsed.
        repeated_calls: how often the last tool call was made in a row.
        outer: usage of the run around this one, to which everything is charged as well.
    """

    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    parse_failures: int = 0
    repeated_calls: int = 0
    outer: 'RunUsage | None' = field(default=None, repr=False)
    # The last call of each caller, as a hash: code may be long, and callers many.
    _last_calls: dict[Hashable, tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens, together."""
        return self.prompt_tokens + self.completion_tokens

    def count_model_call(self, limits: RunLimits) -> None:
        """Charge a model call that is about to be made.

        Args:
            limits: the run's limits.

        Raises:
            LimitExceeded: the call would pass a limit; it is not charged.
        """
        with _charging:
            _check('model_calls', limits.model_calls, self.model_calls + 1)
            if limits.tokens is not None and self.tokens >= limits.tokens:
                raise LimitExceeded('tokens', limits.tokens, self.tokens)
            if limits.cost is not None and self.cost >= limits.cost:
                raise LimitExceeded('cost', limits.cost, self.cost)
            for usage in self._charged():
                usage.model_calls += 1

    def count_tool_call(self, limits: RunLimits, caller: Hashable, request: str) -> None:
        """Charge a tool call or a code execution that is about to be made.

        Args:
            limits: the run's limits.
            caller: whose calls in a row are compared: the session and the tool's name.
            request: equal for calls that ask for the same thing.

        Raises:
            LimitExceeded: the call would pass a limit; it is not charged.
            RepeatedCall: it is the same call once too often, and the model is to be told.
        """
        fingerprint = hash(request)
        with _charging:
            _check('tool_calls', limits.tool_calls, self.tool_calls + 1)
            last, times = self._last_calls.get(caller, (None, 0))
            repeated = times + 1 if fingerprint == last else 1
            allowed = limits.repeated_calls
            if allowed is not None and limits.on_repeat == 'tell' and repeated > allowed:
                _check('repeated_calls', 2 * allowed, repeated)
                self._repeat(caller, fingerprint, repeated)
                raise RepeatedCall('repeated_calls', allowed, allowed)
            _check('repeated_calls', allowed, repeated)
            self._repeat(caller, fingerprint, repeated)
            for usage in self._charged():
                usage.tool_calls += 1

    def count_reply(self, reply: Any, price: Price | None = None) -> None:
        """Add the tokens that a model's reply reports.

        Args:
            reply: the reply; only one with a `usage` says anything.
            price: the model's, where it is known.
        """
        with _charging:
            for one in reply if isinstance(reply, list) else [reply]:
                if (reported := getattr(one, 'usage', None)) is None:
                    continue
                for usage in self._charged():
                    usage.prompt_tokens += getattr(reported, 'prompt_tokens', None) or 0
                    usage.completion_tokens += getattr(reported, 'completion_tokens', None) or 0
                    usage.cost += 0.0 if price is None else price.of(reported)

    def count_parse_failure(self) -> None:
        """Add a reply that could not be parsed."""
        with _charging:
            for usage in self._charged():
                usage.parse_failures += 1

    def _repeat(self, caller: Hashable, fingerprint: int, times: int) -> None:
        self.repeated_calls, self._last_calls[caller] = times, (fingerprint, times)

    def _charged(self) -> 'Iterator[RunUsage]':
        usage: RunUsage | None = self
        while usage is not None:
            yield usage
            usage = usage.outer


def _check(name: str, allowed: float | None, wanted: float) -> None:
    if allowed is not None and wanted > allowed:
        raise LimitExceeded(name, allowed, wanted - 1)
