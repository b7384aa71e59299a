"""Membership changes in both tiers: ordered, applied once, and completed after a crash."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.inboxes import UserMarks
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
    change,
    count_backlog,
    crash,
    make_direct,
    make_group,
    make_request,
    make_users,
    open_container,
    persist,
    persister_of,
    running,
)
from tests.support.servers.processes import eventually, eventually_equal
from workers.delivery_repair import RepairWorker

DAVE = UserId("dave")


async def entries_of(container: StorageContainer, chat: ChatId) -> list[frames.Message]:
    """Return the entries of the chat's log."""
    log = await ChatLog(container.hot).list_before(chat, None, 200)
    return [codec.decode_message(codec.join_message(e.seq, e.ts, e.tail)) for e in log]


async def list_entry_roles(
    container: StorageContainer, chat: ChatId
) -> list[tuple[str | None, str | None]]:
    """Return user and role of each entry of the chat's log."""
    return [(entry.user, entry.role) for entry in await entries_of(container, chat)]


async def inbox_of(container: StorageContainer, user: UserId) -> list[str | int]:
    """Return a user's inbox: chat seqs of entries, and ``"chat"`` for other events."""
    found = await container.inboxes.list_after(user, Seq(0), 500)
    return [entry.cs if entry.chat else "chat" for entry in found]


async def is_repaired(repair: RepairWorker) -> bool:
    """Return whether the run repaired something."""
    return await repair.repair_once() > 0


@pytest.fixture
async def group(container: StorageContainer) -> Audience:
    """A group of alice, the owner, bob and carol; dave is not a member."""
    made = await make_group(container, ALICE, BOB, CAROL)
    await make_users(container, DAVE)
    return made


async def test_invite_is_stored_in_both_tiers_and_delivered_to_all_members(
    container: StorageContainer, group: Audience
) -> None:
    """Response, directory, Redis and inboxes are consistent."""
    chat = group.chat

    info = await change(container, ALICE, frames.Invite, chat, users=[DAVE], role="admin")

    assert (info.members, info.count) == (["alice", "bob", "carol", "dave"], 4)
    assert info.roles == {"alice": "owner", "dave": "admin"}
    assert await list_entry_roles(container, chat) == [("dave", "admin")]
    record, members = await container.directory.get_chat_with_members(chat)
    assert (record.version, record.change, record.count) == (2, None, 4)
    assert members[3].joined == 1
    audience = await container.audiences.get(chat)
    assert set(audience.users) == {ALICE, BOB, CAROL, DAVE}
    assert await inbox_of(container, DAVE) == ["chat", 1]
    assert await inbox_of(container, BOB) == [1]


async def test_removed_member_gets_the_removal_and_no_later_entry(
    container: StorageContainer, group: Audience
) -> None:
    """The entry of the removal is the last one in the inbox."""
    chat, gateway = group.chat, Gateway(container.hot)
    await gateway.send(group, "one", "two")

    await change(container, ALICE, frames.Remove, chat, user=BOB)
    await gateway.send(await container.audiences.get(chat), "three")

    assert (await inbox_of(container, BOB))[-1] == 3
    with pytest.raises(NotFound):
        await MemberCheck(container.hot, container.audiences).get_reader(chat, BOB)
    assert [each.user for each in await container.directory.list_members(chat)] == [
        "alice",
        "carol",
    ]


async def test_rejoining_member_gets_the_chat_event_again(
    container: StorageContainer, group: Audience
) -> None:
    """No message sent in between is delivered."""
    chat, gateway = group.chat, Gateway(container.hot)
    await change(container, BOB, frames.Leave, chat)
    await gateway.send(await container.audiences.get(chat), "secret")

    await change(container, ALICE, frames.Invite, chat, users=[BOB])

    assert await inbox_of(container, BOB) == [1, "chat", 3]
    reader = await MemberCheck(container.hot, container.audiences).get_reader(chat, BOB)
    assert reader[:2] == (3, 3)


