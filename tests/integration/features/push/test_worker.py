"""The notify worker: recipients, content and subscriptions."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from chatserver.config import Warm
from chatserver.domain.presence import PresenceState
from chatserver.errors import Unavailable
from chatserver.features.chat_preferences.container import PreferencesContainer
from chatserver.features.chat_preferences.model import PreferencesChange
from chatserver.features.push.container import PushContainer
from chatserver.features.push.keys import NotificationKeys
from chatserver.features.push.worker.push_dispatcher import PushDispatcher
from tests.integration.features.push.support import PushWorld, open_push_world
from tests.integration.workers.support import persist
from tests.support.servers.processes import eventually
from tests.support.servers.push_service import PushService, Reply

KEYS = NotificationKeys(1)

pytestmark = pytest.mark.constants({"chatserver.features.push.worker.push_worker.POLL_MS": 20})


@pytest.mark.usefixtures("notifier")
async def test_notify_absent_user_gets_an_encrypted_push(
    world: PushWorld,
) -> None:
    """It has the documented fields and headers, and the push service cannot read the text."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)

    await world.send(direct, "Lunch at noon?")
    (notice,) = await browser.wait_for(1)

    assert notice.pop("ts") > 0
    assert notice == {
        "v": 1,
        "chat": direct.chat,
        "seq": 1,
        "sender": world.alice,
        "name": world.alice,
        "title": "",
        "text": "Lunch at noon?",
        "unread": 1,
        "badge": 1,
    }
    (taken,) = browser.taken
    assert b"noon" not in taken.body
    assert len(taken.body) <= 4096
    assert taken.headers["content-encoding"] == "aes128gcm"
    assert taken.headers["ttl"] == "86400"
    assert taken.headers["urgency"] == "high"
    assert len(taken.headers["topic"]) == 32


@pytest.mark.usefixtures("notifier")
async def test_notify_absent_members_get_a_push_per_browser_and_the_sender_none(
    world: PushWorld,
) -> None:
    """A push for a group shows the name of the group."""
    group = await world.group()
    alices = await world.subscribe(world.alice)
    phone, laptop = await world.subscribe(world.bob), await world.subscribe(world.bob)
    carols = await world.subscribe(world.carol)

    await world.send(group, "Hello all")
    for browser in (phone, laptop, carols):
        (notice,) = await browser.wait_for(1)
        assert (notice["title"], notice["sender"]) == ("Team", world.alice)
    await world.wait_until_scanned()

    assert alices.taken == []


@pytest.mark.usefixtures("notifier")
async def test_notify_user_with_a_foreground_client_gets_no_push(
    world: PushWorld,
) -> None:
    """A user whose client is in the background gets a push."""
    group = await world.group()
    bobs, carols = await world.subscribe(world.bob), await world.subscribe(world.carol)
    await world.set_presence(world.bob, PresenceState.ONLINE)
    await world.set_presence(world.carol, PresenceState.AWAY)

    await world.send(group, "Hello")
    await carols.wait_for(1)
    await world.wait_until_scanned()

    assert bobs.taken == []


@pytest.mark.usefixtures("notifier")
async def test_notify_user_whose_session_ended_before_the_message_gets_one_push(
    world: PushWorld,
) -> None:
    """The gateway reports the end of the session after the message was scanned."""
    group = await world.group()
    bobs, carols = await world.subscribe(world.bob), await world.subscribe(world.carol)
    await world.set_presence(world.bob, PresenceState.ONLINE)

    await world.send(group, "Hello")
    await carols.wait_for(1)  # the chat was scanned while Bob was recorded as online
    await world.set_presence(world.bob, PresenceState.OFFLINE)
    (notice,) = await bobs.wait_for(1)
    await world.wait_until_scanned()

    assert (notice["text"], notice["unread"]) == ("Hello", 1)
    assert (len(bobs.taken), len(carols.taken)) == (1, 1)


