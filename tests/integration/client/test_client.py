"""The Python SDK against real gateways, workers, Redis and DynamoDB."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
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
from tests.support.servers.processes import eventually, free_port
from tests.support.stack import PATIENT, Stack, bring_up, open_stack

pytest_plugins = ["tests.support.stack_fixtures"]

NewName = Callable[[str], str]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack to break: two gateways, little data in Redis."""
    env = {**PATIENT, "CHAT_REDIS_INBOX_MAX": "20", "CHAT_GATEWAY_ONLINE_TTL_S": "2"}
    folder = tmp_path_factory.mktemp("client")
    with open_stack(folder, fsync="no", env=env) as made:
        yield made


class People:
    """Opens clients that are closed when the test ends."""

    def __init__(self, exits: AsyncExitStack) -> None:
        self._exits = exits

    async def open(self, stack: Stack, user: str, **options: object) -> ChatClient:
        """Return a connected client of a user."""
        client = client_of(stack, user, **options)
        return await self._exits.enter_async_context(client)


@pytest.fixture
async def people() -> AsyncIterator[People]:
    """Clients of this test."""
    async with AsyncExitStack() as exits:
        yield People(exits)


def client_of(stack: Stack, user: str, **options: object) -> ChatClient:
    async def get_token() -> str:
        return stack.token(user)

    url = f"ws://127.0.0.1:{stack.port}/"
    return ChatClient(url, get_token, open_s=DEADLINE_S, **options)  # type: ignore[arg-type]  # options of the client


async def heard(client: ChatClient, chat: str, count: int) -> list[str]:
    """Return the bodies of the next messages of a chat."""
    bodies: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in client.events():
            if isinstance(event, events.MessageAdded) and event.chat == chat:
                bodies.append(event.message.body)
            if len(bodies) == count:
                break
    return bodies


