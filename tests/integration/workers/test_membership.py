"""Group changes over both tiers: in order, once, and completed by the next process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.messages import Audience
from chatserver.errors import BadRequest, ChatError, Conflict, Forbidden, NotFound, Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol import codec, frames
from tests.integration.warm.support import Faults, Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    make_direct,
    make_group,
    make_users,
    open_container,
    persister_of,
    running,
    waiting_in,
)
from tests.support.servers.processes import eventually
from workers.repair import RepairWorker

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

DAVE = UserId("dave")
_numbers = itertools.count(1)


class Died(Exception):
    """Stands for the end of a process."""


def asked(kind: type[Any], chat: ChatId, ref: str = "", **fields: Any) -> Any:
    """A request of a client."""
    return kind(id=1, chat=chat, ref=ref or f"q{next(_numbers)}", **fields)


async def entries_of(container: StorageContainer, chat: ChatId) -> list[frames.Message]:
    """The chat's log."""
    log = await ChatLog(container.hot).list_before(chat, None, 200)
    return [codec.decode_message(codec.join_message(e.seq, e.ts, e.tail)) for e in log]


async def says(container: StorageContainer, chat: ChatId) -> list[tuple[str | None, str | None]]:
    """User and role of each entry of the log."""
    return [(entry.user, entry.role) for entry in await entries_of(container, chat)]


async def inbox_of(container: StorageContainer, user: UserId) -> list[str | int]:
    """A user's inbox: chat seqs of entries, types of other events."""
    found = await container.inboxes.list_after(user, Seq(0), 500)
    return [entry.cs if entry.chat else "chat" for entry in found]


async def is_repaired(repair: RepairWorker) -> bool:
    """True once a look has finished something."""
    return await repair.repair_once() > 0


