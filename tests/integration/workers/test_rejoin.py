"""Periods of members who rejoin are correct after any crash and any loss of Redis."""

from __future__ import annotations

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Period, Periods
from chatserver.domain.messages import Audience
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.protocol import frames
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    change,
    count_backlog,
    crash,
    empty_redis,
    make_group,
    persister_of,
    running,
)
from tests.integration.workers.test_membership import entries_of, list_entry_roles
from tests.support.servers.processes import eventually


@pytest.fixture
async def group(container: StorageContainer) -> Audience:
    """A group of alice, the owner, bob and carol."""
    return await make_group(container, ALICE, BOB, CAROL)


async def periods_of(container: StorageContainer, chat: ChatId, user: UserId) -> Periods:
    """Return the earlier membership periods of a member."""
    return await container.memberships.find_periods(chat, user)


async def is_stored(container: StorageContainer) -> bool:
    """Return whether the backlog is empty."""
    return await count_backlog(container) == 0


@pytest.mark.parametrize("failpoint", ["after_directory", "after_redis"])
async def test_crashed_leave_ends_the_period_at_its_entry(
    container: StorageContainer, group: Audience, failpoint: str
) -> None:
    """Messages before the entry in Redis belong to the period. Later ones do not."""
    chat, gateway = group.chat, Gateway(container.hot)
    await gateway.send(group, "one")
    await crash(container, failpoint, BOB, frames.Leave, chat)
    await gateway.send(await container.audiences.get_fresh(chat), "two")

    await change(container, ALICE, frames.Invite, chat, users=[BOB])

    left = 1 + (await list_entry_roles(container, chat)).index(("bob", ""))
    assert left == (3 if failpoint == "after_directory" else 2)
    assert await periods_of(container, chat, BOB) == (Period(1, left),)


async def test_period_of_a_leave_lost_with_redis_ends_at_the_repeated_entry(
    container: StorageContainer, group: Audience
) -> None:
    """The seqs of lost entries are assigned again. Those entries do not belong to the period."""
    chat, gateway = group.chat, Gateway(container.hot)
    async with running(persister_of(container).run()):
        await gateway.send(group, "one", "two")
        await eventually(lambda: is_stored(container))
    await gateway.send(group, "lost", "lost, too")
    await crash(container, "after_redis", BOB, frames.Leave, chat)
    assert (await list_entry_roles(container, chat))[-1] == ("bob", "")
    await empty_redis(container)
    await container.membership_propagation.finish(chat)
    await gateway.send(await container.audiences.get_fresh(chat), "secret", "secret, too")

    await change(container, ALICE, frames.Invite, chat, users=[BOB])

    left = next(each.seq for each in await entries_of(container, chat) if each.user == BOB)
    assert (left, await periods_of(container, chat, BOB)) == (3, (Period(1, 3),))


async def test_period_of_a_delivered_leave_lost_with_redis_ends_at_the_repeated_entry(
    container: StorageContainer, group: Audience
) -> None:
    """The entry of the leave is committed again with another seq."""
    chat, gateway = group.chat, Gateway(container.hot)
    async with running(persister_of(container).run()):
        await gateway.send(group, "one", "two")
        await eventually(lambda: is_stored(container))
    await gateway.send(group, "lost")
    await change(container, BOB, frames.Leave, chat)
    await empty_redis(container)
    await gateway.send(await container.audiences.get_fresh(chat), "secret", "secret, too")

    await change(container, ALICE, frames.Invite, chat, users=[BOB])

    texts = {entry.seq: entry.body for entry in await entries_of(container, chat)}
    assert [texts[seq] for seq in (3, 4, 5)] == ["", "secret", "secret, too"]
    assert await periods_of(container, chat, BOB) == (Period(1, 3),)


async def test_messages_deleted_for_oneself_stay_hidden_after_a_loss_of_redis_and_a_rejoin(
    container: StorageContainer, group: Audience
) -> None:
    """The user's state was loaded while they were not a member, without this chat."""
    chat, hidden = group.chat, HiddenMessages(container.hot)
    async with running(persister_of(container).run()):
        await Gateway(container.hot).send(group, "one")
        await hidden.hide(BOB, chat, Seq(1))
        await eventually(lambda: is_stored(container))
        await change(container, BOB, frames.Leave, chat)
        await eventually(lambda: is_stored(container))
    await empty_redis(container)
    await container.user_loader.load_user(BOB)
    assert await hidden.list_hidden(BOB, [chat]) == {}

    await change(container, ALICE, frames.Invite, chat, users=[BOB])

    assert await hidden.list_hidden(BOB, [chat]) == {chat: frozenset({1})}
