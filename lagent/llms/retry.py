"""When a failed model call is made again, and after how long. One place for every provider."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

from lagent.context import current_context
from lagent.llms.completion import Usage
from lagent.llms.errors import EmptyReply, ModelCallFailed, ModelTimeout

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """What one call may spend on trying again.

    Attributes:
        attempts: requests in all, the first one included.
        total: seconds in all, waiting included; the request that runs then is given up.
        base: seconds before the second attempt; doubled for each one after it.
        cap: seconds that a wait of our own choice may have.
        max_retry_after: seconds that a server may ask us to wait. A longer wait is an error at
            once, with the number in it.
        empty_replies: attempts that may be added because a reply was empty: what was asked the
            same way is likely to stay unanswered.
        after_first_token: also start again when a part of the reply was already handed out.
    """

    attempts: int = 2
    total: float = 900.0
    base: float = 0.5
    cap: float = 30.0
    max_retry_after: float = 60.0
    empty_replies: int = 1
    after_first_token: bool = False

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.total <= 0:
            raise ValueError(f'a policy needs an attempt and time to make it, got {self}')

    def wait(
        self, error: ModelCallFailed, attempt: int, elapsed: float, jitter: float
    ) -> float | None:
        """Decide what follows a failed attempt.

        Args:
            error: how it failed.
            attempt: its number, from 1.
            elapsed: seconds since the first attempt began.
            jitter: a random number from 0 to 1, so that many callers don't come back together.

        Returns:
            Seconds to wait before the next attempt, or None to give up.
        """
        if not error.retryable or attempt >= self.attempts:
            return None
        if isinstance(error, EmptyReply) and attempt > self.empty_replies:
            return None
        if error.retry_after is not None and error.retry_after > self.max_retry_after:
            return None
        if error.retry_after:
            wait = error.retry_after + jitter * self.base
        else:
            # The exponent is bounded: what is beyond the cap needs no exact power.
            wait = min(self.cap, self.base * 2.0 ** min(attempt - 1, 30)) * (0.5 + jitter / 2)
        return wait if elapsed + wait < self.total else None


class Attempts:
    """The books of one call: how often it was tried, for how long, at what cost.

    Args:
        policy: what the call may spend.
        sleep: waits for some seconds.
        clock: seconds on a clock that never goes back.
        jitter: a random number from 0 to 1.

    Attributes:
        made: attempts that failed.
        usage: what they cost together, as far as it is known.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.policy = policy
        self.made = 0
        self.usage = Usage(attempts=0)
        self._sleep, self._clock, self._jitter = sleep, clock, jitter
        self._started = clock()
        self._run = current_context()

    @property
    def elapsed(self) -> float:
        """Seconds since the first attempt began."""
        return self._clock() - self._started

    @asynccontextmanager
    async def within_budget(self) -> AsyncIterator[None]:
        """Bound what is awaited inside by the time that is left.

        Raises:
            LimitExceeded: the time of the run that the call belongs to is over.
            ModelTimeout: the time of the policy is over.
        """
        left = self.policy.total - self.elapsed
        if self._run is not None and self._run.deadline is not None:
            left = min(left, self._run.deadline - time.monotonic())
        scope = asyncio.timeout(max(left, 0))
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise  # it is what was awaited that was too slow, and says so itself
            if self._run is not None:
                self._run.check()
            raise ModelTimeout(
                f'No reply within {self.policy.total:g} s. Raise `total` of the retry policy (and '
                '`read_timeout` for a reply that comes in one piece), or ask for fewer tokens.'
            ) from error

    async def again(self, error: ModelCallFailed) -> None:
        """Book a failed attempt, and wait until the next one may be made.

        Args:
            error: how it failed.

        Raises:
            ModelCallFailed: the same error, when no attempt may follow.
        """
        self._book(error)
        wait = self.policy.wait(error, self.made, self.elapsed, self._jitter())
        if wait is None:
            self._raise(error)
        logger.info('attempt %d failed (%s); the next one in %.2f s', self.made, error, wait)
        async with self.within_budget():
            await self._sleep(wait)

    def give_up(self, error: ModelCallFailed) -> NoReturn:
        """Book a failed attempt that no other one may follow.

        Args:
            error: how it failed.

        Raises:
            ModelCallFailed: the same error.
        """
        self._book(error)
        self._raise(error)

    def _book(self, error: ModelCallFailed) -> None:
        self.made += 1
        self.usage += error.usage or Usage()

    def _raise(self, error: ModelCallFailed) -> NoReturn:
        error.attempts, error.usage = self.made, self.usage
        if self.made > 1:
            error.add_note(f'Given up after {self.made} attempts in {self.elapsed:.1f} s.')
        raise error

    def total_usage(self, usage: Usage | None) -> Usage | None:
        """What a reply cost, together with the attempts that failed before it.

        Args:
            usage: what the reply itself cost, where it is known.

        Returns:
            The sum; None when nothing failed and nothing is known.
        """
        return self.usage + (usage or Usage()) if self.made else usage
