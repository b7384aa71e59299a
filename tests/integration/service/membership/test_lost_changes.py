"""Membership changes whose entries Redis lost before they were stored are made once more."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_periods import Period, Periods
from chatserver.domain.messages import Audience
from chatserver.errors import Unavailable
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol import frames
from chatserver.service.membership import change_records
from chatserver.service.membership import service as membership
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    is_drained,
    lose_redis,
    make_group,
    make_users,
    open_parts,
    persister_of,
    running,
    stored_of,
)
from tests.integration.workers.test_membership import asked, inbox_of, says
from tests.support.servers.processes import eventually
from workers.container import WorkerContainer
from workers.repair import RepairWorker

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

DAVE = UserId("dave")
INVITED, LEFT, NAMED = ("dave", "member"), ("bob", ""), (None, None)


@pytest.fixture
async def parts(redis_url: str, tables: Tables) -> Any:
    """A worker's parts."""
    async with open_parts(redis_url, tables.settings) as parts:
        yield parts


@pytest.fixture
async def group(parts: WorkerContainer) -> Audience:
    """A group of three; Dave has an account."""
    await make_users(parts, DAVE)
    return await make_group(parts, ALICE, BOB, CAROL)


async def persist(parts: WorkerContainer) -> None:
    """Store all that Redis has."""
    async with running(persister_of(parts).run()):
        await eventually(lambda: is_drained(parts))


async def begin_epoch(parts: WorkerContainer) -> None:
    """Begin another epoch with all that Redis has."""
    before = parts.hot.epoch_of(0)
    await parts.hot.call("HSET", parts.hot.keys.epoch(0), "epoch", f"{before}+")
    await eventually(lambda: parts.hot.epoch_of(0) not in {"", before})


async def history(parts: WorkerContainer, chat: ChatId) -> list[tuple[str | None, str | None]]:
    """User and role of each stored entry."""
    return [(entry.user, entry.role) for entry in await stored_of(parts, chat)]


async def joined(parts: WorkerContainer, chat: ChatId) -> int:
    """The seq at which Dave joined, as the directory has it."""
    members = await parts.directory.list_members(chat)
    return next(each.joined for each in members if each.user == DAVE)


async def periods_of(parts: WorkerContainer, chat: ChatId) -> Periods:
    """Dave's earlier periods, as the directory has them."""
    members = await parts.directory.list_members(chat)
    return next(each.periods for each in members if each.user == DAVE)


async def send_one_stored_and_two_not(parts: WorkerContainer, group: Audience) -> Gateway:
    """Send three messages of which Redis can lose the last two; return their gateway."""
    gateway = Gateway(parts.hot)
    await gateway.send(group, "one")
    await persist(parts)
    await gateway.send(group, "two", "three")
    return gateway


async def change_three_times(parts: WorkerContainer, chat: ChatId) -> None:
    """Acknowledged changes that every member received."""
    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await parts.membership.change(BOB, asked(frames.Leave, chat))
    await parts.membership.change(ALICE, asked(frames.UpdateChat, chat, name="Other"))


@pytest.mark.parametrize("stored", [0, 1, 3])
async def test_entries_that_are_lost_are_made_again_and_no_others(
    parts: WorkerContainer, group: Audience, stored: int
) -> None:
    """Each is in the history once, in order, after two losses; the row forgets them when stored."""
    chat = group.chat
    made = [INVITED, LEFT, NAMED]
    if stored == 1:
        await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
        await persist(parts)
        await parts.membership.change(BOB, asked(frames.Leave, chat))
        await parts.membership.change(ALICE, asked(frames.UpdateChat, chat, name="Other"))
    else:
        await change_three_times(parts, chat)
    if stored == 3:
        await persist(parts)

    for _ in range(2):
        await lose_redis(parts)
        await parts.audiences.get(chat)
    await persist(parts)
    assert await parts.turnover.finish(chat)
    await lose_redis(parts)
    await parts.audiences.get(chat)
    await persist(parts)

    assert await history(parts, chat) == made
    row = await parts.directory.get_chat(chat)
    assert not row.change
    assert not row.unstored