async def test_member_rejoining_before_the_leave_was_delivered_gets_all_entries(
    container: StorageContainer, group: Audience
) -> None:
    """Entries of the first membership come before those of the second, with none of the gap."""
    chat, gateway = group.chat, Gateway(container.hot)
    await gateway.send(group, "one")
    await crash(container, "after_redis", BOB, frames.Leave, chat)
    await gateway.send(await container.audiences.get_fresh(chat), "secret")
    await crash(container, "after_redis", ALICE, frames.Invite, chat, users=[BOB])
    repair = RepairWorker(container, 0, "w1")
    await eventually(lambda: is_repaired(repair), 20, "members have what was committed")

    await container.membership_propagation.finish(chat)

    inbox = await inbox_of(container, BOB)
    assert inbox[:2] + sorted(inbox[2:], key=str) == [1, 2, 4, "chat"]


async def test_leave_of_a_chat_that_became_small_is_delivered_once(
    redis_url: str, tables: Tables
) -> None:
    """Entries that were delivered as those of a large chat are not repeated in the inbox."""
    erin = UserId("erin")
    # The chat is large with five members and small again with three.
    limits = {"fanout_members_max": 4, "invitations": "never"}
    async with open_container(redis_url, tables.settings, chats=limits) as container:
        chat = (await make_group(container, ALICE, BOB, CAROL, DAVE, erin)).chat
        await container.membership_propagation.finish(chat)
        await change(container, erin, frames.Leave, chat)
        await crash(container, "after_redis", DAVE, frames.Leave, chat)

        await change(container, CAROL, frames.Leave, chat)

        for user, own in ((ALICE, 3), (CAROL, 3), (DAVE, 2), (erin, 1)):
            assert [each for each in await inbox_of(container, user) if each != "chat"] == [own]


async def test_history_of_a_new_member_starts_at_joining_unless_open_to_all(
    container: StorageContainer, group: Audience
) -> None:
    """The setting applies at once, and after a load from the directory."""
    chat, check = group.chat, MemberCheck(container.hot, container.audiences)
    await Gateway(container.hot).send(group, "one", "two")
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])

    assert (await check.get_reader(chat, DAVE)).first == 3
    assert (await check.get_reader(chat, BOB)).first == 1
    await change(container, ALICE, frames.UpdateChat, chat, history="all")
    assert (await check.get_reader(chat, DAVE)).first == 1

    await container.hot.call("HSET", container.hot.keys.chat(chat), "gate", "of-old:1")
    assert (await check.get_reader(chat, DAVE)).first == 1
    await change(container, ALICE, frames.UpdateChat, chat, history="joined")
    assert (await check.get_reader(chat, DAVE)).first == 3


async def test_retry_of_a_change_with_its_ref_changes_nothing(
    container: StorageContainer, group: Audience
) -> None:
    """This also holds without the permission. Another change with the ref is a conflict."""
    chat = group.chat
    transfer = make_request(frames.SetRole, chat, "r1", user=BOB, role="owner")

    first = await container.membership.change(ALICE, transfer)
    again = await container.membership.change(ALICE, transfer)
    await container.membership.change(CAROL, leaving := make_request(frames.Leave, chat, "r2"))
    left = await container.membership.change(CAROL, leaving)

    assert first == again
    assert first.roles == {"alice": "admin", "bob": "owner"}
    assert left.members == []
    assert await list_entry_roles(container, chat) == [
        ("bob", "owner"),
        ("alice", "admin"),
        ("carol", ""),
    ]
    with pytest.raises(Conflict):
        await change(container, ALICE, frames.Remove, chat, ref="r1", user=BOB)


async def test_change_retry_by_former_member_returns_no_members_or_name(
    container: StorageContainer, group: Audience
) -> None:
    """The retry succeeds, because the change was applied (P2). Other requests get not found."""
    chat = group.chat
    await change(container, ALICE, frames.SetRole, chat, user=BOB, role="admin")
    invite = make_request(frames.Invite, chat, users=[DAVE])
    await container.membership.change(BOB, invite)
    await change(container, ALICE, frames.Remove, chat, user=BOB)

    again = await container.membership.change(BOB, invite)

    assert again == frames.ChatInfo(chat, "group", [])
    with pytest.raises(NotFound):
        await change(container, BOB, frames.Invite, chat, users=[CAROL])


