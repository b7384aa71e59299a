"""chat.v1 while a tier is down: errors are explicit and temporary, the rest still works (P9)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.stack import WORKERS, NewName, Stack, open_stack, start_async
from tests.support.wire import Ended, RawSocket, Refused

OVERLOADED, UNAUTHENTICATED = 3002, 3500
LENGTH = 60


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose servers the tests stop, with little data in Redis and short deadlines."""
    env = {
        "CHAT_REDIS_LOG_MAX": "20",
        "CHAT_REDIS_INBOX_MAX": "20",
        "CHAT_REDIS_CALL_TIMEOUT_S": "1",
        "CHAT_GATEWAY_RPC_TIMEOUT_S": "2",
        "chatserver.service.messaging.stored_waits.STORED_TIMEOUT_S": "1",
        "CHAT_GATEWAY_ONLINE_TTL_S": "6",
        "CHAT_PERSIST_LEASE_S": "2",
        "CHAT_PERSIST_WRITE_TIMEOUT_S": "1",
    }
    folder = tmp_path_factory.mktemp("broken")
    with open_stack(folder, fsync="always", env=env) as made:
        yield made


async def retry_temporary_errors(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a request until it gets no temporary error; return its response.

    The deadlines of this stack are so short that a busy machine may exceed any of them.
    """
    answers: list[Any] = []

    async def is_answered() -> bool:
        try:
            answers.append(await ask())
        except Failed as exc:
            if not exc.is_temporary:
                raise
        except Ended:
            pass  # hello has the same deadlines and is closed with "reconnect later"
        return bool(answers)

    await eventually(is_answered)  # type: ignore[arg-type]  # mypy loses the type variable
    return answers[0]


async def send_message(device: RawChat, chat: str, body: str, **extra: Any) -> Any:
    """Send a message until it is accepted; return the ack."""
    ref = extra.pop("ref", f"{device.device}-{body}".replace(" ", "-"))
    return await retry_temporary_errors(lambda: device.send(chat, body, ref=ref, **extra))


@pytest.fixture
async def long_chat(
    broken: Stack, new_name: NewName
) -> AsyncIterator[tuple[RawChat, RawChat, str]]:
    """Two devices and their chat of `LENGTH` messages; the older ones are only in DynamoDB."""
    alice, bob = (broken.chat_of(new_name(stem)) for stem in ("alice", "bob"))
    for device in (alice, bob):
        await retry_temporary_errors(device.start)
    chat = (await retry_temporary_errors(lambda: alice.request("open_direct", user=bob.user)))[
        "chat"
    ]["chat"]
    for number in range(1, LENGTH):
        await send_message(alice, chat, f"m{number}")
    await send_message(alice, chat, f"m{LENGTH}", durability="stored")
    await bob.expect(lambda me: len(me.messages(chat)) == LENGTH)
    yield alice, bob, chat
    await alice.abort()
    await bob.abort()


async def restart_redis(stack: Stack) -> None:
    """Start Redis again and wait until gateway and workers serve requests."""
    await start_async(stack.redis)

    async def is_served() -> bool:
        try:
            async with stack.chat_of("probe") as probe:
                await probe.request("open_direct", user="nobody")
        except Failed as exc:
            return exc.code == "not_found"
        except Ended:
            return False
        return False

    await eventually(is_served)  # type: ignore[arg-type]  # mypy loses the type variable


async def refusal_of(work: object, within_s: float) -> Failed:
    """Return the error of a request; check that it arrived within four times `within_s`."""
    start = time.monotonic()
    with pytest.raises(Failed) as caught:
        await work  # type: ignore[misc]  # an awaitable of any kind
    assert time.monotonic() - start < within_s * 4
    return caught.value


# ── the warm tier is down ─────────────────────────────────────────────────────────────────────────


async def test_dynamodb_down_does_not_affect_sends_and_recent_history(
    broken: Stack, long_chat: tuple[RawChat, RawChat, str]
) -> None:
    """Requests that need DynamoDB get `unavailable`, and succeed when it is up again."""
    alice, bob, chat = long_chat
    broken.dynamodb.kill()
    try:
        await send_message(alice, chat, "still here")
        await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "still here")
        newest = await retry_temporary_errors(lambda: alice.request("history", chat=chat, limit=10))

        old = await refusal_of(alice.request("history", chat=chat, after=0, limit=10), 6)
        stored = await refusal_of(alice.send(chat, "keep", durability="stored"), 6)
    finally:
        await start_async(broken.dynamodb)

    assert newest["messages"][-1]["body"] == "still here"
    for failed in (old, stored):
        assert (failed.code, failed.is_temporary) == ("unavailable", True)
        assert failed.fields["retry_after_ms"] > 0
    oldest = {"chat": chat, "after": 0, "limit": 10}
    page = await retry_temporary_errors(lambda: alice.request("history", **oldest))
    assert [message["seq"] for message in page["messages"]] == list(range(1, 11))
    await alice.expect(
        lambda me: any(frame["upto"] >= LENGTH + 2 for frame in me.of_type("stored")), 30
    )


async def test_send_with_stored_durability_is_acked_after_an_outage_under_its_ref(
    broken: Stack, long_chat: tuple[RawChat, RawChat, str]
) -> None:
    """The wait has a limit; a retry of the `ref` gets the ack, also at another gateway."""
    alice, bob, chat = long_chat
    options = {"ref": "r-stored", "durability": "stored"}
    broken.dynamodb.kill()
    other = broken.add_gateway()
    try:
        await start_async(other)
        first = await refusal_of(alice.send(chat, "stored later", **options), 4)
        await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "stored later")
        again = await refusal_of(alice.send(chat, "stored later", **options), 4)
        await alice.abort()
        await retry_temporary_errors(lambda: alice.start(port=other.port))
        pending = await alice.send_nowait(chat, "stored later", **options)
    finally:
        await start_async(broken.dynamodb)

    async def is_acked() -> bool:
        if pending.attempt is not None and pending.attempt.done() and not pending.answer.done():
            await alice.resend()
        return pending.answer.done()

    await eventually(is_acked)  # type: ignore[arg-type]  # mypy loses the type variable
    ack = pending.answer.result()
    other.kill()
    broken.gateways.remove(other)

    for failed in (first, again):
        assert (failed.code, failed.is_temporary) == ("unavailable", True)
        assert "retry with the same ref" in failed.message
    assert (ack["durability"], ack["dup"], ack["seq"]) == ("stored", True, LENGTH + 1)
    assert (await broken.read_warm(chat))[-1].mid == ack["mid"]
    assert [m["body"] for m in bob.messages(chat)].count("stored later") == 1


async def test_without_rpc_worker_open_chats_work_and_the_error_names_the_worker(
    broken: Stack, long_chat: tuple[RawChat, RawChat, str], new_name: NewName
) -> None:
    """Users can connect and chat; only requests that need the worker fail."""
    alice, bob, chat = long_chat
    workers = broken.workers["-".join(WORKERS)]
    workers.kill()
    try:
        await send_message(alice, chat, "still here")
        await retry_temporary_errors(bob.reconnect)
        await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "still here")

        failed = await refusal_of(alice.request("open_direct", user=new_name("carol")), 5)
    finally:
        await start_async(workers)

    assert (failed.code, failed.is_temporary) == ("unavailable", True)
    assert "worker rpc" in failed.message


# ── Redis is down ─────────────────────────────────────────────────────────────────────────────────


async def test_redis_down_gets_unavailable_in_time_and_sockets_stay_open(
    broken: Stack, long_chat: tuple[RawChat, RawChat, str]
) -> None:
    """Every request gets `unavailable`, /readyz returns 503, and no client is disconnected."""
    alice, bob, chat = long_chat
    broken.redis.kill()
    try:
        sent = await refusal_of(alice.send(chat, "while down"), 3)
        read = await refusal_of(alice.request("history", chat=chat), 3)
        listed = await refusal_of(alice.request("chats"), 3)
        status = await get_readyz_status(broken.gateways[0])
    finally:
        await restart_redis(broken)

    assert status == 503
    for failed in (sent, read, listed):
        assert (failed.code, failed.is_temporary) == ("unavailable", True)
        assert failed.fields["retry_after_ms"] > 0
    await bob.expect_frame("reset")
    await send_message(alice, chat, "back")
    await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "back")
    assert alice.is_connected

    await eventually_equal(lambda: get_readyz_status(broken.gateways[0]), 200)


async def get_readyz_status(gateway: Server) -> int:
    """Return the status of /readyz."""
    async with await RawSocket.connect(gateway.port) as ws:
        await ws.write(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
        return (await ws.read_response()).status


async def test_hello_without_redis_is_closed_as_overloaded(
    broken: Stack, new_name: NewName
) -> None:
    """The close code tells the client to reconnect later."""
    carol = broken.chat_of(new_name("carol"))
    broken.redis.kill()
    try:
        with pytest.raises(Ended):
            await carol.start()
    finally:
        await restart_redis(broken)

    assert carol.close_frame is not None
    assert carol.close_frame.close_code == OVERLOADED
    bye = carol.frames[-1]
    assert (bye["type"], bye["code"]) == ("bye", OVERLOADED)
    await retry_temporary_errors(carol.start)
    await carol.stop()


async def test_redis_restart_changes_the_epoch_and_resets_cursors(
    broken: Stack, long_chat: tuple[RawChat, RawChat, str]
) -> None:
    """A restarted Redis may have lost data: every device starts from a snapshot."""
    alice, bob, chat = long_chat
    before = alice.welcome["epoch"]
    await bob.abort()
    broken.redis.kill()
    await restart_redis(broken)
    await alice.expect_frame("reset")

    await retry_temporary_errors(bob.start)

    reset = await bob.expect_frame("reset")
    assert reset["cursor"]["epoch"] != before
    line = next(line for line in reset["chats"] if line["chat"] == chat)
    assert line["top"] == LENGTH
    ack = await send_message(alice, chat, "after")
    assert ack["seq"] == LENGTH + 1
    await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "after")
    page = await retry_temporary_errors(lambda: bob.request("history", chat=chat, limit=5))
    assert [message["seq"] for message in page["messages"]] == list(range(LENGTH - 3, LENGTH + 2))


async def test_retry_after_redis_restart_creates_no_duplicate(
    broken: Stack, long_chat: tuple[RawChat, RawChat, str]
) -> None:
    """The `ref` of a send is recognized after a restart of Redis."""
    alice, _, chat = long_chat
    first = await send_message(alice, chat, "once", ref="r-1")
    broken.redis.kill()
    await restart_redis(broken)
    await alice.expect_frame("reset")

    again = await send_message(alice, chat, "once", ref="r-1")

    assert (again["dup"], again["seq"], again["ts"]) == (True, first["seq"], first["ts"])


# ── limits of the process ─────────────────────────────────────────────────────────────────────────


async def test_gateway_at_its_connection_limit_returns_503_with_retry_after(stack: Stack) -> None:
    """Handshakes above `connections_max` are refused until a connection is closed."""
    gateway = stack.start_gateway(CHAT_GATEWAY_CONNECTIONS_MAX="3")
    sockets = [await RawSocket.open(gateway.port) for _ in range(3)]

    with pytest.raises(Refused) as caught:
        await RawSocket.open(gateway.port)

    assert caught.value.response.status == 503
    assert int(caught.value.response.headers["retry-after"]) >= 1
    await sockets.pop().abort()

    async def is_accepted() -> bool:
        try:
            sockets.append(await RawSocket.open(gateway.port))
        except Refused:
            return False
        return True

    await eventually(is_accepted)  # type: ignore[arg-type]  # mypy loses the type variable
    for ws in sockets:
        await ws.abort()
    gateway.kill()
    stack.gateways.remove(gateway)