async def test_client_two_users_read_edit_and_react_alike(
    stack: Stack, people: People, new_name: NewName
) -> None:
    """Each sees the other's changes, and both end with the same messages."""
    alice = await people.open(stack, new_name("alice"))
    bob = await people.open(stack, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id

    first = await alice.send(chat, "helo")
    await alice.edit(chat, first.seq, "hello")
    await bob.react(chat, first.seq, "👍")
    second = await bob.send(chat, "oops", durability="stored")
    await bob.delete(chat, second.seq)

    def same() -> bool:
        ours, theirs = alice.messages(chat), bob.messages(chat)
        return ours == theirs and len(ours) == 2 and ours[1].deleted

    await eventually(same, DEADLINE_S, "both see the same")
    (shown, gone) = alice.messages(chat)
    assert (shown.body, shown.reactions) == ("hello", {bob.user: "👍"})
    assert gone.body == ""
    read = alice.find_chat(chat)
    assert read is not None
    assert read.marks[bob.user].read == second.seq, "senders have read their own messages"
    await alice.send(chat, "never mind")
    await bob.mark(chat, read=second.seq + 2)
    await eventually(lambda: read.marks[bob.user].read == second.seq + 2, DEADLINE_S, "the mark")
    fresh = (await bob.history(chat)).entries
    assert [entry for entry in fresh if entry.target is None] == bob.messages(chat)


async def test_client_refusals_are_errors_of_their_kind(
    stack: Stack, people: People, new_name: NewName
) -> None:
    """A program can distinguish what it has to correct."""
    alice = await people.open(stack, new_name("alice"))

    with pytest.raises(NotFound):
        await alice.history("d-nothere")
    with pytest.raises(NotFound):
        await alice.send("d-nothere", "hello")
    with pytest.raises(BadRequest):
        await alice.open_direct(alice.user)
    with pytest.raises(BadRequest):
        await alice.send("d-nothere", "")


async def test_client_moderates(stack: Stack, people: People, new_name: NewName) -> None:
    """Block, mute, slow mode, ban and report by the SDK; each is taken back, too."""
    alice, bob = [await people.open(stack, new_name(name)) for name in ("alice", "bob")]
    direct = (await alice.open_direct(bob.user)).id
    group = (await alice.create_chat([bob.user], name="Trip")).id

    await alice.block(bob.user)
    with pytest.raises(Forbidden):
        await bob.send(direct, "hello?")
    assert await alice.blocks() == ([bob.user], None)
    await alice.unblock(bob.user)
    await bob.send(direct, "hello again")

    sold = await bob.send(group, "Buy my watches")
    await alice.report(group, sold.seq, "spam")
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


async def test_client_same_ref_again_is_acked_with_the_same_place(
    stack: Stack, people: People, new_name: NewName
) -> None:
    """A program that is not sure sends again."""
    alice = await people.open(stack, new_name("alice"))
    bob = await people.open(stack, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id

    first = await alice.send(chat, "once", ref="r1")
    again = await alice.send(chat, "once", ref="r1")

    assert (again.seq, again.mid, again.dup) == (first.seq, first.mid, True)
    with pytest.raises(Conflict):
        await alice.send(chat, "another", ref="r1")


async def test_client_survives_the_death_of_its_gateway(
    breakable: Stack, people: People, new_name: NewName
) -> None:
    """Sends during the outage arrive once, in order, and no event is repeated."""
    alice = await people.open(breakable, new_name("alice"))
    bob = await people.open(breakable, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id
    await alice.send(chat, "0")

    breakable.gateways[0].kill()
    sends = [asyncio.create_task(alice.send(chat, str(n), deadline_s=60)) for n in range(1, 6)]
    await bring_up(breakable.gateways[0])
    acks = await asyncio.gather(*sends)

    assert [ack.seq for ack in acks] == [2, 3, 4, 5, 6]
    assert await heard(bob, chat, 6) == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize("is_file", [True, False], ids=["sqlite", "memory"])
async def test_client_restarted_from_its_store_goes_on(
    breakable: Stack, people: People, new_name: NewName, tmp_path: Path, is_file: bool
) -> None:
    """Another process of the same device gets what it missed, and only that."""
    store = SqliteStore(tmp_path / "bob.db") if is_file else MemoryStore()
    alice = await people.open(breakable, new_name("alice"))
    name = new_name("bob")
    async with client_of(breakable, name, store=store) as bob:
        device = bob.device
        chat = (await alice.open_direct(name)).id
        await alice.send(chat, "before")
        assert await heard(bob, chat, 1) == ["before"]

    await alice.send(chat, "missed")
    bob = await people.open(breakable, name, store=store)

    assert bob.device == device
    assert await heard(bob, chat, 1) == ["missed"]


async def test_client_away_for_too_long_hears_all_of_its_chats(
    breakable: Stack, people: People, new_name: NewName
) -> None:
    """Events that left the inbox come from the history: every message once, in order."""
    store = MemoryStore()
    alice = await people.open(breakable, new_name("alice"))
    name = new_name("bob")
    async with client_of(breakable, name, store=store) as bob:
        chat = (await alice.open_direct(name)).id
        await alice.send(chat, "0")
        assert await heard(bob, chat, 1) == ["0"]

    for number in range(1, 41):
        await alice.send(chat, str(number))
    bob = await people.open(breakable, name, store=store)

    assert await heard(bob, chat, 40) == [str(number) for number in range(1, 41)]


async def test_client_with_a_wrong_token_says_so(stack: Stack) -> None:
    """Trying again would not help, so it does not."""
    url = f"ws://127.0.0.1:{stack.port}/"

    with pytest.raises(Unauthenticated):
        async with ChatClient(url, "x.y.z", open_s=DEADLINE_S):
            pass


async def test_client_without_a_gateway_says_so() -> None:
    """The address is in the message."""
    url = f"ws://127.0.0.1:{free_port()}/"

    with pytest.raises(Unavailable, match=url):
        async with ChatClient(url, "x.y.z", open_s=0.3):
            pass


async def test_client_of_a_device_that_is_used_twice_ends(stack: Stack, new_name: NewName) -> None:
    """Two processes of one device do not replace each other forever."""
    name = new_name("alice")
    async with (
        client_of(stack, name, device="d1") as first,
        client_of(stack, name, device="d1") as second,
    ):

        async def hear(client: ChatClient) -> None:
            async for _ in client.events():
                pass

        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(Conflict, match="d1"):
                await asyncio.gather(hear(first), hear(second))


async def test_client_offers_again_what_a_lost_redis_had_acked(
    breakable: Stack, people: People, new_name: NewName
) -> None:
    """An ack outlives Redis as long as the device lives: both end with the same messages."""
    alice = await people.open(breakable, new_name("alice"))
    bob = await people.open(breakable, new_name("bob"))
    chat = (await alice.open_direct(bob.user)).id
    await alice.send(chat, "stored", durability="stored")
    (worker,) = breakable.workers.values()
    worker.kill()
    try:
        await alice.send(chat, "only in Redis")
        assert await heard(bob, chat, 2) == ["stored", "only in Redis"]
        async with redis.from_url(breakable.redis_url) as client:
            await client.flushall()
    finally:
        await bring_up(worker)

    def both() -> bool:
        bodies = [[message.body for message in one.messages(chat)] for one in (alice, bob)]
        return bodies == [["stored", "only in Redis"]] * 2

    await eventually(both, DEADLINE_S, "both have both")

    async def is_read() -> bool:
        with contextlib.suppress(Unavailable):  # the chat may just be loaded again
            page = await bob.history(chat)
            return [entry.body for entry in page.entries] == ["stored", "only in Redis"]
        return False

    await eventually(is_read, DEADLINE_S, "the history has both")
    await eventually(lambda: alice.deeds(chat) == [], DEADLINE_S, "all is stored")