async def test_refused_change_has_no_effect(container: StorageContainer, group: Audience) -> None:
    """There is no new version, entry or pending propagation."""
    chat = group.chat
    direct = await make_direct(container)
    refused: list[tuple[type[ChatError], UserId, Any]] = [
        (Forbidden, BOB, make_request(frames.Remove, chat, user=CAROL)),
        (Forbidden, BOB, make_request(frames.UpdateChat, chat, name="Mine")),
        (NotFound, DAVE, make_request(frames.Join, chat)),
        (NotFound, DAVE, make_request(frames.Leave, chat)),
        (NotFound, ALICE, make_request(frames.Invite, chat, users=["nobody"])),
        (NotFound, ALICE, make_request(frames.Leave, ChatId("g-nowhere"))),
        (BadRequest, ALICE, make_request(frames.UpdateChat, chat)),
        (BadRequest, ALICE, make_request(frames.Leave, direct.chat)),
    ]

    for error, actor, request in refused:
        with pytest.raises(error):
            await container.membership.change(actor, request)

    assert (await container.directory.get_chat(chat)).version == 1
    assert await entries_of(container, chat) == []
    assert await container.hot.call("ZCARD", container.hot.keys.changing(0)) == 0


async def test_concurrent_changes_are_serialized(
    container: StorageContainer, group: Audience
) -> None:
    """Versions and seqs increase by one, both tiers are consistent, and there is one owner."""
    chat = group.chat
    joining = [UserId(f"user-{n}") for n in range(6)]
    await make_users(container, *joining)
    requests: list[tuple[UserId, Any]] = [
        (ALICE, make_request(frames.Invite, chat, users=[user])) for user in joining
    ]
    requests += [
        (BOB, make_request(frames.Leave, chat)),
        (ALICE, make_request(frames.SetRole, chat, user=CAROL, role="owner")),
    ]

    faults = Faults(container.messages._client)

    await asyncio.gather(*(container.membership.change(*request) for request in requests))

    # No transaction failed, because changes of one process wait for each other.
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
            (e.seq for e in entries if e.user == member.user and member.user in joining), 0
        )


@pytest.mark.parametrize(
    ("failpoint", "completed_by"),
    [
        ("after_directory", "retry"),
        ("after_directory", "next change"),
        ("after_directory", "load"),
        ("after_directory", "repair"),
        ("after_redis", "load"),
        ("after_redis", "repair"),
    ],
)
async def test_change_interrupted_by_a_crash_is_completed_once(
    container: StorageContainer,
    group: Audience,
    monkeypatch: pytest.MonkeyPatch,
    failpoint: str,
    completed_by: str,
) -> None:
    """After a crash between the stores or before the inboxes, all members get it once."""
    chat = group.chat
    monkeypatch.setattr("chatserver.service.membership.group_membership.MARKER_TTL_S", 0)
    removal = {"ref": "r1", "user": BOB}
    await crash(container, failpoint, ALICE, frames.Remove, chat, **removal)
    assert (await container.directory.get_chat(chat)).change is not None

    async def is_loaded() -> bool:
        with contextlib.suppress(Unavailable):  # until the new epoch is detected
            await container.chat_loader.load_chat(chat)
            return True
        return False

    if completed_by == "retry":
        await change(container, ALICE, frames.Remove, chat, **removal)
    elif completed_by == "next change":
        await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    else:
        if completed_by == "load":
            await container.hot.call("FLUSHDB")
            await eventually(is_loaded, 20, "the chat is loaded in the new epoch")
        assert await RepairWorker(container, 0, "w1").finish_changes() >= 1
        pending = await container.hot.call("ZRANGE", container.hot.keys.changing(0), 0, -1)
        assert pending == [f"{chat}:unstored".encode()]

    assert BOB not in (await container.audiences.get(chat)).users
    assert (await container.directory.get_chat(chat)).change is None
    entries = await list_entry_roles(container, chat)
    assert entries.count(("bob", "")) == 1
    seq = 1 + entries.index(("bob", ""))
    assert (await inbox_of(container, BOB))[-1] == seq
    assert seq in await inbox_of(container, CAROL)
    assert await container.hot.call("HLEN", container.hot.keys.turnover(chat)) == 0


