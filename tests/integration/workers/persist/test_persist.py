"""The persist worker: every entry is stored once and in order, also after faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.inboxes import ListedChat
from chatserver.errors import Unavailable
from chatserver.hot.bus.gateway_stream import StoredUpdate
from chatserver.hot.users.inbox import Inboxes
from tests.integration.warm.support import Tables, create_tables, settings_for
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    bodies,
    count_backlog,
    is_drained,
    is_lease_holder,
    make_direct,
    make_group,
    open_container,
    persist,
    persister_of,
    queries_of,
    running,
    stored_of,
    texts,
)
from tests.support.servers.processes import StartDynamodb, StartRedis, eventually, redis_url_of
from workers.persist.worker import run_persist

# normal operation


async def test_persist_stores_messages_once_and_in_order(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Each message has its seq, text and sender, and in a direct chat its receiver."""
    direct, group = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    async with running(persister_of(container).run()):
        for start in range(0, 250, 50):
            await gateway.send(direct, *texts(50, f"direct {start}"))
            await gateway.send(group, *texts(50, f"group {start}"), sender=CAROL)
        await eventually(lambda: is_drained(container))

    for audience, stem, sender in ((direct, "direct", ALICE), (group, "group", CAROL)):
        found = await stored_of(container, audience.chat)
        assert [message.seq for message in found] == list(range(1, 251))
        expected = [text for start in range(0, 250, 50) for text in texts(50, f"{stem} {start}")]
        assert bodies(found) == expected
        assert {message.sender for message in found} == {sender}
    received = await queries_of(container).list_received(BOB, limit=200)
    assert {message.chat for message in received.items} == {direct.chat}


