"""Queue for password hashing: bounded, and fair to networks and accounts.

::

    enter ──► delayed (`attempt.is_over_budget`) ──► waiting ──► a slot: argon2 in a thread
                 └──────────────────────────────────────┴──────► rejected or cancelled: no hash

Invariants:

- Attempts of known devices (which have logged in to the account before) come first. Apart from
  that, accounts are served round-robin, and so are the sources (networks or devices) within an
  account. Ties are resolved by age, the oldest first.
- At most `SOURCE_MAX` attempts per source and `ACCOUNT_MAX` per account can wait. In total, at most
  `DELAYED_MAX` can wait, and of those that are not delayed, only as many as can probably start
  within `wait_s_max`. Beyond a limit, the lowest-ranked attempt is rejected immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import operator
from collections.abc import AsyncIterator, Callable, Iterable

from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError, Overloaded, RateLimited

LOGIN_WAIT_S_MAX = 2.0  # a login with a longer estimated wait is rejected
LOGIN_DELAY_S = 3.0  # minimum wait for unknown devices while an account exceeds limits.guesses
SOURCE_MAX = 8
ACCOUNT_MAX = 8
DELAYED_MAX = 500
COST_S = 0.1  # assumed seconds per hash, until one has been measured
_WEIGHT = 0.2  # weight of the newest hash in the moving average of seconds per hash


@dataclasses.dataclass(slots=True, eq=False)
class _Waiter:
    attempt: LoginAttempt
    rank: tuple[bool, int, int]
    granted: asyncio.Future[None]
    is_delayed: bool
    # Number of waiting attempts with the same `account` that ranked before this one on arrival.
    position: int = 0

    @property
    def source(self) -> tuple[str, str]:
        """The source of the attempt: `("", network)`, or `(account, device)` of a known device."""
        return (self.attempt.account if self.attempt.is_known else "", self.attempt.source)

    @property
    def account(self) -> tuple[UserId, bool]:
        """The account whose limit applies. Its known devices (`is_known`) have a separate limit."""
        return (self.attempt.account, self.attempt.is_known)

    @property
    def fair_rank(self) -> tuple[bool, int, int]:
        """The rank among the attempts for all accounts, which are served round-robin."""
        is_stranger, tried, number = self.rank
        return (is_stranger, max(tried, self.position), number)


class PasswordQueue:
    """Queue for slots, each for one hash at a time. `now` is a monotonic clock in seconds.

    There are `slots` for all attempts, and `reserved` more for known devices only.
    """

    def __init__(
        self, slots: int, wait_s_max: float, now: Callable[[], float], reserved: int = 0
    ) -> None:
        self._slots = slots
        self._reserved = reserved
        self._free = slots + reserved
        self._wait_s_max = wait_s_max
        self._now = now
        self._cost_s = COST_S
        self._waiting: list[_Waiter] = []
        self._numbers = itertools.count()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @contextlib.asynccontextmanager
    async def acquire_slot(
        self, attempt: LoginAttempt, delay_s: float = 0.0
    ) -> AsyncIterator[None]:
        """Wait at least `delay_s` for a slot, and hold it.

        Guarantees:
            Cancellation: safe; a waiting attempt leaves the queue.

        Raises:
            RateLimited: too many attempts from the source or for the account are waiting.
            Overloaded: too many attempts are waiting in total.
        """
        await self._enter(attempt, delay_s)
        started = self._now()
        try:
            yield
        finally:
            self._cost_s += (self._now() - started - self._cost_s) * _WEIGHT
            self._release()

    async def _enter(self, attempt: LoginAttempt, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(attempt, (False, 0, 0), loop.create_future(), delay_s > 0)
        ahead = sum(other.source == waiter.source for other in self._waiting)
        waiter.rank = (not attempt.is_known, max(attempt.used, ahead), next(self._numbers))
        waiter.position = sum(
            other.account == waiter.account and other.rank < waiter.rank for other in self._waiting
        )
        self._waiting.append(waiter)
        timer = loop.call_later(delay_s, self._end_delay, waiter) if delay_s > 0 else None
        self._enforce_limits(waiter)
        self._start_next()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            granted = waiter.granted
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._release()
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if timer is not None:
                timer.cancel()

    def _end_delay(self, waiter: _Waiter) -> None:
        waiter.is_delayed = False
        self._enforce_limits(waiter)
        self._start_next()

    def _enforce_limits(self, newest: _Waiter) -> None:
        """Reject the lowest-ranked attempt of the source, account or queue that has too many."""
        source = (attempt for attempt in self._waiting if attempt.source == newest.source)
        _refuse_last(
            source, SOURCE_MAX, _make_rate_limited("from this network or device"), self._waiting
        )
        account = (attempt for attempt in self._waiting if attempt.account == newest.account)
        _refuse_last(account, ACCOUNT_MAX, _make_rate_limited("for this account"), self._waiting)
        due = (attempt for attempt in self._waiting if not attempt.is_delayed)
        due_max = max(self._slots, int(self._wait_s_max * self._slots / max(self._cost_s, 1e-3)))
        busy = Overloaded(
            "too many logins are waiting; try again", retry_after_ms=int(self._wait_s_max * 1000)
        )
        _refuse_last(due, due_max, busy, self._waiting, _fair_rank)
        _refuse_last(self._waiting, DELAYED_MAX, busy, self._waiting, _fair_rank)

    def _release(self) -> None:
        self._free += 1
        self._start_next()

    def _start_next(self) -> None:
        while self._free:
            due = [attempt for attempt in self._waiting if not attempt.is_delayed]
            if not due:
                return
            first = min(due, key=_fair_rank)
            if self._free <= self._reserved and not first.attempt.is_known:
                return  # known devices rank first, so none waits for the reserved slots
            self._waiting.remove(first)
            if not first.granted.done():  # a cancelled attempt may still be in the queue
                self._free -= 1
                first.granted.set_result(None)


_Rank = Callable[[_Waiter], tuple[bool, int, int]]
_rank: _Rank = operator.attrgetter("rank")
_fair_rank: _Rank = operator.attrgetter("fair_rank")


def _make_rate_limited(origin: str) -> RateLimited:
    return RateLimited(f"too many logins {origin} are waiting; try again", retry_after_ms=1000)


def _refuse_last(
    group: Iterable[_Waiter],
    most: int,
    error: ChatError,
    waiting: list[_Waiter],
    rank: _Rank = _rank,
) -> None:
    members = list(group)
    if len(members) <= most:
        return
    last = max(members, key=rank)
    waiting.remove(last)
    if not last.granted.done():
        last.granted.set_exception(error)
