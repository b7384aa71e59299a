"""The Python SDK against real gateways, workers, Redis and DynamoDB."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis.asyncio as redis

from chatserver.client import ChatClient, MemoryStore, SqliteStore, events
from chatserver.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from tests.integration.client.cache_support import DEADLINE_S, client_of, url_of
from tests.support.servers.processes import eventually, free_port
from tests.support.stack import NewName, Stack, start_async


class Clients:
    """Opens clients, and closes them when the test ends."""

    def __init__(self, exits: AsyncExitStack) -> None:
        self._exits = exits

    async def open(self, stack: Stack, user: str, **options: object) -> ChatClient:
        """Return a connected client of a user."""
        client = client_of(stack, user, **options)
        return await self._exits.enter_async_context(client)


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    async with AsyncExitStack() as exits:
        yield Clients(exits)


async def next_bodies(client: ChatClient, chat: str, count: int) -> list[str]:
    """Wait for the next messages of a chat; return their bodies."""
    bodies: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in client.events():
            if isinstance(event, events.MessageAdded) and event.chat == chat:
                bodies.append(event.message.body)
            if len(bodies) == count:
                break
    return bodies


async def test_client_shows_both_users_the_same_changes(
    stack: Stack, clients: Clients, new_name: NewName
) -> None:
    """Edits, reactions, deletions and read marks of one user reach the other."""
    alice = await clients.open(stack, new_name("alice"))
    bob = await clients.open(stack, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id

    first = await alice.send(chat, "helo")
    await alice.edit(chat, first.seq, "hello")
    await bob.react(chat, first.seq, "👍")
    second = await bob.send(chat, "oops", durability="stored")
    await bob.delete(chat, second.seq)

    def is_same() -> bool:
        ours, theirs = alice.messages(chat), bob.messages(chat)
        return ours == theirs and len(ours) == 2 and ours[1].deleted

    await eventually(is_same, DEADLINE_S, "both clients have the same messages")
    (shown, gone) = alice.messages(chat)
    assert (shown.body, shown.reactions) == ("hello", {bob.user: "👍"})
    assert gone.body == ""
    read = alice.find_chat(chat)
    assert read is not None
    assert read.marks[bob.user].read == second.seq, "a sender's own messages must count as read"
    await alice.send(chat, "never mind")
    await bob.mark(chat, read=second.seq + 2)
    await eventually(
        lambda: read.marks[bob.user].read == second.seq + 2, DEADLINE_S, "the read mark is received"
    )
    fresh = (await bob.history(chat)).entries
    assert [entry for entry in fresh if entry.target is None] == bob.messages(chat)


async def test_client_raises_specific_errors(
    stack: Stack, clients: Clients, new_name: NewName
) -> None:
    """A program can distinguish errors by their class."""
    alice = await clients.open(stack, new_name("alice"))

    with pytest.raises(NotFound):
        await alice.history("d-nothere")
    with pytest.raises(NotFound):
        await alice.send("d-nothere", "hello")
    with pytest.raises(BadRequest):
        await alice.open_direct(alice.user)
    with pytest.raises(BadRequest):
        await alice.send("d-nothere", "")


async def test_client_has_all_moderation_functions(
    stack: Stack, clients: Clients, new_name: NewName
) -> None:
    """Block, mute, slow mode, ban and report, and their reversal where there is one."""
    alice, bob = [await clients.open(stack, new_name(name)) for name in ("alice", "bob")]
    direct = (await alice.open_direct(bob.user)).id
    group = (await alice.create_chat([bob.user], name="Trip")).id

    await alice.block(bob.user)
    with pytest.raises(Forbidden):
        await bob.send(direct, "hello?")
    assert await alice.blocks() == ([bob.user], None)
    await alice.unblock(bob.user)
    await bob.send(direct, "hello again")

    spam = await bob.send(group, "Buy my watches")
    await alice.report(group, spam.seq, "spam")
    await alice.mute(group, bob.user, mute_s=3600)
    with pytest.raises(Forbidden):
        await bob.send(group, "why?")
    await alice.unmute(group, bob.user)
    await alice.update_chat(group, slow_s=60)
    await bob.send(group, "thanks")
    await alice.ban(group, bob.user)
    with pytest.raises(Forbidden):
        await alice.invite(group, [bob.user])
    await alice.unban(group, bob.user)
    assert bob.user in ((await alice.invite(group, [bob.user])).members or {})


async def test_client_same_ref_again_is_acked_with_the_same_seq(
    stack: Stack, clients: Clients, new_name: NewName
) -> None:
    """A program without an ack can send again; another text with the ref is a conflict."""
    alice = await clients.open(stack, new_name("alice"))
    bob = await clients.open(stack, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id

    first = await alice.send(chat, "once", ref="r1")
    again = await alice.send(chat, "once", ref="r1")

    assert (again.seq, again.mid, again.dup) == (first.seq, first.mid, True)
    with pytest.raises(Conflict):
        await alice.send(chat, "another", ref="r1")


async def test_client_reconnects_after_its_gateway_was_killed(
    breakable: Stack, clients: Clients, new_name: NewName
) -> None:
    """Messages sent during the outage arrive once and in order, and no event is repeated."""
    alice = await clients.open(breakable, new_name("alice"))
    bob = await clients.open(breakable, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id
    await alice.send(chat, "0")

    breakable.gateways[0].kill()
    sends = [asyncio.create_task(alice.send(chat, str(n), deadline_s=60)) for n in range(1, 6)]
    await start_async(breakable.gateways[0])
    acks = await asyncio.gather(*sends)

    assert [ack.seq for ack in acks] == [2, 3, 4, 5, 6]
    assert await next_bodies(bob, chat, 6) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("is_file", [True, False], ids=["sqlite", "memory"])
async def test_client_restarted_from_its_store_resumes(
    breakable: Stack, clients: Clients, new_name: NewName, tmp_path: Path, is_file: bool
) -> None:
    """A new client of the same device gets only the messages that it missed."""
    store = SqliteStore(tmp_path / "bob.db") if is_file else MemoryStore()
    alice = await clients.open(breakable, new_name("alice"))
    name = new_name("bob")
    async with client_of(breakable, name, store=store) as bob:
        device = bob.device
        chat = (await alice.open_direct(name)).id
        await alice.send(chat, "before")
        assert await next_bodies(bob, chat, 1) == ["before"]

    await alice.send(chat, "missed")
    bob = await clients.open(breakable, name, store=store)

    assert bob.device == device
    assert await next_bodies(bob, chat, 1) == ["missed"]


async def test_client_offline_beyond_the_inbox_gets_all_messages(
    breakable: Stack, clients: Clients, new_name: NewName
) -> None:
    """Events trimmed from the inbox are read from the history: each message once and in order."""
    store = MemoryStore()
    alice = await clients.open(breakable, new_name("alice"))
    name = new_name("bob")
    async with client_of(breakable, name, store=store) as bob:
        chat = (await alice.open_direct(name)).id
        await alice.send(chat, "0")
        assert await next_bodies(bob, chat, 1) == ["0"]

    for number in range(1, 41):
        await alice.send(chat, str(number))
    bob = await clients.open(breakable, name, store=store)

    assert await next_bodies(bob, chat, 40) == [str(number) for number in range(1, 41)]


async def test_client_with_invalid_token_raises_an_error(stack: Stack) -> None:
    """The client does not retry."""
    with pytest.raises(Unauthenticated):
        async with ChatClient(url_of(stack), "x.y.z", open_s=DEADLINE_S):
            pass


async def test_client_without_gateway_raises_an_error() -> None:
    """The error names the address."""
    url = f"ws://127.0.0.1:{free_port()}/"

    with pytest.raises(Unavailable, match=url):
        async with ChatClient(url, "x.y.z", open_s=0.3):
            pass


async def test_client_whose_device_is_used_twice_ends(stack: Stack, new_name: NewName) -> None:
    """Two clients of one device do not replace each other forever."""
    name = new_name("alice")
    async with (
        client_of(stack, name, device="d1") as first,
        client_of(stack, name, device="d1") as second,
    ):
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(Conflict, match="d1"):
                await asyncio.gather(*(next_bodies(each, "", 1) for each in (first, second)))


async def test_client_resends_acked_messages_lost_with_redis(
    breakable: Stack, clients: Clients, new_name: NewName
) -> None:
    """While the sender's client is running, a loss of Redis loses no acked message."""
    alice = await clients.open(breakable, new_name("alice"))
    bob = await clients.open(breakable, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id
    await alice.send(chat, "stored", durability="stored")
    (worker,) = breakable.workers.values()
    worker.kill()
    try:
        await alice.send(chat, "only in Redis")
        assert await next_bodies(bob, chat, 2) == ["stored", "only in Redis"]
        async with redis.from_url(breakable.redis_url) as client:
            await client.flushall()
    finally:
        await start_async(worker)

    def have_both_messages() -> bool:
        bodies = [[message.body for message in one.messages(chat)] for one in (alice, bob)]
        return bodies == [["stored", "only in Redis"]] * 2

    await eventually(have_both_messages, DEADLINE_S, "both clients have both messages")

    async def is_read() -> bool:
        with contextlib.suppress(Unavailable):  # the chat may be loading
            page = await bob.history(chat)
            return [entry.body for entry in page.entries] == ["stored", "only in Redis"]
        return False

    await eventually(is_read, DEADLINE_S, "the history has both messages")
    await eventually(
        lambda: alice.pending_operations(chat) == [], DEADLINE_S, "all messages are stored"
    )
