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
    """A login attempt."""
    return LoginAttempt(UserId(account), source, known, used)


class World:
    """A queue with one slot that a test holds, and the attempts that wait behind it."""

    def __init__(self, wait_s_max: float = 1000.0, reserved: int = 0) -> None:
        self.queue = PasswordQueue(1, wait_s_max, lambda: 0.0, reserved)
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def enter(self, name: str, one: LoginAttempt, delay_s: float = 0.0) -> None:
        """Let an attempt enter the queue."""

        async def work() -> None:
            async with self.queue.slot(one, delay_s):
                self.order.append(name)

        self.tasks[name] = asyncio.create_task(work())
        await asyncio.sleep(0)

    async def failed(self, name: str) -> ChatError | None:
        """Return why an attempt was refused; None: it waits."""
        await asyncio.sleep(0)
        task = self.tasks[name]
        error = task.exception() if task.done() else None
        assert error is None or isinstance(error, ChatError)
        return error

    async def drain(self) -> list[str]:
        """Wait for all attempts; return the names in the order in which they had the slot."""
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return self.order


async def test_reserved_slot_is_for_known_devices_only() -> None:
    """Strangers' hashes hold all other slots: a known device does not wait for one to end."""
    world = World(reserved=1)
    async with world.queue.slot(attempt("x", "x")):
        await world.enter("stranger", attempt("yan", "net"))
        await world.enter("owner", attempt("zoe", "device", known=True))
        await asyncio.sleep(0)
        assert world.order == ["owner"]

    assert await world.drain() == ["owner", "stranger"]


async def test_order_is_known_devices_then_fewest_tries_then_first_come() -> None:
    """A burst of guesses delays neither known devices nor first attempts."""
    world = World()
    async with world.queue.slot(attempt("x", "x")):
        for n in range(3):
            await world.enter(f"guess{n}", attempt("zoe", "net", used=n))
        await world.enter("other", attempt("yan", "net2"))
        await world.enter("known", attempt("zoe", "device", known=True, used=9))

    assert await world.drain() == ["known", "guess0", "other", "guess1", "guess2"]


async def test_attempts_of_one_source_rank_behind_those_of_others() -> None:
    """One network that tries many accounts at once gets every second place at most."""
    world = World()
    async with world.queue.slot(attempt("x", "x")):
        for n in range(SOURCE_MAX):
            await world.enter(f"many{n}", attempt(f"u{n}", "net"))
        await world.enter("one", attempt("yan", "net2"))

    assert (await world.drain()).index("one") == 1


async def test_attempts_at_one_account_rank_behind_those_at_others() -> None:
    """Guesses from many networks at one account get every second place at most."""
    world = World(wait_s_max=0.35)  # three at the first estimate of 0.1 s
    async with world.queue.slot(attempt("x", "x")):
        for n in range(3):
            await world.enter(f"many{n}", attempt("zoe", f"net{n}"))
        await world.enter("one", attempt("yan", "net9"))
        assert isinstance(await world.failed("many2"), Overloaded)

    assert await world.drain() == ["many0", "one", "many1"]


@pytest.mark.parametrize(
    ("most", "make"),
    [
        (SOURCE_MAX, lambda n: attempt(f"u{n}", "net")),
        (ACCOUNT_MAX, lambda n: attempt("zoe", f"net{n}")),
    ],
)
async def test_attempts_beyond_a_bound_are_refused_at_once(
    most: int, make: Callable[[int], LoginAttempt]
) -> None:
    """Waiting attempts are bounded by source and by account; refusals carry a retry time."""
    world = World()
    async with world.queue.slot(attempt("x", "x")):
        for n in range(most + 1):
            await world.enter(str(n), make(n))

        refused = await world.failed(str(most))
        assert isinstance(refused, RateLimited)
        assert refused.retry_after_ms
        assert world.queue.waiting_count == most
        assert await world.failed("0") is None


async def test_first_try_displaces_one_of_a_source_that_guesses_at_the_account() -> None:
    """A full account has room for somebody who has not tried yet, and for its known devices."""
    world = World()
    async with world.queue.slot(attempt("x", "x")):
        for n in range(ACCOUNT_MAX):
            await world.enter(str(n), attempt("zoe", f"net{n}", used=1 + n))
        await world.enter("owner", attempt("zoe", "fresh"))
        await world.enter("known", attempt("zoe", "device", known=True))

        assert isinstance(await world.failed(str(ACCOUNT_MAX - 1)), RateLimited)
        assert await world.failed("owner") is None

    assert (await world.drain())[:2] == ["known", "owner"]


async def test_estimated_wait_bounds_the_queue_and_known_devices_still_enter() -> None:
    """Beyond the longest wait strangers are refused; a known device takes the last one's place."""
    world = World(wait_s_max=0.5)  # five at the first estimate of 0.1 s
    async with world.queue.slot(attempt("x", "x")):
        for n in range(6):
            await world.enter(str(n), attempt(f"u{n}", f"net{n}"))
        assert isinstance(await world.failed("5"), Overloaded)
        await world.enter("known", attempt("zoe", "device", known=True))

        assert isinstance(await world.failed("4"), Overloaded)

    assert (await world.drain())[0] == "known"


async def test_cancelled_attempt_leaves_the_queue_and_keeps_no_slot() -> None:
    """A canceled attempt costs nothing, whether it waits or has just received a slot."""
    world = World()
    async with world.queue.slot(attempt("x", "x")):
        for name in ("gone", "given", "next"):
            await world.enter(name, attempt(name, name))
        world.tasks["gone"].cancel()
        await asyncio.wait([world.tasks["gone"]])
        assert world.queue.waiting_count == 2
    world.tasks["given"].cancel()  # the slot is its own by now, and it has not run yet

    assert await world.drain() == ["next"]
    async with world.queue.slot(attempt("x", "x")):
        pass


async def test_delayed_attempt_waits_and_does_not_hold_up_others() -> None:
    """An attempt at an account past its budget is checked later; a free slot serves others."""
    world = World()
    await world.enter("delayed", attempt("zoe", "net"), delay_s=0.02)
    await world.enter("other", attempt("yan", "net2"))
    await world.enter("forever", attempt("xia", "net3"), delay_s=3600)

    assert world.order == ["other"]
    await asyncio.wait([world.tasks["delayed"]])
    assert world.order == ["other", "delayed"]
    world.tasks["forever"].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await world.tasks["forever"]
    assert world.queue.waiting_count == 0