async def test_persist_advances_the_checkpoint_and_empties_the_backlog(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The next worker starts after the checkpoint."""
    team = await make_direct(container)
    await gateway.send(team, *texts(3))
    ((newest, _),) = await container.hot.call("XREVRANGE", container.hot.keys.backlog(0), "+", "-")

    await persist(container)

    checkpoint = await container.hot.call("HGET", container.hot.keys.checkpoint(0), "id")
    assert checkpoint == newest


async def test_persist_sends_the_stored_position_of_each_sender_to_the_gateway(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The gateway sends `stored` to the clients (guarantee P1)."""
    team = await make_direct(container)
    async with running(persister_of(container).run()):
        await gateway.send(team, *texts(3))
        await gateway.send(team, "mine", sender=BOB)

        def newest() -> set[tuple[str, int]]:
            return {(record.user, record.upto) for record in gateway.received(StoredUpdate)}

        await eventually(lambda: {(ALICE, 3), (BOB, 4)} <= newest())

    stored = await container.hot.call("HGET", container.hot.keys.chat(team.chat), "stored")
    assert stored == b"4"


async def test_persist_trims_the_log_of_stored_messages(redis_url: str, tables: Tables) -> None:
    """The newest entries stay in the hot tier for readers."""
    bounds = {"log_max": 20, "inbox_max": 20}
    async with open_container(redis_url, tables.settings, redis=bounds) as container:
        gateway, team = Gateway(container.hot), await make_direct(container)
        log = container.hot.keys.log(team.chat)
        await gateway.send(team, *texts(60))
        assert await container.hot.call("XLEN", log) == 60

        await persist(container)

        kept = await container.hot.call("XRANGE", log, "-", "+")
        assert [name for name, _ in kept] == [b"%d-0" % seq for seq in range(41, 61)]
        assert len(await stored_of(container, team.chat)) == 60


@pytest.mark.constants({"workers.persist.worker.IDLE_MS": 120000})
async def test_persist_waits_for_entries_without_delay(
    container: StorageContainer, gateway: Gateway
) -> None:
    """An idle worker gets a message at once and not at its next poll."""
    team = await make_direct(container)

    async def is_idle() -> bool:
        found: bytes = await container.hot.call("INFO", "clients")
        return b"blocked_clients:2\r" in found  # the worker and the gateway

    async with running(persister_of(container).run()):
        for number in range(3):
            await eventually(is_idle)
            await gateway.send(team, str(number))
            await eventually(lambda: is_drained(container))


async def test_persist_stores_read_marks_in_the_directory(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The highest marks are stored, in any order of arrival."""
    team, inboxes = await make_direct(container), Inboxes(container.hot)
    await inboxes.open_user_state(
        BOB, [ListedChat(team.chat, Seq(0), Seq(0))], container.hot.get_epoch(0)
    )
    await gateway.send(team, *texts(9))
    for read, received in ((2, 3), (5, 0), (0, 8)):
        await inboxes.mark(BOB, team.chat, Seq(read), Seq(received))

    await persist(container)

    marks = {
        m.user: (m.read, m.received) for m in await container.directory.list_members(team.chat)
    }
    assert marks == {ALICE: (0, 0), BOB: (5, 8)}


@pytest.mark.parametrize("sender", [ALICE, BOB])
async def test_first_message_of_a_direct_chat_lists_it_for_both_users(
    container: StorageContainer, gateway: Gateway, sender: UserId
) -> None:
    """It is listed for any sender, not only its opener, and survives a loss of Redis."""
    team = await make_direct(container)
    await gateway.send(team, "hello", sender=sender)

    await persist(container)

    for user in (ALICE, BOB):
        page = await container.directory.list_memberships(user, limit=10)
        assert [row.chat.chat for row in page.items] == [team.chat]


# messages that cannot be stored


def swap(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return a function that replaces bytes in an encoded message."""

    def corrupt(tail: bytes) -> bytes:
        assert old in tail
        return tail.replace(old, new)

    return corrupt


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda tail: b"not json",
        lambda tail: b"}",
        lambda tail: b"\xff\xfe",
        lambda tail: tail[:-5],
        swap(b'"sender":"alice",', b""),
        swap(b'"body":"invalid"', b'"body":7'),
        swap(b'"body":"invalid"', b'"body":"\\ud800"'),
        swap(b'"ref":', b'"ref":null,"x":'),
    ],
)
async def test_persist_unreadable_message_becomes_a_dead_letter_and_blocks_no_other(
    container: StorageContainer, gateway: Gateway, corrupt: Callable[[bytes], bytes]
) -> None:
    """The dead letter has the reason."""
    team = await make_direct(container)
    await gateway.send(team, *texts(3, "before"))
    await gateway.send(team, "invalid", tail=corrupt)
    await gateway.send(team, *texts(3, "after"))

    await persist(container)

    found = [message for message in await stored_of(container, team.chat) if not message.deleted]
    assert bodies(found) == [*texts(3, "before"), *texts(3, "after")]
    ((_, fields),) = await container.hot.call("XRANGE", container.hot.keys.dead(0), "-", "+")
    dead = dict(zip(fields[::2], fields[1::2], strict=True))
    assert (dead[b"s"], dead[b"r"]) == (b"4", b"bob")
    assert dead[b"why"]


async def test_persist_message_that_dynamodb_refuses_becomes_a_dead_letter(
    container: StorageContainer, gateway: Gateway
) -> None:
    """A refused batch is bisected until the message is found."""
    team = await make_direct(container)
    await gateway.send(team, *texts(20, "before"))
    # With an empty key, DynamoDB refuses the whole BatchWriteItem.
    await gateway.send(team, "invalid", tail=swap(b'"sender":"alice"', b'"sender":""'))
    await gateway.send(team, *texts(20, "after"))

    await persist(container)

    found = await stored_of(container, team.chat)
    assert bodies(found) == [*texts(20, "before"), "", *texts(20, "after")]
    assert await container.hot.call("XLEN", container.hot.keys.dead(0)) == 1


@pytest.mark.parametrize(
    "corrupt",
    [swap(b'"body":"invalid"', b'"body":7'), swap(b'"sender":"alice"', b'"sender":""')],
    ids=["unreadable", "refused"],
)
async def test_persist_dead_letter_leaves_a_tombstone(
    container: StorageContainer, gateway: Gateway, corrupt: Callable[[bytes], bytes]
) -> None:
    """The seq gets an empty tombstone, so that the chat has no gap."""
    team = await make_direct(container)
    await gateway.send(team, "before")
    await gateway.send(team, "invalid", tail=corrupt)
    await gateway.send(team, "after")

    await persist(container)

    found = await container.messages.list_after(team.chat, 0, 10)
    assert [message.seq for message in found] == [1, 2, 3]
    assert (found[1].body, found[1].deleted, found[1].ref) == ("", True, "r2")


