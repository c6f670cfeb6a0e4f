"""Limits of a provider that all sessions of a process share: requests, tokens, and at one time."""

import asyncio
import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from lagent.llms.completion import Usage
from lagent.llms.errors import RateLimited
from lagent.utils.counts import many
from lagent.utils.reprs import repr_of
from lagent.view.tokens import estimate_tokens

_WINDOW = 60.0  # seconds
_IMAGE_TOKENS = 1000
_REPLY_TOKENS = 512  # of a reply that may have any number


@dataclass(eq=False, slots=True)
class Ticket:
    """What one request has taken from the limits.

    Attributes:
        tokens: tokens that are counted for it, an estimate until `settle` is called.
    """

    tokens: int
    at: float = 0.0

    def settle(self, usage: Usage | None) -> None:
        """Count what the request really cost.

        Args:
            usage: the cost; where it is not known the estimate stays.
        """
        if usage is not None:
            self.tokens = usage.total_tokens


@dataclass(eq=False, slots=True)
class _Waiter:
    ticket: Ticket
    key: str | None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    turn: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed, and nobody waits
            self.loop.call_soon_threadsafe(self.turn.set)


class RateLimits:
    """What may be asked of a provider. Pass one object to all the models that share the limits.

    Where a provider asks one request to wait (``Retry-After``), all that use the same key wait.
    In no span of 60 seconds are more requests begun, or more tokens counted, than a minute allows.
    Who came first goes first, whichever model, thread or event loop it comes from. Before a
    request its tokens are estimated (its text, and all of `max_new_tokens`); once the reply says
    what it cost, that is counted. A copy of a model keeps to the same limits together with it; in
    another process (pickled) they are counted anew.

    Args:
        requests_per_minute: requests that may begin in a minute; None for any number.
        tokens_per_minute: tokens in a minute, those of prompts and of replies together.
        concurrency: requests that may run at the same time.
        max_wait: seconds that a request may wait for its turn.
        clock: seconds on a clock that never goes back.
        sleep: waits for some seconds.

    Raises:
        ValueError: a limit is not positive.
    """

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrency: int | None = None,
        *,
        max_wait: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        limits = {
            'requests_per_minute': requests_per_minute,
            'tokens_per_minute': tokens_per_minute,
            'concurrency': concurrency,
            'max_wait': max_wait,
        }
        for name, limit in limits.items():
            if limit is not None and limit <= 0:
                raise ValueError(f'{name} must be positive, got {limit}')
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.concurrency = concurrency
        self.max_wait = max_wait
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()  # the sessions may live in several threads
        self._queue: deque[_Waiter] = deque()
        self._begun: deque[Ticket] = deque()
        self._held: dict[str | None, float] = {}  # the time from which on a key may be used
        self._running = 0

    def __repr__(self) -> str:
        return repr_of(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copy would be another set of limits

    def __reduce__(self) -> tuple[Any, ...]:
        # What has begun in this process, nobody counts in another one.
        numbers = (self.requests_per_minute, self.tokens_per_minute, self.concurrency)
        times: dict[str, Any] = {
            'max_wait': self.max_wait,
            'clock': self._clock,
            'sleep': self._sleep,
        }
        return partial(type(self), **times), numbers

    def hold(self, seconds: float, key: str | None = None) -> None:
        """Let nothing begin for a while, because the provider said so to one request.

        Args:
            seconds: for how long.
            key: the API key that it was said to; the others go on.
        """
        with self._lock:
            self._held[key] = max(self._held.get(key, 0), self._clock() + seconds)
            # Whose turn it is may have changed, and who is held back waits for the time instead.
            for waiter in self._queue:
                waiter.wake()

    def held(self, key: str | None = None) -> float:
        """For how long a key is held back.

        Args:
            key: the API key.

        Returns:
            Seconds; 0 for a key that may be used.
        """
        return max(0.0, self._held.get(key, 0) - self._clock())

    @asynccontextmanager
    async def slot(self, tokens: int = 0, key: str | None = None) -> AsyncIterator[Ticket]:
        """Wait until a request may begin, and hold its place while it runs.

        Args:
            tokens: the estimate of its tokens, see `estimate_request`.
            key: the API key that it uses.

        Yields:
            The request's ticket.

        Raises:
            RateLimited: it has waited for `max_wait` seconds, or would have to wait for longer.
        """
        waiter = _Waiter(Ticket(tokens), key)
        with self._lock:
            self._queue.append(waiter)
        try:
            await self._turn(waiter)
        finally:
            self._leave(waiter)
        try:
            yield waiter.ticket
        finally:
            with self._lock:
                self._running -= 1
            self._wake_first()

    async def _turn(self, waiter: _Waiter) -> None:
        deadline = self._clock() + self.max_wait
        while True:
            waiter.turn.clear()
            with self._lock:
                wait = self._wait(waiter)
                if wait == 0:
                    return
                running = self._running
            left = deadline - self._clock()
            # One that runs may cost less than was estimated.
            may_shorten = running and self.tokens_per_minute and not self.held(waiter.key)
            if left <= 0 or (wait is not None and wait > left and not may_shorten):
                self._refuse(waiter.ticket)
            await self._pause(waiter, left if wait is None else min(wait, left))

    async def _pause(self, waiter: _Waiter, seconds: float) -> None:
        """Wait for some seconds, or until it may be the waiter's turn."""
        ends = [asyncio.ensure_future(end) for end in (self._sleep(seconds), waiter.turn.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def _wait(self, waiter: _Waiter) -> float | None:
        """Take a place if there is one, else say how long to wait: None until somebody leaves."""
        if held := self.held(waiter.key):
            return held
        if self._first() is not waiter or self._running >= (self.concurrency or math.inf):
            return None
        now = self._clock()
        while self._begun and self._begun[0].at <= now - _WINDOW:
            self._begun.popleft()
        free_at = max(self._requests_free_at(now), self._tokens_free_at(now, waiter.ticket.tokens))
        if free_at > now:
            return free_at - now
        self._queue.remove(waiter)
        self._running += 1
        waiter.ticket.at = now
        if self.requests_per_minute or self.tokens_per_minute:
            self._begun.append(waiter.ticket)
        return 0

    def _requests_free_at(self, now: float) -> float:
        limit = self.requests_per_minute
        return self._begun[-limit].at + _WINDOW if limit and len(self._begun) >= limit else now

    def _tokens_free_at(self, now: float, tokens: int) -> float:
        if not self.tokens_per_minute:
            return now
        # What is more than a whole minute's tokens goes when nothing else has taken any.
        excess = sum(ticket.tokens for ticket in self._begun) + tokens - self.tokens_per_minute
        free_at = now
        for ticket in self._begun:
            if excess <= 0:
                break
            excess -= ticket.tokens
            free_at = ticket.at + _WINDOW
        return free_at

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._queue:
                self._queue.remove(waiter)
        self._wake_first()

    def _first(self) -> _Waiter | None:
        """Whose turn it is; who is held back lets others pass."""
        return next((waiter for waiter in self._queue if not self.held(waiter.key)), None)

    def _wake_first(self) -> None:
        with self._lock:
            first = self._first()
        if first is not None:
            first.wake()

    def _refuse(self, ticket: Ticket) -> None:
        with self._lock:
            ahead, running = len(self._queue) - 1, self._running
        raise RateLimited(
            f'A request of about {many(ticket.tokens, "token")} did not get its turn within '
            f'{self.max_wait:g} s under {self} ({running} running, {ahead} others waiting). '
            'Ask for fewer tokens, or raise the limits or their max_wait.'
        )


def estimate_request(messages: Any, max_new_tokens: int | None) -> int:
    """Guess what a request will cost, from its texts and from what the reply may have.

    Args:
        messages: the messages, or a text.
        max_new_tokens: tokens that the reply may have; None for any number.

    Returns:
        A number of tokens.
    """
    tokens = 0
    rest = [messages]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            tokens += estimate_tokens(item)
        elif isinstance(item, list | tuple):
            rest += item
        elif isinstance(item, dict) and item.get('type') in ('image', 'image_url'):
            tokens += _IMAGE_TOKENS  # however long its encoding is
        elif isinstance(item, dict):
            rest += item.values()
    return tokens + (_REPLY_TOKENS if max_new_tokens is None else max_new_tokens)
