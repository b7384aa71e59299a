"""Redis at its `maxmemory` with a backlog while DynamoDB is down, with real processes."""

from __future__ import annotations

import asyncio
import itertools
import json
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
WAITING = ("XLEN", "{p0}:backlog")  # messages that are not in DynamoDB yet
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
    with redis_client(stack.redis_url) as admin:
        async with stack.chat_of("alice") as alice, stack.chat_of("bob") as bob:
            chat = await alice.open_direct("bob")
            early = [f"early {number}" for number in range(3 * KEPT)]
            for body in early:
                await alice.send(chat, body)
            await eventually(lambda: admin.execute_command(*WAITING) == 0, DEADLINE_S)
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

            await eventually(lambda: admin.execute_command(*WAITING) == 0, DEADLINE_S)
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
            return status == 503 and "redis is full" in text

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
            chat = await carol.open_direct("dave")
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


async def call_api(port: int, method: str, path: str, body: Any = None, token: str = "") -> Any:
    """Send a request to the API; return the decoded response."""

    def send_request() -> Any:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{HOST}:{port}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    return await asyncio.to_thread(send_request)


async def register_until_refused(port: int) -> Any:
    """Register accounts until one is refused, because processes check memory once a second."""
    async with asyncio.timeout(DEADLINE_S):
        for number in itertools.count():
            login = {"user": f"harry-{number}", "password": "correct horse battery"}
            try:
                await call_api(port, "POST", "/v1/auth/register", login)
            except urllib.error.HTTPError as exc:
                return json.loads(exc.read())
    raise AssertionError("unreachable")


async def test_users_protect_themselves_while_redis_is_full(stack: Stack) -> None:
    """Whoever fills Redis cannot keep others from blocking, deleting, leaving and logging in."""
    stack.start_worker("persist", "repair", "rpc")
    api = stack.start_api(CHAT_AUTH_COOKIE_SECURE="false")
    await stack.add_users(["erin", "flood", "frank"])
    login = {"user": "gina", "password": "correct horse battery"}
    await call_api(api.port, "POST", "/v1/auth/register", login)
    with redis_client(stack.redis_url) as admin:
        async with stack.chat_of("erin") as erin, stack.chat_of("flood") as flood:
            chat = await erin.open_direct("flood")
            group = await flood.request(
                "create_chat", ref="group", name="Flood", members=["erin", "frank"]
            )
            seqs = [(await erin.send(chat, f"regret {number}"))["seq"] for number in range(4)]
            await flood.send(chat, "spam")
            admin.config_set("maxmemory", 1)
            try:
                with pytest.raises(Failed, match="overloaded"):
                    await flood.send(chat, "more spam")

                await erin.request("block", user="flood")
                await erin.request("unblock", user="flood")
                await erin.request("block", user="frank")
                await erin.request(
                    "delete", chat=chat, seq=seqs[0], ref="delete-0", **{"for": "all"}
                )
                await erin.request("delete", chat=chat, seq=seqs[1], ref="d-1", **{"for": "me"})
                await erin.request("report", chat=chat, seq=seqs[-1] + 1, reason="spam")
                await erin.request("leave", chat=group["chat"]["chat"], ref="leave")
                assert (await erin.read_page(chat, after=0, limit=10))["messages"]
                async with stack.chat_of("erin", device="phone") as phone:
                    assert (await phone.request("blocks", limit=10))["blocked"]

                token = stack.token("erin")
                await call_api(api.port, "PUT", "/v1/me/blocks/flood", token=token)
                path = f"/v1/chats/{chat}/messages/{seqs[2]}"
                await call_api(api.port, "DELETE", path, token=token)
                await call_api(api.port, "GET", "/v1/me", token=token)
                granted = await call_api(api.port, "POST", "/v1/auth/login", login)
                await call_api(
                    api.port, "POST", "/v1/auth/logout-everywhere", token=granted["token"]
                )
                problem = await register_until_refused(api.port)
                assert problem["code"] == "overloaded" and problem["retry_after_ms"]
            finally:
                admin.config_set("maxmemory", 0)
            rows = await erin.read_final(chat)
            assert [row.body for row in rows if row.body] == ["regret 3", "spam"]


async def test_memory_pressure_evicts_what_dynamodb_has(stack: Stack) -> None:
    """Redis becomes a cache of active chats before it becomes full; nothing is lost."""
    stack.start_worker(
        "persist",
        "repair",
        "rpc",
        **{"chatserver.hot.chats.eviction.PRESSURE_IDLE_S": "1"},
        CHAT_REDIS_LOG_MAX="1000",
        CHAT_REDIS_INBOX_MAX="1000",
    )
    await stack.add_users(["ian", "june"])
    with redis_client(stack.redis_url) as admin:
        async with stack.chat_of("ian") as ian, stack.chat_of("june") as june:
            chat = await ian.open_direct("june")
            sent = [f"{number} {BODY}" for number in range(300)]
            for body in sent:
                await ian.send(chat, body)
            log = f"{{p0}}:log:{chat}"
            assert admin.xlen(log) == len(sent)

            await eventually(lambda: admin.execute_command(*WAITING) == 0, DEADLINE_S)
            used = admin.info("memory")["used_memory"]

            def is_evicted() -> bool:
                # Other data come and go, so keep the pressure at 75 %.
                now = admin.info("memory")["used_memory"]
                admin.config_set("maxmemory", int(now / 0.75))
                return not admin.exists(log)

            try:
                await eventually(is_evicted, DEADLINE_S)
            finally:
                admin.config_set("maxmemory", 0)

            await eventually(  # freed by a thread of Redis
                lambda: admin.info("memory")["used_memory"] < used - 500_000, DEADLINE_S
            )
            rows: Any = await june.read_final(chat)
            assert [row.body for row in rows] == sent
