"""Redis at its `maxmemory` with a backlog while DynamoDB is down, with real processes."""

from __future__ import annotations

import asyncio
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from chatserver.config import Redis
from chatserver.domain.clock import SystemClock
from chatserver.operations.doctor.redis_checks import check_redis
from tests.chaos.conftest import PATIENT
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import HOST, eventually, free_port, redis_client
from tests.support.stack import Stack, open_stack

DEADLINE_S = 60.0
BODY = "x" * 3000
ROOM_BYTES = 1_000_000
KEPT = 10  # messages of a chat that stay in Redis after they are persisted


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One gateway, an API and the core workers."""
    folder = tmp_path_factory.mktemp("full")
    env = PATIENT | {"CHAT_REDIS_LOG_MAX": str(KEPT), "CHAT_REDIS_INBOX_MAX": str(KEPT)}
    with open_stack(folder, workers=(), fsync="everysec", env=env) as made:
        yield made


async def status_of(port: int) -> tuple[int, str]:
    """Return the status and body of a process's /readyz."""

    def send_request() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/readyz", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()

    return await asyncio.to_thread(send_request)


async def send_until_full(device: RawChat, chat: str) -> list[str]:
    """Send until refused because Redis is full; return the acked bodies."""
    acked: list[str] = []
    while len(acked) < 2000:
        body = f"{len(acked)} {BODY}"
        try:
            await device.send(chat, body)
        except Failed as exc:
            assert (exc.code, exc.is_temporary) == ("overloaded", True), exc
            assert "maxmemory" in str(exc)
            return acked
        acked.append(body)
    raise AssertionError("Redis never became full")


async def is_sent(device: RawChat, chat: str, body: str) -> bool:
    """Send with a fixed ref; return False while it is refused because Redis is full."""
    try:
        await device.send(chat, body, ref=body)
    except Failed as exc:
        assert exc.code == "overloaded", exc
        return False
    return True


async def test_full_redis_drains_when_dynamodb_recovers(stack: Stack) -> None:
    """Sends are refused and all processes report "full".

    The backlog then drains, and sends work again. Until memory is free, history is read from
    DynamoDB, and devices can reconnect.
    """
    probe = free_port()
    stack.start_worker("persist", "repair", "rpc", CHAT_TELEMETRY_METRICS_PORT=str(probe))
    api = stack.start_api()
    await stack.add_users(["alice", "bob"])
    waiting = ("HGET", "{p0}:checkpoint", "waiting")
    with redis_client(stack.redis_url) as admin:
        async with stack.chat_of("alice") as alice, stack.chat_of("bob") as bob:
            chat = (await alice.request("open_direct", user="bob"))["chat"]["chat"]
            early = [f"early {number}" for number in range(3 * KEPT)]
            for body in early:
                await alice.send(chat, body)
            await eventually(lambda: admin.execute_command(*waiting) == b"0", DEADLINE_S)
            await eventually(lambda: admin.xlen(f"{{p0}}:log:{chat}") <= KEPT, DEADLINE_S)

            stack.dynamodb.send_signal(signal.SIGSTOP)
            try:
                limit = admin.info("memory")["used_memory"] + ROOM_BYTES
                admin.config_set("maxmemory", limit)
                acked = await send_until_full(alice, chat)
                await wait_until_full_is_reported(stack, api.port, probe)
                findings = await check_redis(Redis(url=stack.redis_url), SystemClock())
                assert any(f.level == "problem" and "is full" in f.what for f in findings)
                # No deletion frees enough memory, so all of these operations must work while Redis
                # is full.
                admin.config_set("maxmemory", 1)
            finally:
                stack.dynamodb.send_signal(signal.SIGCONT)

            await eventually(lambda: admin.execute_command(*waiting) == b"0", DEADLINE_S)
            page = await bob.read_page(chat, after=0, limit=5)
            assert page["tier"] == "warm"
            assert [row["body"] for row in page["messages"]] == early[:5]
            async with stack.chat_of("bob", device="another") as other:
                assert (await other.read_page(chat, after=0, limit=1))["messages"]
            assert not await is_sent(alice, chat, "still-full")

            admin.config_set("maxmemory", limit)
            await eventually(lambda: is_sent(alice, chat, "again"), DEADLINE_S)
            rows = await bob.read_final(chat)
            assert [row.body for row in rows] == [*early, *acked, "again"]
            for port in (stack.port, api.port, probe):
                await eventually(lambda port=port: is_status(port, 200), DEADLINE_S)


async def wait_until_full_is_reported(stack: Stack, api: int, worker: int) -> None:
    """Wait until each process is not ready and reports that Redis is full."""
    ports = {"gateway": stack.port, "api": api, "worker": worker}
    for name, port in ports.items():

        async def is_reported(port: int = port) -> bool:
            status, text = await status_of(port)
            return status == 503 and "redis is full" in text and stack.redis.launch.address in text

        await eventually(is_reported, DEADLINE_S, f"{name} reports that Redis is full")


async def is_status(port: int, status: int) -> bool:
    """Return whether /readyz has this status."""
    return (await status_of(port))[0] == status


async def test_full_redis_drains_without_a_settings_change(stack: Stack) -> None:
    """Persisted entries are trimmed from the backlog without operator action."""
    stack.start_worker("persist", "repair", "rpc")
    await stack.add_users(["carol", "dave"])
    with redis_client(stack.redis_url) as admin:
        async with stack.chat_of("carol") as carol, stack.chat_of("dave") as dave:
            chat = (await carol.request("open_direct", user="dave"))["chat"]["chat"]
            stack.dynamodb.send_signal(signal.SIGSTOP)
            try:
                limit = admin.info("memory")["used_memory"] + ROOM_BYTES
                admin.config_set("maxmemory", limit)
                acked = await send_until_full(carol, chat)
            finally:
                stack.dynamodb.send_signal(signal.SIGCONT)

            await eventually(lambda: is_sent(carol, chat, "again"), DEADLINE_S)
            rows: Any = await dave.read_final(chat)
            assert [row.body for row in rows] == [*acked, "again"]
