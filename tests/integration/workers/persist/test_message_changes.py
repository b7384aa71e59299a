"""Changes of messages on their way to DynamoDB: the same outcome from wherever one starts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.amendments import Amended, Amendment, Hide
from chatserver.domain.ids import ChatId, Mid, Ref, Seq, UserId
from chatserver.domain.messages import Audience, digest_of
from chatserver.errors import Unavailable
from chatserver.hot.chats.amendments import Amendments, Hidden
from chatserver.hot.chats.membership import HotMembership
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
    is_drained,
    lose_redis,
    make_group,
    open_container,
    patterns_of,
    persister_of,
    running,
)
from tests.support.constants import constants
from tests.support.servers.processes import eventually

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

Entry = tuple[bytes, list[bytes]]


async def amend(
    container: StorageContainer,
    chat: ChatId,
    sender: UserId,
    kind: str,
    target: int,
    body: str = "",
) -> Amended:
    """Commit a change under a new ref."""
    ref, mid = Ref(f"c{random.getrandbits(40):x}"), Mid("M")
    tail = codec.encode_entry_tail(chat, mid, sender, ref, kind, body, target)
    made = Amendment(chat, sender, ref, mid, "dd", kind, Seq(target), body, tail)
    return await Amendments(container.hot, GATEWAY).amend(made)


async def make_history(container: StorageContainer, gateway: Gateway, team: Audience) -> None:
    """Eight messages and all that may happen to them, mixed, always the same."""
    dice = random.Random(7)
    for number in range(1, 9):
        await gateway.send(team, f"text {number}")
        for _ in range(4):
            target = dice.randint(1, number)
            user = dice.choice((ALICE, BOB, CAROL))
            kind = dice.choice(("edit", "edit", "reaction", "reaction", "delete"))
            sender = user if kind == "reaction" else ALICE
            if kind != "delete" or dice.random() < 0.4:
                await amend(container, team.chat, sender, kind, target, dice.choice("xyz"))


async def backlog_of(container: StorageContainer) -> list[Entry]:
    """Entries that wait to be persisted."""
    found: list[Entry] = await container.hot.call("XRANGE", container.hot.keys.backlog(0), "-", "+")
    return found


async def put_back(container: StorageContainer, entries: list[Entry]) -> None:
    """Let what was persisted wait again, as if the checkpoint had never moved."""
    # First, so that a persister that is quick does not count below nothing.
    await container.hot.call("HINCRBY", container.hot.keys.checkpoint(0), "waiting", len(entries))
    for _, fields in entries:
        await container.hot.call("XADD", container.hot.keys.backlog(0), "*", *fields)


async def items_of(tables: Tables) -> dict[str, Item]:
    """All items, by seq."""
    return {item["seq"]["N"]: item for item in await tables.scan(MESSAGES.name)}


async def persist(container: StorageContainer) -> None:
    """Let a persister do all that waits."""
    async with running(persister_of(container).run()):
        await eventually(lambda: is_drained(container))


async def test_replay_from_every_point_ends_with_the_same_items(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """Whatever a dead worker left is repeated with the same result."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await make_history(container, gateway, team)
    entries = await backlog_of(container)
    await persist(container)
    first = await items_of(tables)

    async with running(persister_of(container).run()):
        for start in range(len(entries)):
            await put_back(container, entries[start:])
            await eventually(lambda: is_drained(container))

            assert await items_of(tables) == first, f"from {start}"

    head = len(entries)
    assert sorted(map(int, first)) == list(range(1, head + 1))
    kinds = {item["kind"]["S"] for item in first.values()}
    assert kinds == {"text", "edit", "reaction", "delete"}


async def test_batches_of_any_size_end_with_the_same_items(redis_url: str, tables: Tables) -> None:
    """Folded into a message before it is written, or applied to it afterwards: no difference."""
    outcomes: list[dict[str, Item]] = []
    entries: list[Entry] = []
    for batch_max in (1, 3, 500):
        with constants({"workers.persist.worker.BATCH_MAX": batch_max}):
            async with open_container(redis_url, tables.settings) as container:
                if entries:
                    await put_back(container, entries)
                else:
                    team = await make_group(container, ALICE, BOB, CAROL)
                    await make_history(container, Gateway(container.hot), team)
                    entries = await backlog_of(container)
                await persist(container)
        outcomes.append(await items_of(tables))
        for item in outcomes[-1].values():
            key = {name: item[name] for name in MESSAGES.key.names}
            table = MESSAGES.name_in(tables.settings)
            await tables.client.call("delete_item", {"TableName": table, "Key": key})

    assert outcomes[0] == outcomes[1] == outcomes[2]
    stored = [int(item["rev"]["N"]) for item in outcomes[0].values()]
    assert max(stored) > 1