@pytest.mark.usefixtures("notifier")
async def test_notify_message_read_before_the_second_check_is_not_pushed(world: PushWorld) -> None:
    """A user who reads the message and then disconnects gets no push."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    await world.set_presence(world.bob, PresenceState.ONLINE)

    await world.send(direct, "Hello")
    await world.wait_until_due(direct)
    await world.read(world.bob, direct, 1)
    await world.set_presence(world.bob, PresenceState.OFFLINE)
    await world.wait_until_scanned()

    assert browser.taken == []


@pytest.mark.constants({"chatserver.features.push.worker.push_worker.LEASE_S": 600.0})
@pytest.mark.usefixtures("notifier")
async def test_notify_scan_restarts_after_redis_lost_its_data(world: PushWorld) -> None:
    """Without a scan position in Redis, entries would be trimmed before they are scanned."""
    checkpoint = world.hot.keys.checkpoint(0)

    async def has_position() -> bool:
        try:
            return bool(await world.hot.call("HEXISTS", checkpoint, "told"))
        except Unavailable:  # the client may still be reconnecting
            return False

    await eventually(has_position, what="the scan position is recorded")
    await world.hot.call("FLUSHALL")

    await eventually(has_position, what="the scan position is recorded again")


@pytest.mark.usefixtures("notifier")
async def test_notify_cleared_messages_are_not_counted(world: PushWorld) -> None:
    """They count neither in the chat's `unread` nor in `badge`."""
    direct, group = await world.direct(), await world.group()
    browser = await world.subscribe(world.bob)
    preferences = world.container.get(PreferencesContainer).preferences
    await world.send(group, "Hey")
    (before,) = await browser.wait_for(1)
    await world.send(direct, "1", "2")
    await preferences.change(world.bob, direct.chat, PreferencesChange(cleared_upto=2))

    await world.send(direct, "3")

    async def is_pushed() -> bool:
        return any(notice["text"] == "3" for notice in browser.notices())

    await eventually(is_pushed)
    notice = browser.notices()[-1]
    assert (notice["unread"], notice["badge"]) == (1, before["badge"] + 1)


async def test_notify_leaves_out_the_badge_if_a_chat_is_not_loaded(world: PushWorld) -> None:
    """After a data loss in Redis, pushes do not load all chats of all users."""
    direct, group = await world.direct(), await world.group()
    await world.send(group, "Hey")
    await world.send(direct, "1")
    dispatcher = PushDispatcher(world.container, cast(Any, None))
    await world.container.user_loader.load_user(world.bob)
    before = await dispatcher._count_unread(world.bob)

    await world.hot.call("HSET", world.hot.keys.chat(group.chat), "gate", "E0:1")

    assert before is not None and before >= 2
    assert await dispatcher._count_unread(world.bob) is None


@pytest.mark.usefixtures("notifier")
async def test_notify_muted_chat_gets_no_push_until_the_mute_ends(
    world: PushWorld,
) -> None:
    """Other chats of the user are not affected."""
    muted, group = await world.direct(), await world.group()
    browser = await world.subscribe(world.bob)
    preferences = world.container.get(PreferencesContainer).preferences
    await preferences.change(world.bob, muted.chat, PreferencesChange(muted_until=0))

    await world.send(muted, "Psst")
    await world.wait_until_scanned()
    await world.send(group, "Hey")
    (notice,) = await browser.wait_for(1)
    assert (notice["chat"], notice["badge"]) == (group.chat, group.top + 2)

    ends_s = int(time.time()) + 2
    await preferences.change(world.bob, muted.chat, PreferencesChange(muted_until=ends_s))
    await eventually(lambda: time.time() > ends_s, what="the mute ends")
    await world.send(muted, "Psst again")
    assert (await browser.wait_for(2))[1]["chat"] == muted.chat


