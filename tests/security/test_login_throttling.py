"""Password guesses do not lock out the owner or block other logins."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.security.support.users import PASSWORD, register
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack

TIMEOUT_S = 60
BURSTS = 44
BURST = 10
ENV = {
    "CHAT_API_TRUSTED_PROXIES": json.dumps(["127.0.0.0/8"]),  # tests set the client address
    "CHAT_AUTH_COOKIE_SECURE": "false",
    "CHAT_LIMITS_ENTRIES": "0.5/s burst 1000",
}
FAST_HASHES = {"CHAT_AUTH_ARGON2_MEMORY_KIB": "8", "chatserver.auth.passwords.ARGON2_PASSES": "1"}
_networks = itertools.count(1)


@pytest.fixture(scope="module")
def fast_api(stack: Stack) -> Iterator[Server]:
    """An API process with fast password hashes and a short login delay."""
    yield (
        api := stack.start_api(
            **ENV, **FAST_HASHES, **{"chatserver.auth.password_queue.LOGIN_DELAY_S": "0.1"}
        )
    )
    api.stop()


@pytest.fixture(scope="module")
def real_api(stack: Stack) -> Iterator[Server]:
    """An API process with the password hashes of production."""
    yield (api := stack.start_api(**ENV))
    api.stop()


@contextlib.asynccontextmanager
async def client_of(api: Server) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client with many connections."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=api.endpoint, timeout=TIMEOUT_S, limits=limits) as client:
        yield client


def new_network() -> str:
    """Return an address in an unused network."""
    number = next(_networks)
    return f"198.18.{number}.1" if number < 256 else f"198.19.{number - 256}.1"


async def log_in(
    client: httpx.AsyncClient, user: str, password: str, address: str, **more: str
) -> httpx.Response:
    """Log in from an address."""
    body = {"user": user, "password": password, **more}
    return await client.post("/v1/auth/login", json=body, headers={"X-Forwarded-For": address})


async def send_guesses(client: httpx.AsyncClient, user: str, address: str, times: int) -> list[int]:
    """Send wrong passwords concurrently; return the statuses."""
    answers = (log_in(client, user, "wrong password", address) for _ in range(times))
    return [answer.status_code for answer in await asyncio.gather(*answers)]


@contextlib.asynccontextmanager
async def continuous_guessing(client: httpx.AsyncClient, user: str) -> AsyncIterator[list[int]]:
    """Guess the password of an account from `BURSTS` networks until the block ends."""
    networks, statuses = [new_network() for _ in range(BURSTS)], list[int]()

    async def attack() -> None:
        while True:
            for network in networks:
                statuses.extend(await send_guesses(client, user, network, BURST))

    for network in networks:
        statuses.extend(await send_guesses(client, user, network, BURST))
    attackers = [asyncio.create_task(attack()) for _ in range(2)]
    try:
        yield statuses
    finally:
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)


async def test_guesses_from_other_networks_do_not_lock_out_the_owner(
    fast_api: Server, new_name: NewName
) -> None:
    """While 44 networks guess, the correct password works on known and new devices."""
    user = new_name("zoe")
    async with client_of(fast_api) as client:
        device = (await register(client, user))["device_token"]
        home = new_network()
        async with continuous_guessing(client, user) as statuses:
            known, new = list[int](), list[int]()
            for _ in range(BURSTS):
                answer = await log_in(client, user, PASSWORD, home, device_token=device)
                known.append(answer.status_code)
                device = answer.json().get("device_token", device)
                new.append((await log_in(client, user, PASSWORD, new_network())).status_code)

    print(  # noqa: T201  # shown by pytest -rP
        f"guesses: { {each: statuses.count(each) for each in set(statuses)} }"
    )
    assert set(statuses) <= {401, 429}
    assert statuses.count(429) > BURSTS
    assert known == [200] * BURSTS
    assert new == [200] * BURSTS


async def test_login_limits_of_known_device_and_its_network_are_separate(
    fast_api: Server, new_name: NewName
) -> None:
    """A network over its limit is refused. A known device in it has a separate limit."""
    user, home = new_name("zoe"), new_network()
    async with client_of(fast_api) as client:
        device = (await register(client, user))["device_token"]

        statuses = await send_guesses(client, user, home, 3 * BURST)
        stranger = await log_in(client, user, PASSWORD, home)
        known = await log_in(client, user, PASSWORD, home, device_token=device)
        wrong = [
            (await log_in(client, user, "wrong one", home, device_token=device)).status_code
            for _ in range(BURST + 1)
        ]

    assert 429 in statuses
    assert (stranger.status_code, stranger.json()["code"]) == (429, "rate_limited")
    assert int(stranger.headers["retry-after"]) > 0
    assert known.status_code == 200
    assert wrong == [401] * BURST + [429]


@pytest.mark.parametrize("is_one_network", [True, False])
async def test_parallel_guesses_do_not_block_the_login_of_another_user(
    real_api: Server, new_name: NewName, *, is_one_network: bool
) -> None:
    """Most of 110 concurrent guesses are refused, and another user can log in meanwhile."""
    user, other = new_name("zoe"), new_name("yan")
    async with client_of(real_api) as client, client_of(real_api) as separate:
        await register(client, other)
        started = time.monotonic()
        assert (await log_in(separate, other, PASSWORD, new_network())).status_code == 200
        baseline_s = time.monotonic() - started
        networks = [new_network() for _ in range(1 if is_one_network else 110)]
        body = {"user": user, "password": "wrong password"}

        started = time.monotonic()
        guesses = [
            asyncio.create_task(log_in(client, **body, address=networks[n % len(networks)]))
            for n in range(110)
        ]

        async def is_refusing() -> bool:
            done = [each for each in guesses if each.done()]
            return any(each.result().status_code == 429 for each in done)

        await eventually(is_refusing, deadline_s=60, what="the first guess is refused")
        before = time.monotonic()
        answer = await log_in(separate, other, PASSWORD, new_network())
        took = time.monotonic() - before
        for each in guesses:
            each.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)

    print(  # noqa: T201  # shown by pytest -rP
        f"another user's login took {took:.3f} s, {baseline_s:.3f} s before the guesses; "
        f"it was sent {before - started:.3f} s after the guesses"
    )
    assert answer.status_code == 200
