"""What a run may use, and what it has used."""

import math
import threading
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from lagent.errors import ConfigError, LimitExceeded, RepeatedCall

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
        seconds: wall time, from the start of the call of the agent that has the limits.
        parse_failures: replies in a row, to one question, that no parser could read.
        repeated_calls: identical calls of a tool, or identical code cells, in a row; each session
            and each tool counts for itself.
        on_limit: ``'raise'`` `LimitExceeded`, or ``'return'`` a message of the type ``'limit'``
            as the answer of the agent that has the limits.
        on_repeat: what happens to a call beyond `repeated_calls`: ``'tell'`` doesn't make it and
            tells the model so, and one that doesn't listen is told as many times again, then the
            limit counts; ``'raise'`` treats it like any limit.
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
    on_repeat: OnRepeat = 'tell'
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


NOT_GIVEN = RunLimits()
"""Limits that nobody has asked for: by their identity."""


@dataclass(slots=True)
class RunUsage:
    """What a run has used so far, and what it may use.

    Inside a run that has limits, an agent with limits of its own has a usage of its own: what it
    uses is charged to both, and must be allowed by both.

    Attributes:
        model_calls: calls of a model.
        tool_calls: calls of tools and executions of code.
        prompt_tokens: tokens sent, as far as the models report them.
        completion_tokens: tokens received, as far as the models report them.
        cost: what they cost, as far as their prices are known.
        parse_failures: replies that could not be parsed.
        repeated_calls: how often the last tool call was made in a row.
        limits: what may be used.
        outer: usage of the run around this one, to which everything is charged as well.
        started: `time.monotonic()` when the run began.
    """

    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    parse_failures: int = 0
    repeated_calls: int = 0
    limits: RunLimits = field(default=NOT_GIVEN, repr=False, compare=False)
    outer: 'RunUsage | None' = field(default=None, repr=False)
    started: float = field(default_factory=time.monotonic, repr=False, compare=False)
    # The last call of each caller, as a hash: code may be long, and callers many.
    _last_calls: dict[Hashable, tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens, together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def deadline(self) -> float | None:
        """When the run must end, on `time.monotonic()`; None without a limit of time."""
        ends = [
            usage.started + usage.limits.seconds
            for usage in self.bounded()
            if usage.limits.seconds is not None
        ]
        return min(ends, default=None)

    def charged(self) -> 'list[RunUsage]':
        """This usage and those around it, to which everything is charged.

        Returns:
            The usages, the innermost first.
        """
        usages = [self]
        while (outer := usages[-1].outer) is not None:
            usages.append(outer)
        return usages

    def bounded(self) -> 'list[RunUsage]':
        """Those whose limits count: this one, and the ones around it that were given any.

        Returns:
            The usages, the outermost first.
        """
        if self.outer is None:
            return [self]
        around = [usage for usage in self.outer.charged() if usage.limits is not NOT_GIVEN]
        return [*reversed(around), self]

    def price_of(self, model: str) -> Price | None:
        """What a model costs, as the innermost limits say that know it.

        Args:
            model: its name.

        Returns:
            The price; None if nobody has given one.
        """
        for usage in self.charged():
            if (price := usage.limits.prices.get(model)) is not None:
                return price
        return None

    def check_time(self) -> None:
        """Refuse to go on when the time is over.

        Raises:
            LimitExceeded: a deadline has passed.
        """
        for usage in self.bounded():
            seconds = usage.limits.seconds
            if seconds is not None and (now := time.monotonic()) >= usage.started + seconds:
                raise usage._exceeded('seconds', seconds, now - usage.started)

    def count_model_call(self, model: str) -> None:
        """Charge a model call that is about to be made.

        Args:
            model: the model's name.

        Raises:
            LimitExceeded: the call would pass a limit; it is not charged.
            ConfigError: costs are limited, and nobody knows the model's; it is not charged.
        """
        with _charging:
            for usage in self.bounded():
                limits = usage.limits
                usage._check('model_calls', limits.model_calls, usage.model_calls + 1)
                if limits.tokens is not None and usage.tokens >= limits.tokens:
                    raise usage._exceeded('tokens', limits.tokens, usage.tokens)
                if limits.cost is not None:
                    usage._check_cost(model, limits.cost, self.price_of(model))
            for usage in self.charged():
                usage.model_calls += 1

    def count_tool_call(self, caller: tuple[Hashable, str], request: str) -> None:
        """Charge a tool call or a code execution that is about to be made.

        Args:
            caller: whose calls in a row are compared: the session and the tool's name.
            request: equal for calls that ask for the same thing.

        Raises:
            LimitExceeded: the call would pass a limit; it is not charged.
            RepeatedCall: it is the same call once too often, and the model is to be told.
        """
        fingerprint = hash(request)
        with _charging:
            bounded = self.bounded()
            refused = [usage._check_tool_call(caller, fingerprint) for usage in bounded]
            for usage in bounded:
                usage.repeated_calls = usage._times(caller, fingerprint)
                usage._last_calls[caller] = fingerprint, usage.repeated_calls
            if told := next(filter(None, refused), None):
                raise told
            for usage in self.charged():
                usage.tool_calls += 1

    def count_reply(self, reply: Any, model: str = '') -> None:
        """Add the tokens that a model's reply reports, and what they cost.

        Args:
            reply: the reply; only one with a `usage` says anything.
            model: the model's name, which has a price or not.
        """
        for one in reply if isinstance(reply, list) else [reply]:
            if (reported := getattr(one, 'usage', None)) is None:
                continue
            known = self.price_of(model)
            with _charging:
                for usage in self.charged():
                    usage.prompt_tokens += getattr(reported, 'prompt_tokens', None) or 0
                    usage.completion_tokens += getattr(reported, 'completion_tokens', None) or 0
                    price = usage.limits.prices.get(model, known)
                    usage.cost += 0.0 if price is None else price.of(reported)

    def count_parse_failure(self) -> None:
        """Add a reply that could not be parsed."""
        with _charging:
            for usage in self.charged():
                usage.parse_failures += 1

    def _check_tool_call(
        self, caller: tuple[Hashable, str], fingerprint: int
    ) -> RepeatedCall | None:
        limits = self.limits
        self._check('tool_calls', limits.tool_calls, self.tool_calls + 1)
        allowed, times = limits.repeated_calls, self._times(caller, fingerprint)
        by = f'the same call of {caller[1]!r}'
        if allowed is None or times <= allowed or limits.on_repeat == 'raise':
            self._check('repeated_calls', allowed, times, by)
            return None
        self._check('repeated_calls', 2 * allowed, times, by)
        return RepeatedCall('repeated_calls', allowed, allowed, by)

    def _check_cost(self, model: str, allowed: float, price: Price | None) -> None:
        if price is None:
            raise ConfigError(
                f'RunLimits(cost=...) needs the price of {model!r}, which was not asked. '
                f'Name it: prices={{{model!r}: Price(input=..., output=...)}}.'
            )
        if self.cost >= allowed:
            raise self._exceeded('cost', allowed, self.cost)

    def _times(self, caller: Hashable, fingerprint: int) -> int:
        """How often in a row a call is made, with this time."""
        last, times = self._last_calls.get(caller, (None, 0))
        return times + 1 if fingerprint == last else 1

    def _check(self, name: str, allowed: float | None, wanted: float, by: str = '') -> None:
        if allowed is not None and wanted > allowed:
            raise self._exceeded(name, allowed, wanted - 1, by)

    def _exceeded(self, name: str, allowed: float, used: float, by: str = '') -> LimitExceeded:
        error = LimitExceeded(name, allowed, used, by)
        error.usage = self
        return error