async def test_entries_that_redis_kept_are_not_made_again(
    parts: WorkerContainer, group: Audience
) -> None:
    """A Redis that starts again with all it had needs no references to know its own changes."""
    chat, keys = group.chat, parts.hot.keys
    await change_three_times(parts, chat)
    await parts.hot.call("DEL", keys.refs_even(chat), keys.refs_odd(chat))
    await begin_epoch(parts)

    await parts.audiences.get(chat)
    await persist(parts)

    assert await history(parts, chat) == [INVITED, LEFT, NAMED]


async def test_entries_are_found_below_the_newest_messages(
    parts: WorkerContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More was stored since than a load reads."""
    chat = group.chat
    monkeypatch.setattr("chatserver.service.history.newest_messages.RECENT_MESSAGES", 2)
    monkeypatch.setattr("chatserver.service.membership.lost_changes._PAGE", 3)
    await change_three_times(parts, chat)
    await Gateway(parts.hot).send(await parts.audiences.get_fresh(chat), *"abcdefg")
    await persist(parts)

    await lose_redis(parts)
    await parts.audiences.get(chat)
    await persist(parts)

    assert (await history(parts, chat))[:3] == [INVITED, LEFT, NAMED]
    assert len(await history(parts, chat)) == 10


async def test_member_whose_join_is_made_again_reads_from_its_new_place(
    parts: WorkerContainer, group: Audience
) -> None:
    """In Redis at once, in the directory when it is stored; what the join overtook is hidden."""
    chat = group.chat
    await send_one_stored_and_two_not(parts, group)
    await change_three_times(parts, chat)
    assert await joined(parts, chat) == 4

    await lose_redis(parts)
    loaded = await MemberCheck(parts.hot, parts.audiences).get_reader(chat, DAVE)
    assert not await parts.turnover.finish(chat)
    finished = await joined(parts, chat)
    await persist(parts)
    await lose_redis(parts)
    again = await MemberCheck(parts.hot, parts.audiences).get_reader(chat, DAVE)

    assert (loaded.first, finished, again.first) == (2, 2, 2)
    assert (await inbox_of(parts, BOB)) == []
    assert await history(parts, chat) == [(None, None), INVITED, LEFT, NAMED]


async def test_member_who_left_hears_of_it_when_it_is_made_again(
    parts: WorkerContainer, group: Audience
) -> None:
    """As the last entry, like the first time."""
    chat = group.chat
    await change_three_times(parts, chat)

    await lose_redis(parts)
    await parts.audiences.get(chat)
    await parts.turnover.finish(chat)

    assert BOB not in (await parts.audiences.get(chat)).users
    assert (await inbox_of(parts, BOB))[-1] == 2
    assert (await inbox_of(parts, DAVE))[-2:] == [2, 3]
    assert await says(parts, chat) == [INVITED, LEFT, NAMED]


@pytest.mark.parametrize("is_finished", [True, False])
async def test_member_reads_a_period_of_which_both_ends_were_made_again(
    parts: WorkerContainer, group: Audience, is_finished: bool
) -> None:
    """Redis lost the join and the leave. A user who rejoins reads the whole period, and no more."""
    chat = group.chat
    gateway = await send_one_stored_and_two_not(parts, group)
    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await parts.membership.change(DAVE, asked(frames.Leave, chat))
    await lose_redis(parts)
    await gateway.send(await parts.audiences.get_fresh(chat), "four")
    if is_finished:
        await persist(parts)
        assert await parts.turnover.finish(chat)

    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))

    assert await periods_of(parts, chat) == ((2, 3),)
    assert await joined(parts, chat) == 5


async def test_period_begins_where_the_join_was_made_again(
    parts: WorkerContainer, group: Audience
) -> None:
    """The user leaves before the directory has the new place of the join."""
    chat = group.chat
    await send_one_stored_and_two_not(parts, group)
    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await lose_redis(parts)

    await parts.membership.change(DAVE, asked(frames.Leave, chat))
    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))

    assert await periods_of(parts, chat) == ((2, 3),)


async def test_member_who_rejoins_between_two_losses_reads_nothing_from_between(
    parts: WorkerContainer, group: Audience
) -> None:
    """The row forgets changes oldest first: a later load finds no join without the leave after it.

    The first loss makes the directory check the seq of Dave's first join; the changes after it are
    stored before that.
    """
    chat, gateway = group.chat, Gateway(parts.hot)
    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await persist(parts)
    await lose_redis(parts)
    await parts.membership.change(DAVE, asked(frames.Leave, chat))
    await gateway.send(await parts.audiences.get(chat), "secret")
    await parts.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
    await persist(parts)
    await parts.membership.change(ALICE, asked(frames.UpdateChat, chat, name="Other"))
    await lose_redis(parts)

    await parts.audiences.get(chat)

    readers = MemberCheck(parts.hot, parts.audiences, parts.memberships)
    reader = await readers.get_reader(chat, DAVE)
    assert (reader.first, await periods_of(parts, chat)) == (4, (Period(1, 2),))


async def test_change_that_is_repeated_after_a_loss_of_redis_is_not_made_twice(
    parts: WorkerContainer, group: Audience
) -> None:
    """It was stored, and its answer lost; nobody has loaded the chat since (P2)."""
    chat = group.chat
    renamed = asked(frames.UpdateChat, chat, name="Other")
    await parts.membership.change(ALICE, renamed)
    await persist(parts)
    assert await parts.turnover.finish(chat)

    await lose_redis(parts)
    await parts.membership.change(ALICE, renamed)
    await persist(parts)

    assert await history(parts, chat) == [NAMED]


async def test_changes_wait_for_those_before_them_to_be_stored(
    parts: WorkerContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row keeps a bounded number; one more is refused for now, and made once there is room."""
    chat = group.chat
    monkeypatch.setattr(change_records, "UNSTORED_MAX", 3)
    monkeypatch.setattr(membership, "ATTEMPTS_MAX", 2)
    await change_three_times(parts, chat)
    more = asked(frames.UpdateChat, chat, name="More")

    with pytest.raises(Unavailable):
        await parts.membership.change(ALICE, more)
    await persist(parts)
    info = await parts.membership.change(ALICE, more)

    assert info.name == "More"
    assert len(await says(parts, chat)) == 4


async def test_redis_forgets_places_of_the_oldest_changes_first(
    parts: WorkerContainer, group: Audience
) -> None:
    """A load finds as many as Redis remembers, then as many again are made before they are stored.

    A change whose place Redis has forgotten would never count as stored.
    """
    chat = group.chat

    async def rename(*numbers: int) -> None:
        for number in numbers:
            await parts.membership.change(ALICE, asked(frames.UpdateChat, chat, name=f"{number}"))

    await rename(*range(20))
    await persist(parts)
    await begin_epoch(parts)
    await rename(*range(20, change_records.UNSTORED_MAX))
    await begin_epoch(parts)
    await parts.audiences.get(chat)
    assert not await parts.turnover.finish(chat)
    await rename(*range(change_records.UNSTORED_MAX, 20 + change_records.UNSTORED_MAX))

    await persist(parts)

    assert await parts.turnover.finish(chat)


async def test_repair_looks_again_until_changes_are_stored(
    parts: WorkerContainer, group: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One note for a chat, whatever the number of changes; gone when the row keeps none of them."""
    chat, key = group.chat, parts.hot.keys.changing(0)
    monkeypatch.setattr("chatserver.hot.chats.membership.UNSTORED_S", 0.0)
    repair = RepairWorker(parts, 0, "w1")
    await change_three_times(parts, chat)

    assert await parts.hot.call("ZCARD", key) == 1
    assert await repair.finish_changes() == 1
    assert await parts.hot.call("ZCARD", key) == 1
    await persist(parts)
    assert await repair.finish_changes() == 1

    assert await parts.hot.call("ZCARD", key) == 0
    assert not (await parts.directory.get_chat(chat)).unstored
