"""Statistics for admins, from the processes that report them to the API's responses."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.integration.api.support import problem_of
from tests.security.support.users import bearer, make_key
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack
from tests.support.wire import RawSocket

pytest_plugins = ["tests.support.stack_fixtures"]

ADMIN = f"root-{secrets.token_hex(3)}"
DEADLINE_S = 100.0
BODY = "\U0001f600" * 4000  # 16 KB
QUEUE_BYTES_MAX = 65_536
MESSAGES = 48  # twice what a queue and the kernel's buffers hold


@pytest.fixture(scope="module")
def admin_api(stack: Stack) -> Server:
    """An API process that has an admin."""
    return stack.start_api(
        CHAT_AUTH_ADMINS=f'["{ADMIN}"]',
        CHAT_AUTH_ARGON2_MEMORY_KIB="8",
        CHAT_LIMITS_ENTRIES="0.5/s burst 1000",
    )


@pytest.fixture
async def admin(stack: Stack, admin_api: Server) -> AsyncIterator[httpx.AsyncClient]:
    """The admin's client."""
    async with httpx.AsyncClient(
        base_url=admin_api.endpoint, headers=bearer(stack.token(ADMIN)), timeout=20
    ) as client:
        yield client


async def overview(admin: httpx.AsyncClient, after: int = 0) -> dict[str, Any]:
    """Ask how all is."""
    answer = await admin.get("/v1/admin/overview", params={"after": after})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_figures_of_gateways_and_workers_reach_the_admin(
    stack: Stack,
    admin: httpx.AsyncClient,
    alice: RawChat,
    bob: RawChat,
    pair: str,
    new_name: Callable[[str], str],
) -> None:
    """Gateways, workers and the API report rates, latencies, chats and slow clients."""
    small = stack.start_gateway(CHAT_GATEWAY_SEND_QUEUE_BYTES_MAX=str(QUEUE_BYTES_MAX))
    user = new_name("deaf")
    await stack.add_users([user])
    deaf = await RawSocket.open(small.port, receive_bytes=4096)
    hello = {"type": "hello", "v": 1, "token": stack.token(user), "device": "radio"}
    await deaf.send_json(hello)
    assert (await deaf.recv_json(DEADLINE_S))["type"] == "welcome"
    loud = (await alice.ask("open_direct", user=user))["chat"]["chat"]
    for number in range(MESSAGES):
        await alice.say(loud, BODY)
        await bob.say(pair, f"n{number}")

    async def is_all_told() -> dict[str, Any]:
        await bob.say(pair, "go on")  # other tests' chats are busy of late, too; this one stays so
        found = await overview(admin)
        kinds = [each["kind"] for each in found["processes"]]
        busy = {each["chat"]: each["messages"] for each in found["top_chats"]}
        slow = [(each["user"], each["device"]) for each in found["slow"]]
        points = found["points"]
        assert kinds.count("gateway") >= 2 and {"worker", "api"} <= set(kinds)
        assert busy.get(pair, 0) > 0
        assert (user, "radio") in slow
        assert max(point["sends_per_s"] for point in points) > 0
        assert max(point["sessions"] for point in points) >= 2
        for name in ("send_p99_ms", "delivery_p50_ms", "persist_p99_ms", "loop_p99_ms"):
            assert any(point[name] is not None for point in points), name
        assert found["backlog"]["entries"] >= 0
        return found

    found = await eventually(is_all_told, DEADLINE_S, "all is told")

    newest = found["points"][-1]["at_ms"]
    later = await overview(admin, newest)
    assert all(point["at_ms"] > newest for point in later["points"])
    assert BODY[:8] not in str(found) and "n1" not in [each["chat"] for each in found["top_chats"]]
    with contextlib.suppress(ConnectionError):
        await deaf.abort()
    await asyncio.to_thread(small.kill)
    stack.gateways.remove(small)


async def test_admin_page_is_shut_to_everybody_else(
    stack: Stack,
    admin: httpx.AsyncClient,
    admin_api: Server,
    new_name: Callable[[str], str],
) -> None:
    """Not even by a key that acts as the admin, nor by registering under an admin's name."""
    mine = (await admin.get("/v1/me")).json()
    plain = bearer(stack.token(new_name("zoe")))
    acting = {**bearer(await make_key(stack, "act_as", "users:read")), "X-Chat-As": ADMIN}
    operating = bearer(await make_key(stack, "operate"))
    paths = [f"/v1/admin/{what}" for what in ("overview", "audit", "cost")]
    async with httpx.AsyncClient(base_url=admin_api.endpoint, timeout=20) as client:
        for path in paths:
            assert problem_of(await client.get(path)) == (401, "unauthenticated")
            for headers in (plain, acting):
                assert problem_of(await client.get(path, headers=headers)) == (403, "forbidden")
            assert (await client.get(path, headers=operating)).status_code == 200
        me = [(await client.get("/v1/me", headers=who)).json() for who in (plain, acting)]
        body = {"user": ADMIN, "password": "correct horse battery"}
        registered = await client.post("/v1/auth/register", json=body)
    own = [(await admin.get(path)).status_code for path in paths]

    assert [each["is_admin"] for each in me] == [False, False]
    assert problem_of(registered) == (409, "conflict")
    assert mine["is_admin"] is True
    assert own == [200, 200, 200]
    assert problem_of(await admin.get(paths[0], params={"after": -1}))[0] == 400