async def test_persist_dead_letter_is_not_reported_as_stored(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The sender is not notified (P1). The chat is complete, because DynamoDB has a tombstone."""
    team = await make_direct(container)
    await gateway.send(team, "good")
    await gateway.send(team, "invalid", tail=swap(b'"sender":"alice"', b'"sender":""'))

    async with running(persister_of(container).run()):
        await eventually(lambda: is_drained(container))
        await eventually(lambda: gateway.received(StoredUpdate))

    assert {record.upto for record in gateway.received(StoredUpdate)} == {1}
    stored = await container.hot.call("HGET", container.hot.keys.chat(team.chat), "stored")
    assert stored == b"2"
    assert await container.chat_log.get_stored(team.chat) == (2, {2})  # for acks with `stored`
    assert (await container.members.get_reader(team.chat, ALICE)).stored == 1

    await gateway.send(team, "later")
    await persist(container)

    assert await container.chat_log.get_stored(team.chat) == (3, {2})


@pytest.mark.parametrize("before", [0, 1])
async def test_reloaded_chat_knows_its_dead_letters(
    container: StorageContainer, gateway: Gateway, before: int
) -> None:
    """Redis may have lost or evicted the chat before the sender repeats the message."""
    team = await make_direct(container)
    await gateway.send(team, *texts(before))
    await gateway.send(team, "invalid", tail=swap(b'"sender":"alice"', b'"sender":""'))
    await gateway.send(team, "later")
    await persist(container)
    await container.hot.call("DEL", container.hot.keys.chat(team.chat))
    await container.chat_loader.load_chat(team.chat)

    assert await container.chat_log.get_stored(team.chat) == (before + 2, {before + 1})
    assert (await container.members.get_reader(team.chat, ALICE)).stored == before + 2


# outages of DynamoDB


@pytest.mark.constants({"chatserver.warm.dynamo.client.ATTEMPTS_MAX": 1})
async def test_persist_catches_up_after_a_dynamodb_outage(
    redis_url: str, start_dynamodb: StartDynamodb
) -> None:
    """Messages can be sent during the outage, and none is lost or repeated."""
    server = start_dynamodb()
    warm = settings_for(server.endpoint)
    create_tables(warm)
    async with open_container(redis_url, warm) as container:
        gateway, team = Gateway(container.hot), await make_direct(container)
        async with running(persister_of(container).run()) as task:
            await gateway.send(team, *texts(5, "before"))
            await eventually(lambda: is_drained(container))
            server.kill()
            await gateway.send(team, *texts(40, "during"))
            assert await count_backlog(container) == 40
            server.start()

            await eventually(lambda: is_drained(container))

            assert not task.done()
        found = await stored_of(container, team.chat)
        assert bodies(found) == [*texts(5, "before"), *texts(40, "during")]


# processes


async def test_persist_raises_unavailable_when_redis_fails(
    start_redis: StartRedis, tables: Tables
) -> None:
    """The error names the address. The caller restarts the worker."""
    server = start_redis("always")
    async with open_container(redis_url_of(server), tables.settings) as container:
        task = asyncio.create_task(run_persist(container, "w1"))
        await eventually(lambda: is_lease_holder(container, b"w1"))

        server.kill()

        with pytest.raises(Unavailable, match=f"127.0.0.1:{server.port}"):
            await asyncio.wait_for(task, 30)


async def test_persist_of_several_partitions_writes_all_of_them(
    redis_url: str, tables: Tables
) -> None:
    """One process claims every free partition."""
    async with open_container(redis_url, tables.settings, redis={"partitions": 4}) as container:
        gateway = Gateway(container.hot)
        teams = [await make_group(container, ALICE, BOB, ref=f"g{n}") for n in range(8)]
        assert len({container.hot.keys.get_partition(team.chat) for team in teams}) > 1
        async with running(run_persist(container, "w1")):
            for team in teams:
                await gateway.send(team, *texts(3))

            async def all_stored() -> bool:
                return all([await count_of(container, team.chat) == 3 for team in teams])

            await eventually(all_stored)


async def count_of(container: StorageContainer, chat: ChatId) -> int:
    """Return the number of stored messages of a chat."""
    return len(await stored_of(container, chat))