async def test_notify_message_read_within_the_delay_is_not_pushed(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    async with open_push_world(redis_url, push_warm, push_service, delay_s=300) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.running_worker():
            await world.send(direct, "one", "two")
            await world.wait_until_due(direct)
            await world.read(world.bob, direct, 2)
            await world.end_delay(direct)
            await world.wait_until_scanned()

    assert browser.taken == []


async def test_notify_message_that_left_redis_gets_a_push(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    """A persisted chat may be evicted, or its log trimmed, before the delay ends."""
    async with open_push_world(redis_url, push_warm, push_service, delay_s=300) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.running_worker():
            await world.send(direct, "one", "two")
            await world.wait_until_due(direct)
            await persist(world.container)
            await world.hot.call("DEL", world.hot.keys.log(direct.chat))
            await world.end_delay(direct)
            (notice,) = await browser.wait_for(1)

    assert (notice["seq"], notice["text"]) == (2, "two")


async def test_notify_chat_that_is_evicted_while_it_is_read_gets_a_push(world: PushWorld) -> None:
    """Without its members, the message would count as pushed to all."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    state, keys = world.container.get(PushContainer).state, world.hot.keys
    find_members, log = state.find_members, world.container.chat_log
    evictions = []

    async def evict_and_find(*args: Any) -> Any:
        if not evictions:
            evictions.append(args)
            await persist(world.container)
            await world.hot.call("DEL", keys.chat(direct.chat), keys.members(direct.chat))
        return await find_members(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "find_members", evict_and_find)
        async with world.running_worker():
            await world.send(direct, "one")
            (notice,) = await browser.wait_for(1)

    assert (notice["seq"], notice["text"]) == (1, "one")
    assert evictions
    assert (await log.get_head(direct.chat)).is_open


@pytest.mark.usefixtures("notifier")
async def test_notify_message_with_the_seq_of_a_lost_one_gets_a_push(world: PushWorld) -> None:
    """Redis lost a message whose push was sent, and has assigned its seq again."""
    lost = await world.direct()
    browser = await world.subscribe(world.bob)
    await world.send(lost, "one")
    await browser.wait_for(1)
    await world.wait_until_scanned()
    await world.hot.call("DEL", world.hot.keys.chat(lost.chat), world.hot.keys.log(lost.chat))
    direct = await world.container.audiences.get(lost.chat)

    await world.send(direct, "two")
    notices = await browser.wait_for(2)

    assert [(notice["seq"], notice["text"]) for notice in notices] == [(1, "one"), (1, "two")]


async def test_notify_messages_within_the_delay_get_one_push_of_the_newest(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    """It has the unread count, in which edits do not count; the next push replaces it."""
    async with open_push_world(redis_url, push_warm, push_service, delay_s=300) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.running_worker():
            for count, texts in enumerate((["1", "2", "3"], ["4"]), 1):
                await world.send(direct, *texts)
                await world.wait_until_due(direct)
                await world.end_delay(direct)
                await browser.wait_for(count)
                await world.wait_until_scanned()
                if count == 1:
                    await world.edit(direct, 3, "three")

    first, second = browser.notices()
    assert (first["seq"], first["text"], first["unread"]) == (3, "3", 3)
    assert (second["seq"], second["text"], second["unread"]) == (5, "4", 4)
    assert (first["badge"], second["badge"]) == (3, 4)
    topics = [taken.headers["topic"] for taken in browser.taken]
    assert topics[0] == topics[1]


async def test_notify_without_preview_sends_no_text(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    """A setting of the deployment turns previews off."""
    async with open_push_world(redis_url, push_warm, push_service, preview=False) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.running_worker():
            await world.send(direct, "secret")
            (notice,) = await browser.wait_for(1)

    assert notice["text"] == ""


async def test_notify_message_in_a_large_chat_is_pushed_to_mentioned_users(
    world: PushWorld,
) -> None:
    """Only an `@` at the start of a word is a mention."""
    group = await world.group()
    bobs, carols = await world.subscribe(world.bob), await world.subscribe(world.carol)
    await world.send(group, f"Hello @{world.bob} and @nobody, not a@{world.carol}")
    await world.hot.call("HSET", world.hot.keys.chat(group.chat), "large", "7")

    async with world.running_worker():
        (notice,) = await bobs.wait_for(1)
        await world.wait_until_scanned()

    assert notice["text"].startswith(f"Hello @{world.bob}")
    assert carols.taken == []


@pytest.mark.usefixtures("notifier")
@pytest.mark.parametrize("status", [404, 410])
async def test_notify_expired_subscription_is_removed(world: PushWorld, status: int) -> None:
    """Other browsers of the user still get pushes."""
    direct = await world.direct()
    gone, active = await world.subscribe(world.bob), await world.subscribe(world.bob)
    world.service.set_replies(gone.path, Reply(status))

    await world.send(direct, "one")
    await active.wait_for(1)

    async def is_removed() -> bool:
        left = await world.container.get(PushContainer).subscriptions.list_for_user(
            world.bob, time.time()
        )
        return [one.target for one in left] == [active.endpoint]

    await eventually(is_removed)
    await world.send(direct, "two")
    await active.wait_for(2)
    await world.wait_until_scanned()
    assert len(gone.taken) == 1


@pytest.mark.usefixtures("notifier")
async def test_notify_user_who_subscribes_later_gets_pushes(
    world: PushWorld,
) -> None:
    """The worker caches that a user has no browser until the user registers one."""
    direct = await world.direct()
    await world.send(direct, "no browser yet")
    await world.wait_until_scanned()
    assert await world.hot.call("GET", KEYS.pushing(world.bob)) == b"0"

    browser = await world.subscribe(world.bob)
    await world.send(direct, "now")

    assert (await browser.wait_for(1))[0]["text"] == "now"
