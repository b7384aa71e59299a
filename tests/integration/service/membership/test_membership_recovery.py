"""Recovery: membership changes whose entries Redis lost before they were stored are repeated."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_periods import Period, Periods
from chatserver.domain.messages import Audience
from chatserver.errors import Unavailable
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol import frames
from chatserver.service.membership import group_membership, unstored_membership_changes
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    change,
    crash,
    empty_redis,
    make_group,
    make_users,
    persist,
    stored_of,
)
from tests.integration.workers.test_membership import inbox_of, list_entry_roles
from tests.support.servers.processes import eventually
from workers.delivery_repair import RepairWorker

DAVE = UserId("dave")
INVITED, LEFT, NAMED = ("dave", "member"), ("bob", ""), (None, None)


@pytest.fixture
async def group(container: StorageContainer) -> Audience:
    """A group of three; Dave has an account."""
    await make_users(container, DAVE)
    return await make_group(container, ALICE, BOB, CAROL)


async def begin_epoch(container: StorageContainer) -> None:
    """Start a new epoch without losing data."""
    before = container.hot.get_epoch(0)
    await container.hot.call("HSET", container.hot.keys.epoch(0), "epoch", f"{before}+")
    await eventually(lambda: container.hot.get_epoch(0) not in {"", before})


async def history(container: StorageContainer, chat: ChatId) -> list[tuple[str | None, str | None]]:
    """Return the user and role of each stored entry."""
    return [(entry.user, entry.role) for entry in await stored_of(container, chat)]


async def joined(container: StorageContainer, chat: ChatId) -> int:
    """Return the seq of Dave's join from the directory."""
    members = await container.directory.list_members(chat)
    return next(each.joined for each in members if each.user == DAVE)


async def periods_of(container: StorageContainer, chat: ChatId) -> Periods:
    """Return Dave's earlier periods from the directory."""
    members = await container.directory.list_members(chat)
    return next(each.periods for each in members if each.user == DAVE)


async def send_one_stored_and_two_not(container: StorageContainer, group: Audience) -> Gateway:
    """Send three messages of which Redis can lose the last two; return the gateway."""
    gateway = Gateway(container.hot)
    await gateway.send(group, "one")
    await persist(container)
    await gateway.send(group, "two", "three")
    return gateway


async def change_three_times(container: StorageContainer, chat: ChatId) -> None:
    """Make three changes, which are acknowledged and fanned out."""
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    await change(container, BOB, frames.Leave, chat)
    await change(container, ALICE, frames.UpdateChat, chat, name="Other")


@pytest.mark.parametrize("stored", [0, 1, 3])
async def test_lost_entries_are_repeated_and_no_others(
    container: StorageContainer, group: Audience, stored: int
) -> None:
    """After two losses, each entry is in the history once and in order.

    The row drops stored ones.
    """
    chat = group.chat
    made = [INVITED, LEFT, NAMED]
    if stored == 1:
        await change(container, ALICE, frames.Invite, chat, users=[DAVE])
        await persist(container)
        await change(container, BOB, frames.Leave, chat)
        await change(container, ALICE, frames.UpdateChat, chat, name="Other")
    else:
        await change_three_times(container, chat)
    if stored == 3:
        await persist(container)

    for _ in range(2):
        await empty_redis(container)
        await container.audiences.get(chat)
    await persist(container)
    assert await container.membership_propagation.finish(chat)
    await empty_redis(container)
    await container.audiences.get(chat)
    await persist(container)

    assert await history(container, chat) == made
    row = await container.directory.get_chat(chat)
    assert not row.change
    assert not row.unstored


async def test_entries_that_redis_kept_are_not_repeated(
    container: StorageContainer, group: Audience
) -> None:
    """After a restart without a loss, changes are recognized even without their refs."""
    chat, keys = group.chat, container.hot.keys
    await change_three_times(container, chat)
    fields = await container.hot.call("HKEYS", keys.chat(chat))
    refs = [field for field in fields if field.startswith(b"#")]
    assert await container.hot.call("HDEL", keys.chat(chat), *refs) == len(refs) > 0
    await begin_epoch(container)

    await container.audiences.get(chat)
    await persist(container)

    assert await history(container, chat) == [INVITED, LEFT, NAMED]