async def test_undelivered_join_is_delivered_by_repair_of_the_chat(
    container: StorageContainer, group: Audience
) -> None:
    """Entries before the join count as read once the chat is repaired."""
    chat = group.chat
    await crash(container, "after_redis", ALICE, frames.Invite, chat, users=[DAVE])
    repair = RepairWorker(container, 0, "w1")

    await eventually(repair.repair_once, 20, "the chat is overdue")

    seq = 1 + (await list_entry_roles(container, chat)).index(("dave", "member"))
    assert await container.inboxes.get_marks(DAVE, chat) == UserMarks(seq - 1, seq - 1)
    assert await container.hot.call("HLEN", container.hot.keys.turnover(chat)) == 0


@pytest.mark.parametrize("loss", ["epoch", "all data"])
async def test_new_member_reads_nothing_before_the_join_after_a_loss_of_redis(
    container: StorageContainer, group: Audience, loss: str
) -> None:
    """A message sent during the join cannot be read, before and after the repair."""
    chat, keys = group.chat, container.hot.keys
    async with running(persister_of(container).run()):
        await crash(container, "after_directory", ALICE, frames.Invite, chat, users=[DAVE])
        await Gateway(container.hot).send(group, "secret")
        await container.membership_propagation.apply(await container.directory.get_chat(chat))

        await eventually_equal(lambda: count_backlog(container), 0)
    before = container.hot.get_epoch(0)
    if loss == "all data":
        await container.hot.call("FLUSHDB")
    else:
        await container.hot.call("HSET", keys.epoch(0), "epoch", "another")
    await eventually(lambda: container.hot.get_epoch(0) not in {"", before})
    check = MemberCheck(container.hot, container.audiences)

    loaded = await check.get_reader(chat, DAVE)
    await container.membership_propagation.finish(chat)
    repaired = await check.get_reader(chat, DAVE)
    stored = {each.user: each.joined for each in await container.directory.list_members(chat)}

    assert (loaded.first, repaired.first, stored[DAVE]) == (2, 2, 2)
    entries = await container.messages.list_after(chat, 0, 10)
    assert [(entry.kind, entry.user) for entry in entries] == [("text", None), ("member", "dave")]
    assert (await container.directory.get_chat(chat)).change is None


async def test_join_followed_by_another_change_is_stored_in_the_directory(
    container: StorageContainer, group: Audience
) -> None:
    """The first seq of a member is stored before the chat item records the next change."""
    chat = group.chat
    await crash(container, "after_directory", ALICE, frames.Invite, chat, users=[DAVE])
    await Gateway(container.hot).send(group, "secret")
    await crash(container, "after_redis", ALICE, frames.UpdateChat, chat, name="Other")

    stored = {each.user: each.joined for each in await container.directory.list_members(chat)}
    assert stored[DAVE] == 2


async def test_leave_of_the_owner_transfers_ownership_and_the_last_leave_ends_the_chat(
    container: StorageContainer, group: Audience
) -> None:
    """A chat without members does not exist."""
    chat = group.chat
    await change(container, ALICE, frames.UpdateChat, chat, joining="open")
    await change(container, ALICE, frames.SetRole, chat, user=CAROL, role="admin")
    for user in (ALICE, CAROL, BOB):
        await change(container, user, frames.Leave, chat)
        members = await container.directory.list_members(chat)
        assert [member.joined for member in members] == [0] * len(members)

    assert (await list_entry_roles(container, chat))[1:] == [
        ("carol", "admin"),
        ("alice", ""),
        ("carol", "owner"),
        ("carol", ""),
        ("bob", "owner"),
        ("bob", ""),
    ]
    with pytest.raises(NotFound):
        await change(container, DAVE, frames.Join, chat)


async def test_entries_of_changes_are_persisted_like_messages(
    container: StorageContainer, group: Audience
) -> None:
    """History returns the same entries from both tiers."""
    chat = group.chat
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    await change(container, ALICE, frames.UpdateChat, chat, name="Other", joining="open")
    hot = await entries_of(container, chat)

    await persist(container)

    assert await container.messages.list_after(chat, 0, 10) == hot
    assert [(entry.kind, entry.name, entry.body) for entry in hot] == [
        ("member", None, ""),
        ("update", "Other", '{"joining":"open"}'),
    ]
