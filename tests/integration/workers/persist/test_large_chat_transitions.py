"""Large-chat transitions with late, interrupted or concurrent notifications of members."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.errors import Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.protocol import frames
from chatserver.service.membership.membership_propagation import MembershipPropagation
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    change,
    empty_redis,
    make_group,
    make_users,
    open_container,
)

DAVE = UserId("dave")
SMALL = config.Chats(fanout_members_max=3, invitations="never")


async def list_transitions(container: StorageContainer, user: UserId) -> list[int | str]:
    """Return the content of an inbox: chat seqs of entries, and large-chat transitions."""
    found = await container.inboxes.list_after(user, Seq(0), 500)
    events: list[int | str] = []
    for entry in found:
        if entry.body is None:
            events.append(int(entry.cs))
        elif b'"since":' in entry.body:
            since = int(entry.body.split(b'"since":')[1].split(b",")[0].rstrip(b"}"))
            events.append(("large" if b'"large":true' in entry.body else "small") + f" {since}")
    return events


@contextlib.contextmanager
def no_notifications() -> Iterator[pytest.MonkeyPatch]:
    """Suppress notifications, as if each process crashed before sending them."""

    async def do_nothing(_self: MembershipPropagation, _record: Any) -> None:
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MembershipPropagation, "deliver", do_nothing)
        yield patch


def notify_only(container: StorageContainer, patch: pytest.MonkeyPatch, user: UserId) -> None:
    """Notify only one user of a transition, as if the process crashed after that."""
    turn = container.inboxes.append_transition

    async def notify_one(chat: ChatId, version: int, news: Any, **more: Any) -> Any:
        await turn(chat, version, [each for each in news if each[0] == user], **more)
        raise Unavailable("other users were not notified")

    patch.setattr(container.inboxes, "append_transition", notify_one)


async def save_redis(container: StorageContainer) -> dict[bytes, bytes]:
    """Return a dump of all keys of Redis."""
    keys = await container.hot.call("KEYS", "*")
    return {key: await container.hot.call("DUMP", key) for key in keys}


async def restore_redis(container: StorageContainer, saved: dict[bytes, bytes]) -> None:
    """Restore Redis from a dump in a new epoch; wait until the process detects it."""
    await empty_redis(container)
    epoch_key = container.hot.keys.epoch(0).encode()
    for key, value in saved.items():
        if key != epoch_key:
            await container.hot.call("RESTORE", key, 0, value, "REPLACE")


async def make_small(container: StorageContainer, chat: ChatId) -> None:
    """Remove two of four members, so that the chat is small again (entries 2 and 3)."""
    for user in (BOB, CAROL):
        await change(container, ALICE, frames.Remove, chat, user=user)


@pytest.fixture
async def container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The container of a worker, for which chats of more than three members are large."""
    async with open_container(redis_url, tables.settings, chats=SMALL) as made:
        yield made


@pytest.fixture
async def chat(container: StorageContainer) -> ChatId:
    """A small group of alice, bob and carol; dave is not a member."""
    await make_users(container, DAVE)
    return (await make_group(container, ALICE, BOB, CAROL)).chat


async def test_member_who_joined_and_left_gets_both_transitions(
    container: StorageContainer, chat: ChatId
) -> None:
    """The large and the small transition and the leave are delivered late, without a gap."""
    with no_notifications():
        await change(container, ALICE, frames.Invite, chat, users=[DAVE])
        await make_small(container, chat)
        await change(container, DAVE, frames.Leave, chat)

    await container.membership_propagation.finish(chat)

    assert await list_transitions(container, ALICE) == [1, "large 1", "small 3", 4]
    assert await list_transitions(container, DAVE) == [1, "large 1", "small 3", 4]
    # Members who left while the chat was large get only their last entry in the inbox.
    assert await list_transitions(container, BOB) == [1, "large 1", 2]
    assert await list_transitions(container, CAROL) == [1, "large 1", 3]
    assert await container.hot.call("HLEN", container.hot.keys.turnover(chat)) == 0


async def test_transition_during_the_notification_of_another_keeps_the_order(
    container: StorageContainer, chat: ChatId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later entries are delivered after the transition, by any process."""
    with no_notifications():
        await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    get_with_notices = container.audiences.get_with_notices

    async def get_late(chat: ChatId) -> Any:
        found = await get_with_notices(chat)
        with no_notifications() as patch:
            patch.setattr(container.audiences, "get_with_notices", get_with_notices)
            await make_small(container, chat)
        await Gateway(container.hot).send(await container.audiences.get_fresh(chat), "four")
        monkeypatch.setattr(container.audiences, "get_with_notices", get_with_notices)
        return found

    monkeypatch.setattr(container.audiences, "get_with_notices", get_late)
    await container.membership_propagation.finish(chat)
    await container.membership_propagation.finish(chat)

    for user in (ALICE, DAVE):
        assert await list_transitions(container, user) == [1, "large 1", "small 3", 4]
    assert await list_transitions(container, BOB) == [1, "large 1", 2]
    assert await list_transitions(container, CAROL) == [1, "large 1", 3]


async def test_user_state_loaded_before_a_transition_gets_each_entry_once(
    container: StorageContainer, chat: ChatId
) -> None:
    """After a loss of Redis, an entry in the inbox is not delivered from the log too (P4)."""
    with no_notifications():
        await change(container, ALICE, frames.Invite, chat, users=[DAVE])
        await change(container, ALICE, frames.UpdateChat, chat, name="Other")
    await empty_redis(container)
    for user in (ALICE, DAVE):
        await container.user_loader.load_user(user)
    subscriptions = LargeChatSubscriptions(container.hot, GatewayId("gw1"), 60)
    before = [await subscriptions.list_large(user) for user in (ALICE, DAVE)]
    await container.chat_loader.load_chat(chat)
    entries = [entry.seq for entry in await ChatLog(container.hot).list_before(chat, None, 9)]

    await container.membership_propagation.finish(chat)

    assert before == [{}, {}]
    for user in (ALICE, DAVE):
        events = await list_transitions(container, user)
        large = (await subscriptions.list_large(user))[chat]
        assert events[-1] == f"large {large.since}"
        assert [seq for seq in entries if seq <= large.since] == events[:-1]


async def test_transition_lost_with_redis_is_delivered_again(
    container: StorageContainer, chat: ChatId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then there is no subscription, so no entry overtakes those in the inbox (P4)."""
    with monkeypatch.context() as patch:
        notify_only(container, patch, ALICE)
        await change(container, ALICE, frames.Invite, chat, users=[DAVE])
    saved = await save_redis(container)
    with no_notifications():
        await Gateway(container.hot).send(await container.audiences.get_fresh(chat), "lost")
        await change(container, ALICE, frames.UpdateChat, chat, name="Other")
    await restore_redis(container, saved)
    await container.user_loader.load_user(ALICE)
    subscriptions = LargeChatSubscriptions(container.hot, GatewayId("gw1"), 60)
    before = await subscriptions.list_large(ALICE)

    await container.chat_loader.load_chat(chat)
    await container.membership_propagation.finish(chat)

    assert before == {}
    assert await list_transitions(container, ALICE) == [1, "large 1", 2, "large 2"]
    for user in (BOB, DAVE):
        assert (await list_transitions(container, user))[-2:] == [2, "large 2"]
    assert (await subscriptions.list_large(ALICE))[chat].since == 2
