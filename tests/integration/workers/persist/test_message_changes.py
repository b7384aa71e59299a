"""Persistence of message changes: the result is independent of retries and batch size."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Mid, Ref, Seq, UserId
from chatserver.domain.message_change_types import ChangeResult, Hide, MessageChange
from chatserver.domain.messages import Audience, compute_digest
from chatserver.errors import Unavailable
from chatserver.hot.chats.membership import HotMembership
from chatserver.hot.chats.message_changes import HiddenMessages, MessageChangeCommitter
from chatserver.protocol import codec, frames
from chatserver.warm.dynamo.client import Item
from chatserver.warm.schema.tables import MESSAGES
from tests.integration.warm.support import Faults, Tables, batch, message
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    GATEWAY,
    Gateway,
    empty_redis,
    is_drained,
    make_group,
    open_container,
    persist,
    persister_of,
    queries_of,
    running,
)
from tests.support.constants import constants
from tests.support.servers.processes import eventually, eventually_equal

Entry = tuple[bytes, list[bytes]]


async def commit_change(
    container: StorageContainer,
    chat: ChatId,
    sender: UserId,
    kind: str,
    target: int,
    body: str = "",
) -> ChangeResult:
    """Commit a change under a new ref."""
    ref, mid = Ref(f"c{random.getrandbits(40):x}"), Mid("M")
    tail = codec.encode_entry_tail(chat, mid, sender, ref, kind, body, target)
    made = MessageChange(chat, sender, ref, mid, "dd", kind, Seq(target), body, tail)
    return await MessageChangeCommitter(container.hot, GATEWAY).commit_change(made)


async def make_history(container: StorageContainer, gateway: Gateway, team: Audience) -> None:
    """Commit eight messages with random changes; the sequence is always the same."""
    rng = random.Random(7)
    for number in range(1, 9):
        await gateway.send(team, f"text {number}")
        for _ in range(4):
            target = rng.randint(1, number)
            user = rng.choice((ALICE, BOB, CAROL))
            kind = rng.choice(("edit", "edit", "reaction", "reaction", "delete"))
            sender = user if kind == "reaction" else ALICE
            if kind != "delete" or rng.random() < 0.4:
                await commit_change(container, team.chat, sender, kind, target, rng.choice("xyz"))


async def list_backlog(container: StorageContainer) -> list[Entry]:
    """Return the entries of the backlog."""
    found: list[Entry] = await container.hot.call("XRANGE", container.hot.keys.backlog(0), "-", "+")
    return found


async def restore_backlog(container: StorageContainer, entries: list[Entry]) -> None:
    """Add persisted entries to the backlog again, as if the checkpoint had not moved."""
    for _, fields in entries:
        await container.hot.call("XADD", container.hot.keys.backlog(0), "*", *fields)


async def items_of(tables: Tables) -> dict[str, Item]:
    """Return all items by seq."""
    return {item["seq"]["N"]: item for item in await tables.scan(MESSAGES.name)}


async def test_replay_from_every_point_ends_with_the_same_items(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """Entries after the checkpoint of a crashed worker are applied again."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await make_history(container, gateway, team)
    entries = await list_backlog(container)
    await persist(container)
    first = await items_of(tables)

    async with running(persister_of(container).run()):
        for start in range(len(entries)):
            await restore_backlog(container, entries[start:])
            await eventually(lambda: is_drained(container))

            assert await items_of(tables) == first, f"replayed from entry {start}"

    head = len(entries)
    assert sorted(map(int, first)) == list(range(1, head + 1))
    kinds = {item["kind"]["S"] for item in first.values()}
    assert kinds == {"text", "edit", "reaction", "delete"}


async def test_batches_of_any_size_end_with_the_same_items(redis_url: str, tables: Tables) -> None:
    """A change may be merged into its message before the write or applied afterwards."""
    outcomes: list[dict[str, Item]] = []
    entries: list[Entry] = []
    for batch_max in (1, 3, 500):
        with constants({"workers.persist.worker.BATCH_MAX": batch_max}):
            async with open_container(redis_url, tables.settings) as container:
                if entries:
                    await restore_backlog(container, entries)
                else:
                    team = await make_group(container, ALICE, BOB, CAROL)
                    await make_history(container, Gateway(container.hot), team)
                    entries = await list_backlog(container)
                await persist(container)
        outcomes.append(await items_of(tables))
        for item in outcomes[-1].values():
            key = {name: item[name] for name in MESSAGES.key.names}
            table = MESSAGES.name_in(tables.settings)
            await tables.client.call("delete_item", {"TableName": table, "Key": key})

    assert outcomes[0] == outcomes[1] == outcomes[2]
    stored = [int(item["rev"]["N"]) for item in outcomes[0].values()]
    assert max(stored) > 1