async def test_items_are_what_the_overlay_says(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """Redis and DynamoDB agree on every message, so a reader may take either."""
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
    """The edit is stored first: its seq is never another entry's (P10)."""
    team = await make_group(container, ALICE, BOB, CAROL)
    chat = team.chat
    await gateway.send(team, "one")
    await amend(container, chat, ALICE, "edit", 1, "two")
    await persist(container)
    await amend(container, chat, ALICE, "edit", 1, "three")

    async def fail(*_: object) -> None:
        raise Unavailable("nothing is changed")

    async def is_stored() -> bool:
        return len(await container.messages.list_after(chat, 0, 200)) == 3

    with monkeypatch.context() as patch:
        for name in ("apply", "blank"):
            patch.setattr(container.message_changes, name, fail)
        async with running(persister_of(container).run()):
            await eventually(is_stored)
    (before,) = await container.messages.list_after(chat, 0, 1)
    await lose_redis(container)
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


async def test_text_deleted_while_it_waits_is_never_written(
    container: StorageContainer, gateway: Gateway
) -> None:
    """A delete that comes in time leaves nothing to be deleted (I15)."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "secret one")
    await amend(container, team.chat, ALICE, "edit", 1, "secret two")
    await amend(container, team.chat, ALICE, "delete", 1)
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


async def test_deleted_message_leaves_the_active_ones(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """Nor are changes among them: the status decides."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "one", "two")
    await persist(container)
    await amend(container, team.chat, ALICE, "delete", 1)
    await amend(container, team.chat, BOB, "reaction", 2, "x")

    await persist(container)

    active = await patterns_of(container).list_active(team.chat, limit=10)
    assert [m.seq for m in active.items] == [2]
    statuses = {seq: item["status_ts"]["S"] for seq, item in (await items_of(tables)).items()}
    assert {seq: text.partition("#")[0] for seq, text in statuses.items()} == {
        "1": "deleted", "2": "active", "3": "event", "4": "event",
    }  # fmt: skip


async def test_change_of_an_item_that_is_gone_is_passed_over(
    container: StorageContainer, gateway: Gateway, tables: Tables
) -> None:
    """TTL may have removed a message before a late change of it is applied."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "one")
    await persist(container)
    (item,) = (await items_of(tables)).values()
    await amend(container, team.chat, ALICE, "edit", 1, "two")
    key = {name: item[name] for name in MESSAGES.key.names}
    table = MESSAGES.name_in(tables.settings)
    await tables.client.call("delete_item", {"TableName": table, "Key": key})

    await persist(container)

    assert [entry["kind"]["S"] for entry in (await items_of(tables)).values()] == ["edit"]


# one item


def entry_of(seq: int, kind: str, body: str = "", **more: Any) -> frames.Message:
    """A change of message 1."""
    return message(seq, kind=kind, body=body, target=1, **more)


async def test_changes_applied_twice_or_late_do_nothing(container: StorageContainer) -> None:
    """An entry counts if it is newer than the item's `rev`."""
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


async def test_change_whose_answer_is_lost_is_applied_once(container: StorageContainer) -> None:
    """The condition fails at the second try, and what stands there is right."""
    one = message(1)
    await container.messages.put_batch(batch(one), 5)
    Faults(container.messages._client).lose_answers("UpdateItem", 1)

    await container.message_changes.apply(one.chat, one.ts, [entry_of(2, "edit", "two")])

    (changed,) = await container.messages.list_after(one.chat, 0, 10)
    assert (changed.body, changed.rev) == ("two", 2)


@pytest.mark.parametrize("count", [1, 1000])
async def test_item_with_reactions_comes_back_whole(
    container: StorageContainer, count: int
) -> None:
    """The maximum number of reactions per message; removed, none is left."""
    one = message(1)
    await container.messages.put_batch(batch(one), 5)
    added = [entry_of(2 + n, "reaction", "\U0001f600" * 8, sender=f"u{n}") for n in range(count)]
    taken = [entry_of(2000 + n, "reaction", "", sender=f"u{n}") for n in range(count)]

    await container.message_changes.apply(one.chat, one.ts, added)
    (full,) = await container.messages.list_after(one.chat, 0, 10)
    await container.message_changes.apply(one.chat, one.ts, taken)
    (empty,) = await container.messages.list_after(one.chat, 0, 10)

    assert len(full.reactions) == count
    assert (empty.reactions, empty.body, empty.rev) == ({}, one.body, 1999 + count)


# for oneself


async def test_hidden_goes_to_the_directory_and_comes_back(
    container: StorageContainer, tables: Tables
) -> None:
    """A message that a user deleted for themselves stays deleted after a loss of Redis."""
    team = await make_group(container, ALICE, BOB)
    hidden = Hidden(container.hot)
    for seq in (5, 9):
        assert await hidden.hide(BOB, team.chat, Seq(seq)) is Hide.NEW
    assert await hidden.hide(BOB, team.chat, Seq(5)) is Hide.KNOWN
    await persist(container)
    assert await hidden.hide(BOB, team.chat, Seq(5)) is Hide.STORED
    await container.hot.call("DEL", container.hot.keys.hidden(BOB), container.hot.keys.box(BOB))

    await container.user_loader.load_user(BOB)

    assert await hidden.list_hidden(BOB, [team.chat, ChatId("x")]) == {team.chat: {5, 9}}
    assert await hidden.list_hidden(ALICE, [team.chat]) == {}


async def test_refs_are_known_again_when_redis_was_lost(
    container: StorageContainer, gateway: Gateway
) -> None:
    """Of changed messages and of changes: a retry is not a second one (invariant I10)."""
    team = await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(team, "one", "two", "three")  # r1, r2, r3
    await amend(container, team.chat, ALICE, "edit", 1, "uno")
    await amend(container, team.chat, ALICE, "delete", 2)
    reacted = await amend(container, team.chat, BOB, "reaction", 3, "x")
    await persist(container)
    stored = await container.messages.list_after(team.chat, 0, 10)
    lost = container.hot.epoch_of(0)
    await container.hot.call("FLUSHALL")

    async def is_loaded() -> bool:
        try:
            await container.chat_loader.load_chat(team.chat)
        except Unavailable:
            return False  # the epoch that this process knows is over
        return True

    await eventually(is_loaded)
    assert container.hot.epoch_of(0) != lost, "the chat was opened in an epoch that is over"

    async def digest_of_ref(message: frames.Message) -> str | None:
        membership = HotMembership(container.hot)
        return await membership.find_digest(team.chat, UserId(message.sender), Ref(message.ref))

    digests = [await digest_of_ref(message) for message in stored]
    expected = ["", "", digest_of("text", "three", None)]
    assert digests[:3] == expected
    assert digests[reacted.seq - 1] == digest_of("reaction", "x", 3)
