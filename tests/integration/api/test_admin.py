"""Statistics for admins, from the reporting processes to the responses of the API."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from chatserver.dev.servers import Server
from tests.integration.api.support import problem_of
from tests.security.support.users import bearer, make_key
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import NewName, Stack
from tests.support.wire import RawSocket

ADMIN = f"root-{secrets.token_hex(3)}"
DEADLINE_S = 100.0
BODY = "\U0001f600" * 4000  # 16 KB
QUEUE_BYTES_MAX = 65_536
MESSAGES = 48  # twice the capacity of a send queue plus the kernel's buffers


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
    async with httpx.AsyncClient(
        base_url=admin_api.endpoint, headers=bearer(stack.token(ADMIN)), timeout=20
    ) as client:
        yield client


async def overview(admin: httpx.AsyncClient, after: int = 0) -> dict[str, Any]:
    """Return the overview with the points after a time in milliseconds."""
    answer = await admin.get("/v1/admin/overview", params={"after": after})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_admin_overview_has_statistics_of_all_processes(
    stack: Stack,
    admin: httpx.AsyncClient,
    alice: RawChat,
    bob: RawChat,
    pair: str,
    new_name: NewName,
) -> None:
    """Gateways, workers and the API report rates, latencies, chats and slow clients."""
    gateway = stack.start_gateway(CHAT_GATEWAY_SEND_QUEUE_BYTES_MAX=str(QUEUE_BYTES_MAX))
    user = new_name("slow")
    await stack.add_users([user])
    slow_client = await RawSocket.open(gateway.port, receive_bytes=4096)
    hello = {"type": "hello", "v": 1, "token": stack.token(user), "device": "radio"}
    await slow_client.send_json(hello)
    assert (await slow_client.recv_json(DEADLINE_S))["type"] == "welcome"
    slow_chat = await alice.open_direct(user)
    for number in range(MESSAGES):
        await alice.send(slow_chat, BODY)
        await bob.send(pair, f"n{number}")

    async def has_all_statistics() -> dict[str, Any]:
        await bob.send(pair, "go on")  # this keeps the chat among the busiest, despite other tests
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

    found = await eventually(has_all_statistics, DEADLINE_S, "the overview is complete")

    newest = found["points"][-1]["at_ms"]
    later = await overview(admin, newest)
    assert all(point["at_ms"] > newest for point in later["points"])
    assert BODY[:8] not in str(found) and "n1" not in [each["chat"] for each in found["top_chats"]]
    with contextlib.suppress(ConnectionError):
        await slow_client.abort()
    await asyncio.to_thread(gateway.kill)
    stack.gateways.remove(gateway)


async def test_admin_routes_are_refused_to_everyone_else(
    stack: Stack,
    admin: httpx.AsyncClient,
    admin_api: Server,
    new_name: NewName,
) -> None:
    """A key that acts as the admin is refused too; an admin's name cannot be registered."""
    mine = (await admin.get("/v1/me")).json()
    plain = bearer(stack.token(new_name("zoe")))
    acting = {**bearer(await make_key(stack, "act_as", "users:read")), "X-Chat-As": ADMIN}
    operating = bearer(await make_key(stack, "operate"))
    paths = [f"/v1/admin/{name}" for name in ("overview", "audit", "cost")]
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