async def test_items_equal_the_overlay(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """Redis and DynamoDB have the same state of every changed message."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await make_history(container, gateway, team)
    overlay = await container.hot.call("HGETALL", container.hot.keys.over(team.chat))
    await persist(container)

    stored = {m.seq: m for m in await container.messages.list_after(team.chat, 0, 200)}

    expected = [codec.decode_message(value) for value in overlay[1::2]]
    assert expected
    assert [stored[message.seq] for message in expected] == expected


async def test_edit_is_applied_at_load_if_redis_was_lost_before_its_effect_was_stored(
    container: StorageContainer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry of the edit is stored first, so its seq is not assigned again (P10)."""
    team = await make_group(container, ALICE, BOB, CAROL)
    chat = team.chat
    await gateway.send(team, "one")
    await commit_change(container, chat, ALICE, "edit", 1, "two")
    await persist(container)
    await commit_change(container, chat, ALICE, "edit", 1, "three")

    async def fail(*_: object) -> None:
        raise Unavailable("simulated failure")

    with monkeypatch.context() as patch:
        for name in ("apply", "clear_edit"):
            patch.setattr(container.message_changes, name, fail)
        async with running(persister_of(container).run()):
            await eventually_equal(lambda: container.messages.list_after(chat, 0, 200), 3, of=len)
    (before,) = await container.messages.list_after(chat, 0, 1)
    await empty_redis(container)
    await gateway.send(await container.audiences.get(chat), "four", sender=BOB)
    await persist(container)

    assert before.body == "two"
    stored = await container.messages.list_after(chat, 0, 200)
    assert [(each.seq, each.kind, each.body) for each in stored] == [
        (1, "text", "three"),
        (2, "edit", ""),
        (3, "edit", "three"),
        (4, "text", "four"),
    ]
    assert (stored[0].edited_seq, stored[1].deleted) == (3, True)


async def test_message_that_redis_kept_does_not_undo_stored_changes_that_it_lost(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """The checkpoint is lost, too, so the message is persisted again."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "secret", "two")
    (sent, *_) = await list_backlog(container)
    await commit_change(container, team.chat, ALICE, "delete", 1)
    await commit_change(container, team.chat, BOB, "reaction", 2, "x")
    await persist(container)
    first = await items_of(tables)

    await restore_backlog(container, [sent])
    await persist(container)

    assert await items_of(tables) == first


async def test_text_deleted_before_it_was_persisted_is_never_written(
    container: StorageContainer, gateway: Gateway
) -> None:
    """No request to DynamoDB has the deleted text."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "secret one")
    await commit_change(container, team.chat, ALICE, "edit", 1, "secret two")
    await commit_change(container, team.chat, ALICE, "delete", 1)
    faults = Faults(container.messages._client)

    await persist(container)

    assert faults.bodies("BatchWriteItem")
    assert "secret" not in str(faults.requests)
    stored = await container.messages.list_after(team.chat, 0, 10)
    assert [(m.kind, m.body, m.deleted) for m in stored] == [
        ("text", "", True),
        ("edit", "", True),
        ("delete", "", False),
    ]


async def test_deleted_message_is_not_active(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """Entries of changes are not active either."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "one", "two")
    await persist(container)
    await commit_change(container, team.chat, ALICE, "delete", 1)
    await commit_change(container, team.chat, BOB, "reaction", 2, "x")

    await persist(container)

    active = await queries_of(container).list_active(team.chat, limit=10)
    assert [m.seq for m in active.items] == [2]
    statuses = {seq: item["status_ts"]["S"] for seq, item in (await items_of(tables)).items()}
    assert {seq: text.partition("#")[0] for seq, text in statuses.items()} == {
        "1": "deleted", "2": "active", "3": "event", "4": "event",
    }  # fmt: skip


async def test_change_of_a_deleted_item_is_ignored(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """TTL may delete the item before a change is applied."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "one")
    await persist(container)
    (item,) = (await items_of(tables)).values()
    await commit_change(container, team.chat, ALICE, "edit", 1, "two")
    key = {name: item[name] for name in MESSAGES.key.names}
    table = MESSAGES.name_in(tables.settings)
    await tables.client.call("delete_item", {"TableName": table, "Key": key})

    await persist(container)

    assert [entry["kind"]["S"] for entry in (await items_of(tables)).values()] == ["edit"]


# a single item


def entry_of(seq: int, kind: str, body: str = "", **more: Any) -> frames.Message:
    """Create a change of message 1."""
    return message(seq, kind=kind, body=body, target=1, **more)


async def test_change_applied_twice_or_late_has_no_effect(container: StorageContainer) -> None:
    """An entry is applied only if it is newer than the item's `rev`."""
    one = message(1)
    await container.messages.put_batch(batch(one), 5)
    entries = [entry_of(2, "edit", "two"), entry_of(3, "reaction", "x", sender="bob")]
    changes = container.message_changes
    await changes.apply(one.chat, one.ts, entries)
    (changed,) = await container.messages.list_after(one.chat, 0, 10)

    for again in (entries, entries[:1], entries[1:]):
        await changes.apply(one.chat, one.ts, again)

    assert [changed] == await container.messages.list_after(one.chat, 0, 10)
    assert (changed.body, changed.rev, changed.reactions) == ("two", 3, {"bob": "x"})


async def test_change_with_a_lost_response_is_applied_once(container: StorageContainer) -> None:
    """The condition of the retry fails, and the item has the right state."""
    one = message(1)
    await container.messages.put_batch(batch(one), 5)
    Faults(container.messages._client).drop_responses("UpdateItem", 1)

    await container.message_changes.apply(one.chat, one.ts, [entry_of(2, "edit", "two")])

    (changed,) = await container.messages.list_after(one.chat, 0, 10)
    assert (changed.body, changed.rev) == ("two", 2)


@pytest.mark.parametrize("count", [1, 1000])
async def test_reactions_up_to_the_maximum_are_stored_and_removed(
    container: StorageContainer, count: int
) -> None:
    """After the removal no reaction is left."""
    one = message(1)
    await container.messages.put_batch(batch(one), 5)
    added = [entry_of(2 + n, "reaction", "\U0001f600" * 8, sender=f"u{n}") for n in range(count)]
    removals = [entry_of(2000 + n, "reaction", "", sender=f"u{n}") for n in range(count)]

    await container.message_changes.apply(one.chat, one.ts, added)
    (full,) = await container.messages.list_after(one.chat, 0, 10)
    await container.message_changes.apply(one.chat, one.ts, removals)
    (empty,) = await container.messages.list_after(one.chat, 0, 10)

    assert len(full.reactions) == count
    assert (empty.reactions, empty.body, empty.rev) == ({}, one.body, 1999 + count)


# delete for oneself


async def test_hidden_messages_survive_a_loss_of_redis(
    container: StorageContainer, tables: Tables
) -> None:
    """They are stored in the directory and loaded with the user."""
    team = await make_group(container, ALICE, BOB)
    hidden = HiddenMessages(container.hot)
    for seq in (5, 9):
        assert (await hidden.hide(BOB, team.chat, Seq(seq)))[0] is Hide.NEW
    assert (await hidden.hide(BOB, team.chat, Seq(5)))[0] is Hide.KNOWN
    await persist(container)
    assert (await hidden.hide(BOB, team.chat, Seq(5)))[0] is Hide.STORED
    await container.hot.call("DEL", container.hot.keys.hidden(BOB), container.hot.keys.box(BOB))

    await container.user_loader.load_user(BOB)

    assert await hidden.list_hidden(BOB, [team.chat, ChatId("x")]) == {team.chat: {5, 9}}
    assert await hidden.list_hidden(ALICE, [team.chat]) == {}


async def test_refs_survive_a_loss_of_redis(container: StorageContainer, gateway: Gateway) -> None:
    """A retry of a changed message or of a change creates no duplicate."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "one", "two", "three")  # r1, r2, r3
    await commit_change(container, team.chat, ALICE, "edit", 1, "uno")
    await commit_change(container, team.chat, ALICE, "delete", 2)
    reacted = await commit_change(container, team.chat, BOB, "reaction", 3, "x")
    await persist(container)
    stored = await container.messages.list_after(team.chat, 0, 10)
    lost = container.hot.get_epoch(0)
    await container.hot.call("FLUSHALL")

    async def is_loaded() -> bool:
        try:
            await container.chat_loader.load_chat(team.chat)
        except Unavailable:
            return False  # wait until the process detects the new epoch
        return True

    await eventually(is_loaded)
    assert container.hot.get_epoch(0) != lost, "the chat was loaded in the old epoch"

    async def digest_of_ref(message: frames.Message) -> str | None:
        membership = HotMembership(container.hot)
        return await membership.find_digest(team.chat, UserId(message.sender), Ref(message.ref))

    digests = [await digest_of_ref(message) for message in stored]
    expected = ["", "", compute_digest("text", "three", None)]
    assert digests[:3] == expected
    assert digests[reacted.seq - 1] == compute_digest("reaction", "x", 3)
