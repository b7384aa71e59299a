"""Tests of chatserver.auth.password_queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from chatserver.auth.password_queue import ACCOUNT_MAX, SOURCE_MAX, PasswordQueue
from chatserver.domain.access.login_attempt import LoginAttempt
from chatserver.domain.ids import UserId
from chatserver.errors import ChatError, Overloaded, RateLimited


def attempt(account: str, source: str, *, known: bool = False, used: int = 0) -> LoginAttempt:
    """Return a login attempt."""
    return LoginAttempt(UserId(account), source, known, used)


class QueueScenario:
    """A queue with one slot that a test occupies, and the attempts that wait for it."""

    def __init__(self, wait_s_max: float = 1000.0, reserved: int = 0) -> None:
        self.queue = PasswordQueue(1, wait_s_max, lambda: 0.0, reserved)
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def enter(self, name: str, one: LoginAttempt, delay_s: float = 0.0) -> None:
        """Start an attempt that enters the queue."""

        async def work() -> None:
            async with self.queue.acquire_slot(one, delay_s):
                self.order.append(name)

        self.tasks[name] = asyncio.create_task(work())
        await asyncio.sleep(0)

    async def find_error(self, name: str) -> ChatError | None:
        """Return the error with which an attempt was refused; None if it still waits."""
        await asyncio.sleep(0)
        task = self.tasks[name]
        error = task.exception() if task.done() else None
        assert error is None or isinstance(error, ChatError)
        return error

    async def drain(self) -> list[str]:
        """Wait for all attempts; return their names in the order in which they got the slot."""
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return self.order


async def test_reserved_slot_is_for_known_devices_only() -> None:
    """A known device does not wait while unknown devices hold all other slots."""
    scenario = QueueScenario(reserved=1)
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        await scenario.enter("unknown", attempt("yan", "net"))
        await scenario.enter("owner", attempt("zoe", "device", known=True))
        await asyncio.sleep(0)
        assert scenario.order == ["owner"]

    assert await scenario.drain() == ["owner", "unknown"]


async def test_order_is_known_device_then_fewest_attempts_then_arrival() -> None:
    """A burst of guesses delays neither known devices nor first attempts."""
    scenario = QueueScenario()
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for n in range(3):
            await scenario.enter(f"guess{n}", attempt("zoe", "net", used=n))
        await scenario.enter("other", attempt("yan", "net2"))
        await scenario.enter("known", attempt("zoe", "device", known=True, used=9))

    assert await scenario.drain() == ["known", "guess0", "other", "guess1", "guess2"]


async def test_attempts_of_one_source_alternate_with_other_sources() -> None:
    """A network that tries many accounts at once gets at most every second slot."""
    scenario = QueueScenario()
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for n in range(SOURCE_MAX):
            await scenario.enter(f"many{n}", attempt(f"u{n}", "net"))
        await scenario.enter("one", attempt("yan", "net2"))

    assert (await scenario.drain()).index("one") == 1


async def test_attempts_at_one_account_alternate_with_other_accounts() -> None:
    """Guesses from many networks at one account get at most every second slot."""
    scenario = QueueScenario(wait_s_max=0.35)  # three attempts at the initial estimate of 0.1 s
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for n in range(3):
            await scenario.enter(f"many{n}", attempt("zoe", f"net{n}"))
        await scenario.enter("one", attempt("yan", "net9"))
        assert isinstance(await scenario.find_error("many2"), Overloaded)

    assert await scenario.drain() == ["many0", "one", "many1"]


@pytest.mark.parametrize(
    ("limit", "make_attempt"),
    [
        (SOURCE_MAX, lambda n: attempt(f"u{n}", "net")),
        (ACCOUNT_MAX, lambda n: attempt("zoe", f"net{n}")),
    ],
)
async def test_attempts_beyond_a_limit_are_refused_at_once(
    limit: int, make_attempt: Callable[[int], LoginAttempt]
) -> None:
    """Waiting attempts are limited by source and by account; the error has a retry time."""
    scenario = QueueScenario()
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for n in range(limit + 1):
            await scenario.enter(str(n), make_attempt(n))

        refused = await scenario.find_error(str(limit))
        assert isinstance(refused, RateLimited)
        assert refused.retry_after_ms
        assert scenario.queue.waiting_count == limit
        assert await scenario.find_error("0") is None


async def test_first_attempt_displaces_a_repeated_guess_at_the_account() -> None:
    """A full account still accepts a source's first attempt, and its known devices."""
    scenario = QueueScenario()
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for n in range(ACCOUNT_MAX):
            await scenario.enter(str(n), attempt("zoe", f"net{n}", used=1 + n))
        await scenario.enter("owner", attempt("zoe", "fresh"))
        await scenario.enter("known", attempt("zoe", "device", known=True))

        assert isinstance(await scenario.find_error(str(ACCOUNT_MAX - 1)), RateLimited)
        assert await scenario.find_error("owner") is None

    assert (await scenario.drain())[:2] == ["known", "owner"]


async def test_queue_is_bounded_by_estimated_wait_except_for_known_devices() -> None:
    """Above the maximum wait, unknown devices are refused; a known device displaces the last."""
    scenario = QueueScenario(wait_s_max=0.5)  # five attempts at the initial estimate of 0.1 s
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for n in range(6):
            await scenario.enter(str(n), attempt(f"u{n}", f"net{n}"))
        assert isinstance(await scenario.find_error("5"), Overloaded)
        await scenario.enter("known", attempt("zoe", "device", known=True))

        assert isinstance(await scenario.find_error("4"), Overloaded)

    assert (await scenario.drain())[0] == "known"


async def test_canceled_attempt_leaves_the_queue_and_releases_its_slot() -> None:
    """An attempt can be canceled while it waits or when it has just received a slot."""
    scenario = QueueScenario()
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        for name in ("waiting", "granted", "next"):
            await scenario.enter(name, attempt(name, name))
        scenario.tasks["waiting"].cancel()
        await asyncio.wait([scenario.tasks["waiting"]])
        assert scenario.queue.waiting_count == 2
    scenario.tasks["granted"].cancel()  # it has the slot, but has not run yet

    assert await scenario.drain() == ["next"]
    async with scenario.queue.acquire_slot(attempt("x", "x")):
        pass


async def test_delayed_attempt_does_not_delay_others() -> None:
    """An attempt at an account above its limit is checked later; a free slot serves others."""
    scenario = QueueScenario()
    await scenario.enter("delayed", attempt("zoe", "net"), delay_s=0.02)
    await scenario.enter("other", attempt("yan", "net2"))
    await scenario.enter("forever", attempt("xia", "net3"), delay_s=3600)

    assert scenario.order == ["other"]
    await asyncio.wait([scenario.tasks["delayed"]])
    assert scenario.order == ["other", "delayed"]
    scenario.tasks["forever"].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await scenario.tasks["forever"]
    assert scenario.queue.waiting_count == 0