def die_in(container: StorageContainer, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Let the next process that gets to a fail-point die there."""

    def die(name: str) -> None:
        if name == where:
            monkeypatch.undo()
            raise Died

    monkeypatch.setattr("chatserver.service.membership.service.failpoint", die)


@pytest.fixture
async def group(container: StorageContainer) -> Audience:
    """A group of alice, its owner, bob and carol; dave is not in it."""
    made = await make_group(container, ALICE, BOB, CAROL)
    await make_users(container, DAVE)
    return made


async def test_invite_reaches_both_tiers_and_everybody(
    container: StorageContainer, group: Audience
) -> None:
    """The answer, the directory, Redis and all inboxes agree."""
    chat = group.chat

    info = await container.membership.change(
        ALICE, asked(frames.Invite, chat, users=[DAVE], role="admin")
    )

    assert (info.members, info.count) == (["alice", "bob", "carol", "dave"], 4)
    assert info.roles == {"alice": "owner", "dave": "admin"}
    assert await says(container, chat) == [("dave", "admin")]
    record, members = await container.directory.get_chat_with_members(chat)
    assert (record.version, record.change, record.count) == (2, None, 4)
    assert members[3].joined == 1
    audience = await container.audiences.get(chat)
    assert set(audience.users) == {ALICE, BOB, CAROL, DAVE}
    assert await inbox_of(container, DAVE) == ["chat", 1]
    assert await inbox_of(container, BOB) == [1]


async def test_removed_member_hears_of_it_and_of_nothing_later(
    container: StorageContainer, group: Audience
) -> None:
    """Earlier messages are readable; the entry of the removal is the last."""
    chat, gateway = group.chat, Gateway(container.hot)
    await gateway.send(group, "one", "two")

    await container.membership.change(ALICE, asked(frames.Remove, chat, user=BOB))
    await gateway.send(await container.audiences.get(chat), "three")

    assert (await inbox_of(container, BOB))[-1] == 3
    with pytest.raises(NotFound):
        await MemberCheck(container.hot, container.audiences).get_reader(chat, BOB)
    assert [each.user for each in await container.directory.list_members(chat)] == [
        "alice",
        "carol",
    ]


async def test_one_who_comes_again_hears_of_the_chat_again(
    container: StorageContainer, group: Audience
) -> None:
    """And no message from the time between."""
    chat, gateway = group.chat, Gateway(container.hot)
    await container.membership.change(BOB, asked(frames.Leave, chat))
    await gateway.send(await container.audiences.get(chat), "secret")

    await container.membership.change(ALICE, asked(frames.Invite, chat, users=[BOB]))

    assert await inbox_of(container, BOB) == [1, "chat", 3]
    reader = await MemberCheck(container.hot, container.audiences).get_reader(chat, BOB)
    assert reader[:2] == (3, 3)


async def test_one_who_comes_again_before_he_was_told_has_all_that_he_is_owed(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of the first membership come before those of the second, none between."""
    chat, gateway = group.chat, Gateway(container.hot)
    await gateway.send(group, "one")
    die_in(container, monkeypatch, "membership.after_redis")
    with pytest.raises(Died):
        await container.membership.change(BOB, asked(frames.Leave, chat))
    await gateway.send(await container.audiences.get_fresh(chat), "secret")
    die_in(container, monkeypatch, "membership.after_redis")
    with pytest.raises(Died):
        await container.membership.change(ALICE, asked(frames.Invite, chat, users=[BOB]))
    repair = RepairWorker(container, 0, "w1")
    await eventually(lambda: is_repaired(repair), 20, "members have what was committed")

    await container.membership_propagation.finish(chat)

    told = await inbox_of(container, BOB)
    assert told[:2] + sorted(told[2:], key=str) == [1, 2, 4, "chat"]


async def test_one_who_leaves_a_chat_that_was_large_until_just_now_is_told_once(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries delivered by the channel are not repeated in the inbox, however late it is."""
    erin = UserId("erin")
    few = {"fanout_members_max": 4, "invitations": "never"}  # five make it large, three small again
    async with open_container(redis_url, tables.settings, chats=few) as container:
        chat = (await make_group(container, ALICE, BOB, CAROL, DAVE, erin)).chat
        await container.membership_propagation.finish(chat)
        await container.membership.change(erin, asked(frames.Leave, chat))
        die_in(container, monkeypatch, "membership.after_redis")
        with pytest.raises(Died):
            await container.membership.change(DAVE, asked(frames.Leave, chat))

        await container.membership.change(CAROL, asked(frames.Leave, chat))

        for user, own in ((ALICE, 3), (CAROL, 3), (DAVE, 2), (erin, 1)):
            assert [each for each in await inbox_of(container, user) if each != "chat"] == [own]


async def test_history_of_a_new_member_starts_where_he_joined_unless_all_is_open(
    container: StorageContainer, group: Audience
) -> None:
    """The setting counts at once, and after a load from the directory too."""
    chat, check = group.chat, MemberCheck(container.hot, container.audiences)
    await Gateway(container.hot).send(group, "one", "two")
    await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))

    assert (await check.get_reader(chat, DAVE)).first == 3
    assert (await check.get_reader(chat, BOB)).first == 1
    await container.membership.change(ALICE, asked(frames.UpdateChat, chat, history="all"))
    assert (await check.get_reader(chat, DAVE)).first == 1

    await container.hot.call("HSET", container.hot.keys.chat(chat), "gate", "of-old:1")
    assert (await check.get_reader(chat, DAVE)).first == 1
    await container.membership.change(ALICE, asked(frames.UpdateChat, chat, history="joined"))
    assert (await check.get_reader(chat, DAVE)).first == 3


async def test_change_again_under_its_ref_is_one_change(
    container: StorageContainer, group: Audience
) -> None:
    """Also by a user who lost the permission; another change under the ref is a conflict."""
    chat = group.chat
    hand_over = asked(frames.SetRole, chat, "r1", user=BOB, role="owner")

    first = await container.membership.change(ALICE, hand_over)
    again = await container.membership.change(ALICE, hand_over)
    await container.membership.change(CAROL, leaving := asked(frames.Leave, chat, "r2"))
    left = await container.membership.change(CAROL, leaving)

    assert first == again
    assert first.roles == {"alice": "admin", "bob": "owner"}
    assert left.members == []
    assert await says(container, chat) == [("bob", "owner"), ("alice", "admin"), ("carol", "")]
    with pytest.raises(Conflict):
        await container.membership.change(ALICE, asked(frames.Remove, chat, "r1", user=BOB))


async def test_change_retry_by_former_member_returns_no_members_or_name(
    container: StorageContainer, group: Audience
) -> None:
    """Refusing it would deny a change that everybody has (P2). Another request is not found."""
    chat = group.chat
    await container.membership.change(ALICE, asked(frames.SetRole, chat, user=BOB, role="admin"))
    invite = asked(frames.Invite, chat, users=[DAVE])
    await container.membership.change(BOB, invite)
    await container.membership.change(ALICE, asked(frames.Remove, chat, user=BOB))

    again = await container.membership.change(BOB, invite)

    assert again == frames.ChatInfo(chat, "group", [])
    with pytest.raises(NotFound):
        await container.membership.change(BOB, asked(frames.Invite, chat, users=[CAROL]))


async def test_change_that_is_not_allowed_leaves_nothing(
    container: StorageContainer, group: Audience
) -> None:
    """No version, no entry, no note."""
    chat = group.chat
    direct = await make_direct(container)
    refused: list[tuple[type[ChatError], UserId, Any]] = [
        (Forbidden, BOB, asked(frames.Remove, chat, user=CAROL)),
        (Forbidden, BOB, asked(frames.UpdateChat, chat, name="Mine")),
        (NotFound, DAVE, asked(frames.Join, chat)),
        (NotFound, DAVE, asked(frames.Leave, chat)),
        (NotFound, ALICE, asked(frames.Invite, chat, users=["nobody"])),
        (NotFound, ALICE, asked(frames.Leave, ChatId("g-nowhere"))),
        (BadRequest, ALICE, asked(frames.UpdateChat, chat)),
        (BadRequest, ALICE, asked(frames.Leave, direct.chat)),
    ]

    for error, actor, request in refused:
        with pytest.raises(error):
            await container.membership.change(actor, request)

    assert (await container.directory.get_chat(chat)).version == 1
    assert await entries_of(container, chat) == []
    assert await container.hot.call("ZCARD", container.hot.keys.changing(0)) == 0


async def test_changes_of_eight_at_once_are_one_after_the_other(
    container: StorageContainer, group: Audience
) -> None:
    """Versions and seqs rise by one, both tiers agree, and there is one owner."""
    chat = group.chat
    crowd = [UserId(f"user-{n}") for n in range(6)]
    await make_users(container, *crowd)
    requests: list[tuple[UserId, Any]] = [
        (ALICE, asked(frames.Invite, chat, users=[user])) for user in crowd
    ]
    requests += [
        (BOB, asked(frames.Leave, chat)),
        (ALICE, asked(frames.SetRole, chat, user=CAROL, role="owner")),
    ]

    faults = Faults(container.messages._client)

    await asyncio.gather(*(container.membership.change(*request) for request in requests))

    # None was decided in vain: those of one process wait for each other.
    assert [op for op, _ in faults.requests].count("TransactWriteItems") == len(requests)
    record, members = await container.directory.get_chat_with_members(chat)
    assert (record.version, record.change, record.count) == (9, None, 8)
    entries = await entries_of(container, chat)
    assert [entry.seq for entry in entries] == list(range(1, 10))
    assert [member.role for member in members].count("owner") == 1
    audience = await container.audiences.get(chat)
    assert set(audience.users) == {member.user for member in members}
    assert audience.gate.endswith(":9")
    for member in members:
        assert member.joined == next(
            (e.seq for e in entries if e.user == member.user and member.user in crowd), 0
        )


@pytest.mark.parametrize(
    ("where", "healer"),
    [
        ("after_directory", "repeat"),
        ("after_directory", "next change"),
        ("after_directory", "load"),
        ("after_directory", "repair"),
        ("after_redis", "load"),
        ("after_redis", "repair"),
    ],
)
async def test_change_whose_process_died_is_finished_by_others(
    container: StorageContainer,
    group: Audience,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    healer: str,
) -> None:
    """Between both stores and before the inboxes: it takes effect once, for all members."""
    chat = group.chat
    monkeypatch.setattr("chatserver.service.membership.service.MARKER_TTL_S", 0)
    request = asked(frames.Remove, chat, user=BOB)
    die_in(container, monkeypatch, f"membership.{where}")
    with pytest.raises(Died):
        await container.membership.change(ALICE, request)
    assert (await container.directory.get_chat(chat)).change is not None

    async def is_loaded() -> bool:
        with contextlib.suppress(Unavailable):  # that Redis is empty is noticed first
            await container.chat_loader.load_chat(chat)
            return True
        return False

    if healer == "repeat":
        await container.membership.change(ALICE, request)
    elif healer == "next change":
        await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    else:
        if healer == "load":
            await container.hot.call("FLUSHDB")
            await eventually(is_loaded, 20, "the chat is open in another epoch")
        assert await RepairWorker(container, 0, "w1").finish_changes() >= 1
        left = await container.hot.call("ZRANGE", container.hot.keys.changing(0), 0, -1)
        assert left == [f"{chat}:unstored".encode()]

    assert BOB not in (await container.audiences.get(chat)).users
    assert (await container.directory.get_chat(chat)).change is None
    entries = await says(container, chat)
    assert entries.count(("bob", "")) == 1
    seq = 1 + entries.index(("bob", ""))
    assert (await inbox_of(container, BOB))[-1] == seq
    assert seq in await inbox_of(container, CAROL)
    assert await container.hot.call("HLEN", container.hot.keys.turnover(chat)) == 0


async def test_join_that_was_not_delivered_is_delivered_by_the_repair_of_its_chat(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries before the join count as read as soon as the chat's deliveries are complete."""
    chat = group.chat
    die_in(container, monkeypatch, "membership.after_redis")
    with pytest.raises(Died):
        await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    repair = RepairWorker(container, 0, "w1")

    await eventually(repair.repair_once, 20, "the chat is overdue")

    seq = 1 + (await says(container, chat)).index(("dave", "member"))
    assert await container.inboxes.get_marks(DAVE, chat) == (seq - 1, seq - 1)
    assert await container.hot.call("HLEN", container.hot.keys.turnover(chat)) == 0


@pytest.mark.parametrize("loss", ["epoch", "everything"])
async def test_joiner_after_a_loss_of_redis_reads_nothing_older_than_the_join(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """A message sent while the join was under way stays out of sight, before and after repair."""
    chat, keys = group.chat, container.hot.keys
    async with running(persister_of(container).run()):
        die_in(container, monkeypatch, "membership.after_directory")
        with pytest.raises(Died):
            await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
        await Gateway(container.hot).send(group, "secret")
        await container.membership_propagation.apply(await container.directory.get_chat(chat))

        async def is_stored() -> bool:
            return await waiting_in(container) == 0

        await eventually(is_stored)
    before = container.hot.epoch_of(0)
    if loss == "everything":
        await container.hot.call("FLUSHDB")
    else:
        await container.hot.call("HSET", keys.epoch(0), "epoch", "another")
    await eventually(lambda: container.hot.epoch_of(0) not in {"", before})
    check = MemberCheck(container.hot, container.audiences)

    loaded = await check.get_reader(chat, DAVE)
    await container.membership_propagation.finish(chat)
    repaired = await check.get_reader(chat, DAVE)
    stored = {each.user: each.joined for each in await container.directory.list_members(chat)}

    assert (loaded.first, repaired.first, stored[DAVE]) == (2, 2, 2)
    entries = await container.messages.list_after(chat, 0, 10)
    assert [(entry.kind, entry.user) for entry in entries] == [("text", None), ("member", "dave")]
    assert (await container.directory.get_chat(chat)).change is None


async def test_join_that_another_change_followed_is_known_to_the_directory(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seq of a member is stored before the row keeps the next change instead."""
    chat = group.chat
    die_in(container, monkeypatch, "membership.after_directory")
    with pytest.raises(Died):
        await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await Gateway(container.hot).send(group, "secret")
    die_in(container, monkeypatch, "membership.after_redis")

    with pytest.raises(Died):
        await container.membership.change(ALICE, asked(frames.UpdateChat, chat, name="Other"))

    stored = {each.user: each.joined for each in await container.directory.list_members(chat)}
    assert stored[DAVE] == 2


async def test_owner_who_leaves_is_followed_and_the_last_one_ends_it(
    container: StorageContainer, group: Audience
) -> None:
    """A chat without members does not exist, for anybody."""
    chat = group.chat
    await container.membership.change(ALICE, asked(frames.UpdateChat, chat, joining="open"))
    await container.membership.change(ALICE, asked(frames.SetRole, chat, user=CAROL, role="admin"))
    for user in (ALICE, CAROL, BOB):
        await container.membership.change(user, asked(frames.Leave, chat))
        members = await container.directory.list_members(chat)
        assert [member.joined for member in members] == [0] * len(members)

    assert (await says(container, chat))[1:] == [
        ("carol", "admin"),
        ("alice", ""),
        ("carol", "owner"),
        ("carol", ""),
        ("bob", "owner"),
        ("bob", ""),
    ]
    with pytest.raises(NotFound):
        await container.membership.change(DAVE, asked(frames.Join, chat))


async def test_entries_of_changes_are_persisted_like_messages(
    container: StorageContainer, group: Audience
) -> None:
    """History reads them from the warm tier as they were in the hot one."""
    chat = group.chat
    await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await container.membership.change(
        ALICE, asked(frames.UpdateChat, chat, name="Other", joining="open")
    )
    hot = await entries_of(container, chat)

    async with running(persister_of(container).run()):

        async def is_persisted() -> bool:
            return await waiting_in(container) == 0

        await eventually(is_persisted)

    assert await container.messages.list_after(chat, 0, 10) == hot
    assert [(entry.kind, entry.name, entry.body) for entry in hot] == [
        ("member", None, ""),
        ("update", "Other", '{"joining":"open"}'),
    ]
