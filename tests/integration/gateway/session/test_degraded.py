"""chat.v1 while a tier is down: the failure has a name and an end, and the rest goes on (P9)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from chatserver.dev.servers import Server
from tests.support.rawchat import Failed, RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import WORKERS, Stack, bring_up, open_stack
from tests.support.wire import Ended, RawSocket, Refused

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]
OVERLOADED, UNAUTHENTICATED = 3002, 3500
LENGTH = 60


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack to break: little data in Redis, short deadlines."""
    env = {
        "CHAT_REDIS_LOG_MAX": "20",
        "CHAT_REDIS_INBOX_MAX": "20",
        "CHAT_REDIS_CALL_TIMEOUT_S": "1",
        "CHAT_GATEWAY_RPC_TIMEOUT_S": "2",
        "chatserver.service.messaging.stored_acks.STORED_TIMEOUT_S": "1",
        "CHAT_GATEWAY_ONLINE_TTL_S": "6",
        "CHAT_PERSIST_LEASE_S": "2",
        "CHAT_PERSIST_WRITE_TIMEOUT_S": "1",
    }
    folder = tmp_path_factory.mktemp("broken")
    with open_stack(folder, fsync="always", env=env) as made:
        yield made


async def insist(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until it is not refused for now, and return the answer.

    The deadlines of this stack are so short that a busy machine may miss them at any time.
    """
    answers: list[Any] = []

    async def is_answered() -> bool:
        try:
            answers.append(await ask())
        except Failed as exc:
            if not exc.is_temporary:
                raise
        except Ended:
            pass  # a hello has the same deadlines: it was told to come back
        return bool(answers)

    await eventually(is_answered)  # type: ignore[arg-type]  # mypy loses the type variable
    return answers[0]


async def say(device: RawChat, chat: str, body: str, **extra: Any) -> Any:
    """Send a message until it is taken; return the last ack."""
    ref = extra.pop("ref", f"{device.device}-{body}".replace(" ", "-"))
    return await insist(lambda: device.say(chat, body, ref=ref, **extra))


@pytest.fixture
async def deep(broken: Stack, new_name: NewName) -> AsyncIterator[tuple[RawChat, RawChat, str]]:
    """Two devices and their chat of `LENGTH` messages, the older ones in the warm tier only."""
    alice, bob = (broken.chat_of(new_name(stem)) for stem in ("alice", "bob"))
    for device in (alice, bob):
        await insist(device.start)
    chat = (await insist(lambda: alice.ask("open_direct", user=bob.user)))["chat"]["chat"]
    for number in range(1, LENGTH):
        await say(alice, chat, f"m{number}")
    await say(alice, chat, f"m{LENGTH}", durability="stored")
    await bob.expect(lambda me: len(me.messages(chat)) == LENGTH)
    yield alice, bob, chat
    await alice.abort()
    await bob.abort()


async def bring_back_redis(stack: Stack) -> None:
    """Start Redis again and wait until gateway and workers have noticed."""
    await bring_up(stack.redis)

    async def is_served() -> bool:
        try:
            async with stack.chat_of("probe") as probe:
                await probe.ask("open_direct", user="nobody")
        except Failed as exc:
            return exc.code == "not_found"
        except Ended:
            return False
        return False

    await eventually(is_served)  # type: ignore[arg-type]  # mypy loses the type variable


async def refusal_of(work: object, within_s: float) -> Failed:
    """Return the error of a request, and see that it came in time, as a slow machine counts it."""
    start = time.monotonic()
    with pytest.raises(Failed) as caught:
        await work  # type: ignore[misc]  # an awaitable of any kind
    assert time.monotonic() - start < within_s * 4
    return caught.value


# ── the warm tier is down ───────────────────────────────────────────────────────────────────────


async def test_dynamodb_down_leaves_chat_and_recent_history(
    broken: Stack, deep: tuple[RawChat, RawChat, str]
) -> None:
    """Data in Redis is served; data that only DynamoDB has is `unavailable`, temporarily."""
    alice, bob, chat = deep
    broken.dynamodb.kill()
    try:
        await say(alice, chat, "still here")
        await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "still here")
        newest = await insist(lambda: alice.ask("history", chat=chat, limit=10))

        old = await refusal_of(alice.ask("history", chat=chat, after=0, limit=10), 6)
        wanted = await refusal_of(alice.say(chat, "keep", durability="stored"), 6)
    finally:
        await bring_up(broken.dynamodb)

    assert newest["messages"][-1]["body"] == "still here"
    for failed in (old, wanted):
        assert (failed.code, failed.is_temporary) == ("unavailable", True)
        assert failed.fields["retry_after_ms"] > 0
    page = await eventually_ask(alice, chat)
    assert [message["seq"] for message in page["messages"]] == list(range(1, 11))
    await alice.expect(
        lambda me: any(frame["upto"] >= LENGTH + 2 for frame in me.of_type("stored")), 30
    )


async def test_send_to_be_stored_is_acked_later_by_its_ref_wherever_it_is_sent(
    broken: Stack, deep: tuple[RawChat, RawChat, str]
) -> None:
    """The wait is bounded; the same `ref` reports the outcome, over gateways and outages."""
    alice, bob, chat = deep
    wish = {"ref": "r-stored", "durability": "stored"}
    broken.dynamodb.kill()
    other = broken.add_gateway()
    try:
        await bring_up(other)
        first = await refusal_of(alice.say(chat, "for ever", **wish), 4)
        await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "for ever")
        again = await refusal_of(alice.say(chat, "for ever", **wish), 4)
        await alice.abort()
        await insist(lambda: alice.start(port=other.port))
        pending = await alice.post(chat, "for ever", **wish)
    finally:
        await bring_up(broken.dynamodb)

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
    assert [m["body"] for m in bob.messages(chat)].count("for ever") == 1


async def eventually_ask(alice: RawChat, chat: str) -> dict[str, list[dict[str, int]]]:
    """Return the oldest page as soon as it can be read."""
    found: list[dict[str, list[dict[str, int]]]] = []

    async def is_read() -> bool:
        try:
            found.append(await alice.ask("history", chat=chat, after=0, limit=10))
        except Failed as exc:
            assert exc.is_temporary
        return bool(found)

    await eventually(is_read)  # type: ignore[arg-type]  # mypy loses the type variable
    return found[0]


async def test_no_rpc_worker_leaves_open_chats_and_is_named(
    broken: Stack, deep: tuple[RawChat, RawChat, str], new_name: NewName
) -> None:
    """Without `workers.rpc` users can log in and chat; errors say what to start."""
    alice, bob, chat = deep
    workers = broken.workers["-".join(WORKERS)]
    workers.kill()
    try:
        await say(alice, chat, "still here")
        await insist(bob.reconnect)
        await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "still here")

        failed = await refusal_of(alice.ask("open_direct", user=new_name("carol")), 5)
    finally:
        await bring_up(workers)

    assert (failed.code, failed.is_temporary) == ("unavailable", True)
    assert "worker rpc" in failed.message


# ── Redis is down ───────────────────────────────────────────────────────────────────────────────


async def test_redis_down_is_told_in_time_and_sockets_stay(
    broken: Stack, deep: tuple[RawChat, RawChat, str]
) -> None:
    """Every request gets `unavailable`, /readyz fails, and no client is disconnected."""
    alice, bob, chat = deep
    broken.redis.kill()
    try:
        sent = await refusal_of(alice.say(chat, "lost?"), 3)
        read = await refusal_of(alice.ask("history", chat=chat), 3)
        listed = await refusal_of(alice.ask("chats"), 3)
        status = await readiness(broken.gateways[0])
    finally:
        await bring_back_redis(broken)

    assert status == 503
    for failed in (sent, read, listed):
        assert (failed.code, failed.is_temporary) == ("unavailable", True)
        assert failed.fields["retry_after_ms"] > 0
    await bob.expect_frame("reset")
    await say(alice, chat, "back")
    await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "back")
    assert alice.is_connected

    async def is_ready() -> bool:
        return await readiness(broken.gateways[0]) == 200

    await eventually(is_ready)  # type: ignore[arg-type]  # mypy loses the type variable


async def readiness(gateway: Server) -> int:
    """Return the status of /readyz."""
    async with await RawSocket.connect(gateway.port) as ws:
        await ws.write(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
        return (await ws.read_response()).status


async def test_hello_without_redis_is_closed_as_overloaded(
    broken: Stack, new_name: NewName
) -> None:
    """A hello without Redis is closed with "reconnect later" within the deadline of a call."""
    carol = broken.chat_of(new_name("carol"))
    broken.redis.kill()
    try:
        with pytest.raises(Ended):
            await carol.start()
    finally:
        await bring_back_redis(broken)

    assert carol.close_frame is not None
    assert carol.close_frame.close_code == OVERLOADED
    bye = carol.frames[-1]
    assert (bye["type"], bye["code"]) == ("bye", OVERLOADED)
    await insist(carol.start)
    await carol.stop()


async def test_epoch_changes_when_redis_restarts_and_cursors_are_reset(
    broken: Stack, deep: tuple[RawChat, RawChat, str]
) -> None:
    """A restarted Redis may have lost data: every device starts from a snapshot."""
    alice, bob, chat = deep
    before = alice.welcome["epoch"]
    await bob.abort()
    broken.redis.kill()
    await bring_back_redis(broken)
    await alice.expect_frame("reset")

    await insist(bob.start)

    reset = await bob.expect_frame("reset")
    assert reset["cursor"]["epoch"] != before
    line = next(line for line in reset["chats"] if line["chat"] == chat)
    assert line["top"] == LENGTH
    ack = await say(alice, chat, "after")
    assert ack["seq"] == LENGTH + 1
    await bob.expect(lambda me: me.messages(chat)[-1]["body"] == "after")
    page = await insist(lambda: bob.ask("history", chat=chat, limit=5))
    assert [message["seq"] for message in page["messages"]] == list(range(LENGTH - 3, LENGTH + 2))


async def test_send_again_after_redis_restarted_is_the_same_message(
    broken: Stack, deep: tuple[RawChat, RawChat, str]
) -> None:
    """A retry is recognised across a restart of Redis."""
    alice, _, chat = deep
    first = await say(alice, chat, "once", ref="r-1")
    broken.redis.kill()
    await bring_back_redis(broken)
    await alice.expect_frame("reset")

    again = await say(alice, chat, "once", ref="r-1")

    assert (again["dup"], again["seq"], again["ts"]) == (True, first["seq"], first["ts"])


# ── bounds of the process ───────────────────────────────────────────────────────────────────────


async def test_gateway_that_is_full_refuses_politely(stack: Stack) -> None:
    """Beyond `connections_max` a handshake gets 503 and when to try again; health stays visible."""
    gateway = stack.start_gateway(CHAT_GATEWAY_CONNECTIONS_MAX="3")
    sockets = [await RawSocket.open(gateway.port) for _ in range(3)]

    with pytest.raises(Refused) as caught:
        await RawSocket.open(gateway.port)

    assert caught.value.response.status == 503
    assert int(caught.value.response.headers["retry-after"]) >= 1
    await sockets.pop().abort()

    async def is_let_in() -> bool:
        try:
            sockets.append(await RawSocket.open(gateway.port))
        except Refused:
            return False
        return True

    await eventually(is_let_in)  # type: ignore[arg-type]  # mypy loses the type variable
    for ws in sockets:
        await ws.abort()
    gateway.kill()
    stack.gateways.remove(gateway)


async def test_token_that_expires_on_a_live_socket_ends_it(
    broken: Stack, new_name: NewName
) -> None:
    """A token is good until it expires, not for as long as one stays connected."""
    user = new_name("alice")
    alice = broken.chat_of(user)
    for lifetime_s in (1, 5, 15):  # one that is over on the way is no live socket's
        with contextlib.suppress(Ended):
            await alice.start(token=broken.token(user, lifetime_s=lifetime_s))
            break

    bye = await alice.expect_close(UNAUTHENTICATED)

    assert bye is not None
    assert "expired" in bye["reason"]
