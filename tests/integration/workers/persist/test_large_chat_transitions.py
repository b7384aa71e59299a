"""A chat becomes large and small while its members are notified late or concurrently."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver import config
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.errors import Unavailable
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.protocol import frames
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    lose_redis,
    make_group,
    make_users,
    open_container,
)
from tests.integration.workers.test_membership import asked

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

DAVE = UserId("dave")
SMALL = config.Chats(fanout_members_max=3, invitations="never")


async def told(container: StorageContainer, user: UserId) -> list[int | str]:
    """The content of an inbox: chat seqs of entries, and large-chat transitions."""
    found = await container.inboxes.list_after(user, Seq(0), 500)
    words: list[int | str] = []
    for entry in found:
        if entry.body is None:
            words.append(int(entry.cs))
        elif b'"since":' in entry.body:
            since = int(entry.body.split(b'"since":')[1].split(b",")[0].rstrip(b"}"))
            words.append(("large" if b'"large":true' in entry.body else "small") + f" {since}")
    return words


def hold_back(container: StorageContainer, patch: pytest.MonkeyPatch) -> None:
    """Make changes without notifications, as if each process died then."""

    async def tell(_record: Any) -> None:
        return None

    patch.setattr(container.membership_propagation, "deliver", tell)


def tell_only(container: StorageContainer, patch: pytest.MonkeyPatch, user: UserId) -> None:
    """Notify only one user of a transition, as if the process died then."""
    turn = container.inboxes.turn

    async def turn_one(chat: ChatId, version: int, news: Any, **more: Any) -> Any:
        await turn(chat, version, [each for each in news if each[0] == user], **more)
        raise Unavailable("not told to the others")

    patch.setattr(container.inboxes, "turn", turn_one)


async def save_redis(container: StorageContainer) -> dict[bytes, bytes]:
    """Return all that Redis has."""
    keys = await container.hot.call("KEYS", "*")
    return {key: await container.hot.call("DUMP", key) for key in keys}


async def return_to(container: StorageContainer, saved: dict[bytes, bytes]) -> None:
    """Let Redis lose what it was given since; wait until that is noticed."""
    await lose_redis(container)
    epoch_key = container.hot.keys.epoch(0).encode()
    for key, value in saved.items():
        if key != epoch_key:
            await container.hot.call("RESTORE", key, 0, value, "REPLACE")


async def shrink(container: StorageContainer, chat: ChatId) -> None:
    """Make the group of four a small one: entries 2 and 3."""
    for user in (BOB, CAROL):
        await container.membership.change(ALICE, asked(frames.Remove, chat, user=user))


async def test_one_who_came_and_went_goes_both_ways_too(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told of all at once when it is over: up, down and gone, in that order and without a hole."""
    async with open_container(redis_url, tables.settings, chats=SMALL) as container:
        chat = (await make_group(container, ALICE, BOB, CAROL)).chat
        await make_users(container, DAVE)
        with monkeypatch.context() as patch:
            hold_back(container, patch)
            await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
            await shrink(container, chat)
            await container.membership.change(DAVE, asked(frames.Leave, chat))

        await container.membership_propagation.finish(chat)

        assert await told(container, ALICE) == [1, "large 1", "small 3", 4]
        assert await told(container, DAVE) == [1, "large 1", "small 3", 4]
        # Who left a large chat gets only his last entry by the inbox.
        assert await told(container, BOB) == [1, "large 1", 2]
        assert await told(container, CAROL) == [1, "large 1", 3]
        assert await container.hot.call("HLEN", container.hot.keys.turnover(chat)) == 0


async def test_turn_made_while_another_is_told_is_not_overtaken(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later entries are delivered after the transition, whichever process delivers them."""
    async with open_container(redis_url, tables.settings, chats=SMALL) as container:
        chat = (await make_group(container, ALICE, BOB, CAROL)).chat
        await make_users(container, DAVE)
        with monkeypatch.context() as patch:
            hold_back(container, patch)
            await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
        get_turning = container.audiences.get_turning

        async def get_late(chat: ChatId) -> Any:
            found = await get_turning(chat)
            with monkeypatch.context() as patch:
                hold_back(container, patch)
                patch.setattr(container.audiences, "get_turning", get_turning)
                await shrink(container, chat)
            await Gateway(container.hot).send(await container.audiences.get_fresh(chat), "four")
            monkeypatch.setattr(container.audiences, "get_turning", get_turning)
            return found

        monkeypatch.setattr(container.audiences, "get_turning", get_late)
        await container.membership_propagation.finish(chat)
        await container.membership_propagation.finish(chat)

        for user in (ALICE, DAVE):
            assert await told(container, user) == [1, "large 1", "small 3", 4]
        assert await told(container, BOB) == [1, "large 1", 2]
        assert await told(container, CAROL) == [1, "large 1", 3]


async def test_box_that_is_filled_before_a_transition_was_told_gets_each_entry_one_way(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of Redis, an event in the inbox does not come by the channel as well (P4)."""
    async with open_container(redis_url, tables.settings, chats=SMALL) as container:
        chat = (await make_group(container, ALICE, BOB, CAROL)).chat
        await make_users(container, DAVE)
        with monkeypatch.context() as patch:
            hold_back(container, patch)
            await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
            await container.membership.change(ALICE, asked(frames.UpdateChat, chat, name="Crowd"))
        await lose_redis(container)
        for user in (ALICE, DAVE):
            await container.user_loader.load_user(user)
        watchers = LargeChatSubscriptions(container.hot, GatewayId("gw1"), 60)
        before = [await watchers.list_large(user) for user in (ALICE, DAVE)]
        await container.chat_loader.load_chat(chat)
        entries = [entry.seq for entry in await ChatLog(container.hot).list_before(chat, None, 9)]

        await container.membership_propagation.finish(chat)

        assert before == [{}, {}]
        for user in (ALICE, DAVE):
            words = await told(container, user)
            place = (await watchers.list_large(user))[chat]
            assert words[-1] == f"large {place.since}"
            assert [seq for seq in entries if seq <= place.since] == words[:-1]


async def test_user_who_was_told_of_a_large_chat_that_redis_lost_is_told_again(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then no channel: its entries would overtake those that come by the inbox (P4)."""
    async with open_container(redis_url, tables.settings, chats=SMALL) as container:
        chat = (await make_group(container, ALICE, BOB, CAROL)).chat
        await make_users(container, DAVE)
        with monkeypatch.context() as patch:
            tell_only(container, patch, ALICE)
            await container.membership.change(ALICE, asked(frames.Invite, chat, users=[DAVE]))
        saved = await save_redis(container)
        with monkeypatch.context() as patch:
            hold_back(container, patch)
            await Gateway(container.hot).send(await container.audiences.get_fresh(chat), "lost")
            await container.membership.change(ALICE, asked(frames.UpdateChat, chat, name="Crowd"))
        await return_to(container, saved)
        await container.user_loader.load_user(ALICE)
        watchers = LargeChatSubscriptions(container.hot, GatewayId("gw1"), 60)
        before = await watchers.list_large(ALICE)

        await container.chat_loader.load_chat(chat)
        await container.membership_propagation.finish(chat)

        assert before == {}
        assert await told(container, ALICE) == [1, "large 1", 2, "large 2"]
        for user in (BOB, DAVE):
            assert (await told(container, user))[-2:] == [2, "large 2"]
        assert (await watchers.list_large(ALICE))[chat].since == 2