async def test_entries_older_than_the_newest_messages_are_found(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since then, more messages were stored than a chat load reads."""
    chat = group.chat
    monkeypatch.setattr("chatserver.service.history.newest_messages.RECENT_MESSAGES", 2)
    monkeypatch.setattr("chatserver.service.membership.membership_recovery._PAGE", 3)
    await change_three_times(container, chat)
    await Gateway(container.hot).send(await container.audiences.get_fresh(chat), *"abcdefg")
    await persist(container)

    await empty_redis(container)
    await container.audiences.get(chat)
    await persist(container)

    assert (await history(container, chat))[:3] == [INVITED, LEFT, NAMED]
    assert len(await history(container, chat)) == 10


async def test_member_whose_join_is_repeated_reads_from_its_new_seq(
    container: StorageContainer, group: Audience
) -> None:
    """Redis and the directory have the new seq, also after another loss."""
    chat = group.chat
    await send_one_stored_and_two_not(container, group)
    await change_three_times(container, chat)
    assert await joined(container, chat) == 4

    await empty_redis(container)
    loaded = await MemberCheck(container.hot, container.audiences).get_reader(chat, DAVE)
    assert not await container.membership_propagation.finish(chat)
    finished = await joined(container, chat)
    await persist(container)
    await empty_redis(container)
    again = await MemberCheck(container.hot, container.audiences).get_reader(chat, DAVE)

    assert (loaded.first, finished, again.first) == (2, 2, 2)
    assert (await inbox_of(container, BOB)) == []
    assert await history(container, chat) == [(None, None), INVITED, LEFT, NAMED]


async def test_join_that_redis_never_had_gets_its_seq_although_it_is_lower(
    container: StorageContainer, group: Audience
) -> None:
    """Redis loses messages between the two writes of the join."""
    chat = group.chat
    await send_one_stored_and_two_not(container, group)
    await crash(container, "after_directory", ALICE, frames.Invite, chat, users=[DAVE])
    assert await joined(container, chat) == 4
    await empty_redis(container)

    await change(container, ALICE, frames.UpdateChat, chat, name="Other")
    assert await joined(container, chat) == 2
    await persist(container)
    await change(container, ALICE, frames.UpdateChat, chat, name="Another")
    await empty_redis(container)

    readers = MemberCheck(container.hot, container.audiences, container.memberships)
    assert (await readers.get_reader(chat, DAVE)).first == 2


async def test_member_who_left_is_notified_when_the_leave_is_repeated(
    container: StorageContainer, group: Audience
) -> None:
    """The leave is the last event in their inbox, as it was the first time."""
    chat = group.chat
    await change_three_times(container, chat)

    await empty_redis(container)
    await container.audiences.get(chat)
    await container.membership_propagation.finish(chat)

    assert BOB not in (await container.audiences.get(chat)).users
    assert (await inbox_of(container, BOB))[-1] == 2
    assert (await inbox_of(container, DAVE))[-2:] == [2, 3]
    assert await list_entry_roles(container, chat) == [INVITED, LEFT, NAMED]


@pytest.mark.parametrize("is_finished", [True, False])
async def test_member_reads_a_period_whose_join_and_leave_were_repeated(
    container: StorageContainer, group: Audience, is_finished: bool
) -> None:
    """Redis lost the join and the leave. A user who rejoins reads exactly that period."""
    chat = group.chat
    gateway = await send_one_stored_and_two_not(container, group)
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    await change(container, DAVE, frames.Leave, chat)
    await empty_redis(container)
    await gateway.send(await container.audiences.get_fresh(chat), "four")
    if is_finished:
        await persist(container)
        assert await container.membership_propagation.finish(chat)

    await change(container, ALICE, frames.Invite, chat, users=[DAVE])

    assert await periods_of(container, chat) == ((2, 3),)
    assert await joined(container, chat) == 5


async def test_period_begins_at_the_repeated_join(
    container: StorageContainer, group: Audience
) -> None:
    """The user leaves before the directory has the new seq of the join."""
    chat = group.chat
    await send_one_stored_and_two_not(container, group)
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    await empty_redis(container)

    await change(container, DAVE, frames.Leave, chat)
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])

    assert await periods_of(container, chat) == ((2, 3),)


async def test_member_who_rejoins_between_two_losses_does_not_read_the_gap(
    container: StorageContainer, group: Audience
) -> None:
    """The row drops the oldest changes first, so a later load finds no join without its leave.

    The first loss makes the directory check the seq of Dave's first join. The changes after it are
    stored before that.
    """
    chat, gateway = group.chat, Gateway(container.hot)
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    await persist(container)
    await empty_redis(container)
    await change(container, DAVE, frames.Leave, chat)
    await gateway.send(await container.audiences.get(chat), "secret")
    await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    await persist(container)
    await change(container, ALICE, frames.UpdateChat, chat, name="Other")
    await empty_redis(container)

    await container.audiences.get(chat)

    readers = MemberCheck(container.hot, container.audiences, container.memberships)
    reader = await readers.get_reader(chat, DAVE)
    assert (reader.first, await periods_of(container, chat)) == (4, (Period(1, 2),))


async def test_change_retried_after_a_loss_of_redis_is_not_made_twice(
    container: StorageContainer, group: Audience
) -> None:
    """The change was stored, its response was lost, and the chat was not loaded since (P2)."""
    chat = group.chat
    renamed = {"ref": "r1", "name": "Other"}
    await change(container, ALICE, frames.UpdateChat, chat, **renamed)
    await persist(container)
    assert await container.membership_propagation.finish(chat)

    await empty_redis(container)
    await change(container, ALICE, frames.UpdateChat, chat, **renamed)
    await persist(container)

    assert await history(container, chat) == [NAMED]


async def test_change_beyond_the_limit_of_unstored_changes_is_unavailable(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row holds a limited number. A retry succeeds once earlier changes are stored."""
    chat = group.chat
    monkeypatch.setattr(unstored_membership_changes, "UNSTORED_MAX", 3)
    monkeypatch.setattr(group_membership, "ATTEMPTS_MAX", 2)
    await change_three_times(container, chat)
    more = {"ref": "r1", "name": "More"}

    with pytest.raises(Unavailable):
        await change(container, ALICE, frames.UpdateChat, chat, **more)
    await persist(container)
    info = await change(container, ALICE, frames.UpdateChat, chat, **more)

    assert info.name == "More"
    assert len(await list_entry_roles(container, chat)) == 4


async def test_redis_drops_the_seqs_of_the_oldest_changes_first(
    container: StorageContainer, group: Audience
) -> None:
    """A load finds as many changes as Redis keeps.

    The same number is made before those are stored. A change whose seq Redis dropped too early
    would never count as stored.
    """
    chat = group.chat

    async def rename(*numbers: int) -> None:
        for number in numbers:
            await change(container, ALICE, frames.UpdateChat, chat, name=f"{number}")

    await rename(*range(20))
    await persist(container)
    await begin_epoch(container)
    await rename(*range(20, unstored_membership_changes.UNSTORED_MAX))
    await begin_epoch(container)
    await container.audiences.get(chat)
    assert not await container.membership_propagation.finish(chat)
    await rename(
        *range(
            unstored_membership_changes.UNSTORED_MAX, 20 + unstored_membership_changes.UNSTORED_MAX
        )
    )

    await persist(container)

    assert await container.membership_propagation.finish(chat)


async def test_repair_retries_until_changes_are_stored(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chat has one repair record for all its changes. It is deleted when all are stored."""
    chat, key = group.chat, container.hot.keys.changing(0)
    monkeypatch.setattr("chatserver.hot.chats.membership.UNSTORED_S", 0.0)
    repair = RepairWorker(container, 0, "w1")
    await change_three_times(container, chat)

    assert await container.hot.call("ZCARD", key) == 1
    assert await repair.finish_changes() == 1
    assert await container.hot.call("ZCARD", key) == 1
    await persist(container)
    assert await repair.finish_changes() == 1

    assert await container.hot.call("ZCARD", key) == 0
    assert not (await container.directory.get_chat(chat)).unstored


async def test_repair_interrupted_at_any_call_keeps_the_record_of_unstored_changes(
    container: StorageContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a record, nothing would correct the chat's item after its entries are stored."""
    chat, key = group.chat, container.hot.keys.changing(0)
    monkeypatch.setattr("chatserver.hot.chats.membership.UNSTORED_S", 0.0)
    repair, send = RepairWorker(container, 0, "w1"), container.hot.send
    await change_three_times(container, chat)

    async def repair_with_calls(count: int) -> bool:
        calls, task = 0, asyncio.current_task()

        def send_some(on_reply: Any, *args: Any) -> None:
            nonlocal calls
            calls += asyncio.current_task() is task
            if calls > count and asyncio.current_task() is task:
                raise Unavailable("redis: not connected")
            send(on_reply, *args)

        with monkeypatch.context() as patch, contextlib.suppress(Unavailable):
            patch.setattr(container.hot, "send", send_some)
            await repair.finish_changes()
        return calls <= count

    for count in range(1, 100):
        is_done = await repair_with_calls(count)
        assert await container.hot.call("ZCARD", key) == 1, f"interrupted after {count} calls"
        if is_done:
            break
    assert count > 3
