"""The notify worker: absent users get one push, others none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from chatserver.config import Warm
from chatserver.domain.ids import Seq, UserId
from chatserver.domain.presence import State
from chatserver.errors import NotFound, Unavailable
from chatserver.features.push.container import PushContainer
from chatserver.features.push.hot import PushState
from chatserver.warm.chats.muted_chats import FOR_EVER_MS
from tests.integration.features.push.support import PushWorld, open_push_world
from tests.integration.workers.support import persister_of, running
from tests.support.servers.processes import eventually
from tests.support.servers.push_service import PushService, Reply, open_push_service

pytestmark = pytest.mark.constants({"chatserver.features.push.worker.notify.POLL_MS": 20})
pytest_plugins = ["tests.integration.features.push.fixtures"]


# who is told, and what


@pytest.mark.usefixtures("notifier")
async def test_notify_absent_user_is_told_in_a_push_that_only_the_browser_can_read(
    world: PushWorld,
) -> None:
    """Encrypted for the browser, signed for the service, with what is shown and no more."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)

    await world.say(direct, "Lunch at noon?")
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
async def test_notify_each_absent_member_is_told_on_each_browser_and_the_sender_on_none(
    world: PushWorld,
) -> None:
    """A group's notice names the group; what one sent oneself is no news."""
    group = await world.group()
    own = await world.subscribe(world.alice)
    phone, desk = await world.subscribe(world.bob), await world.subscribe(world.bob)
    carols = await world.subscribe(world.carol)

    await world.say(group, "Hello all")
    for browser in (phone, desk, carols):
        (notice,) = await browser.wait_for(1)
        assert (notice["title"], notice["sender"]) == ("Team", world.alice)
    await world.all_told()

    assert own.taken == []


@pytest.mark.usefixtures("notifier")
async def test_notify_user_with_a_client_in_front_is_left_alone_and_one_in_the_back_is_told(
    world: PushWorld,
) -> None:
    """A user with a client in the foreground sees the message there."""
    group = await world.group()
    bobs, carols = await world.subscribe(world.bob), await world.subscribe(world.carol)
    await world.appear(world.bob, State.ONLINE)
    await world.appear(world.carol, State.AWAY)

    await world.say(group, "Hello")
    await carols.wait_for(1)
    await world.all_told()

    assert bobs.taken == []


@pytest.mark.usefixtures("notifier")
async def test_notify_user_whose_session_ended_before_the_message_gets_one_push(
    world: PushWorld,
) -> None:
    """The end of the session becomes known after the message; then the push is sent."""
    group = await world.group()
    bobs, carols = await world.subscribe(world.bob), await world.subscribe(world.carol)
    await world.appear(world.bob, State.ONLINE)

    await world.say(group, "Hello")
    await carols.wait_for(1)  # the chat was looked at while Bob still seemed to be there
    await world.appear(world.bob, State.OFFLINE)
    (notice,) = await bobs.wait_for(1)
    await world.all_told()

    assert (notice["text"], notice["unread"]) == ("Hello", 1)
    assert (len(bobs.taken), len(carols.taken)) == (1, 1)


@pytest.mark.usefixtures("notifier")
async def test_notify_message_read_before_the_second_look_is_not_pushed(world: PushWorld) -> None:
    """A user who reads the message and then leaves gets no push for it."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    await world.appear(world.bob, State.ONLINE)

    await world.say(direct, "Hello")
    await world.wait_until_due(direct)
    await world.read(world.bob, direct, 1)
    await world.appear(world.bob, State.OFFLINE)
    await world.all_told()

    assert browser.taken == []


@pytest.mark.constants({"chatserver.features.push.worker.notify.LEASE_S": 600.0})
@pytest.mark.usefixtures("notifier")
async def test_notify_scan_begins_again_at_once_after_redis_lost_its_data(world: PushWorld) -> None:
    """Without its position in Redis, entries would be trimmed before their pushes are recorded."""
    checkpoint = world.hot.keys.checkpoint(0)

    async def has_position() -> bool:
        try:
            return bool(await world.hot.call("HEXISTS", checkpoint, "told"))
        except Unavailable:  # while the client connects again
            return False

    await eventually(has_position, what="a position")
    await world.hot.call("FLUSHALL")

    await eventually(has_position, what="a position after the loss")


@pytest.mark.usefixtures("notifier")
async def test_notify_muted_chat_is_quiet_until_it_is_not(
    world: PushWorld,
) -> None:
    """A user who muted a chat gets the pushes of the others."""
    quiet, loud = await world.direct(), await world.group()
    browser = await world.subscribe(world.bob)
    await world.container.get(PushContainer).muted_chats.set_until(
        quiet.chat, world.bob, FOR_EVER_MS
    )

    await world.say(quiet, "Psst")
    await world.all_told()
    await world.say(loud, "Hey")
    (notice,) = await browser.wait_for(1)
    assert (notice["chat"], notice["badge"]) == (loud.chat, loud.top + 2)

    await world.container.get(PushContainer).muted_chats.set_until(
        quiet.chat, world.bob, int(time.time() * 1000) - 1000
    )  # it has ended
    await world.say(quiet, "Psst again")
    assert (await browser.wait_for(2))[1]["chat"] == quiet.chat


async def test_notify_message_read_within_the_delay_is_not_pushed(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    """A user who reads on another device gets no push."""
    async with open_push_world(redis_url, push_warm, push_service, delay_s=300) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.notifying():
            await world.say(direct, "one", "two")
            await world.wait_until_due(direct)
            await world.read(world.bob, direct, 2)
            await world.end_delay(direct)
            await world.all_told()

    assert browser.taken == []


async def test_notify_messages_within_the_delay_are_one_push_of_the_newest(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    """A burst is told once, with how many messages there are, an edit not counted; the next one
    replaces it on the screen."""
    async with open_push_world(redis_url, push_warm, push_service, delay_s=300) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.notifying():
            for count, texts in enumerate((["1", "2", "3"], ["4"]), 1):
                await world.say(direct, *texts)
                await world.wait_until_due(direct)
                await world.end_delay(direct)
                await browser.wait_for(count)
                await world.all_told()
                if count == 1:
                    await world.edit(direct, 3, "three")

    first, second = browser.notices()
    assert (first["seq"], first["text"], first["unread"]) == (3, "3", 3)
    assert (second["seq"], second["text"], second["unread"]) == (5, "4", 4)
    assert (first["badge"], second["badge"]) == (3, 4)
    topics = [taken.headers["topic"] for taken in browser.taken]
    assert topics[0] == topics[1]


async def test_notify_without_preview_says_nothing_of_the_text(
    redis_url: str, push_warm: Warm, push_service: PushService
) -> None:
    """An installation may keep texts out of pushes altogether."""
    async with open_push_world(redis_url, push_warm, push_service, preview=False) as world:
        direct = await world.direct()
        browser = await world.subscribe(world.bob)
        async with world.notifying():
            await world.say(direct, "secret")
            (notice,) = await browser.wait_for(1)

    assert notice["text"] == ""


async def test_notify_large_chat_tells_those_who_are_mentioned(
    world: PushWorld,
) -> None:
    """A message to thousands is news for those it names."""
    group = await world.group()
    bobs, carols = await world.subscribe(world.bob), await world.subscribe(world.carol)
    await world.say(group, f"Hello @{world.bob} and @nobody, not a@{world.carol}")
    await world.hot.call("HSET", world.hot.keys.chat(group.chat), "large", "7")

    async with world.notifying():
        (notice,) = await bobs.wait_for(1)
        await world.all_told()

    assert notice["text"].startswith(f"Hello @{world.bob}")
    assert carols.taken == []


# subscriptions


@pytest.mark.usefixtures("notifier")
@pytest.mark.parametrize("status", [404, 410])
async def test_notify_subscription_that_has_ended_is_removed(world: PushWorld, status: int) -> None:
    """A browser without its subscription is not retried; the user's others get the push."""
    direct = await world.direct()
    gone, here = await world.subscribe(world.bob), await world.subscribe(world.bob)
    world.service.answer(gone.path, Reply(status))

    await world.say(direct, "one")
    await here.wait_for(1)

    async def is_removed() -> bool:
        left = await world.container.get(PushContainer).subscriptions.list_of(
            world.bob, time.time()
        )
        return [one.target for one in left] == [here.endpoint]

    await eventually(is_removed)
    await world.say(direct, "two")
    await here.wait_for(2)
    await world.all_told()
    assert len(gone.taken) == 1


@pytest.mark.usefixtures("notifier")
async def test_notify_user_who_subscribes_after_having_had_none_is_told(
    world: PushWorld,
) -> None:
    """That somebody has no browser is remembered, until there is one."""
    direct = await world.direct()
    await world.say(direct, "nobody to tell")
    await world.all_told()
    assert await world.hot.call("GET", world.hot.keys.pushing(world.bob)) == b"0"

    browser = await world.subscribe(world.bob)
    await world.say(direct, "now")

    assert (await browser.wait_for(1))[0]["text"] == "now"


# trouble


@pytest.mark.usefixtures("notifier")
async def test_notify_service_that_is_busy_is_asked_again_when_it_says(
    world: PushWorld,
) -> None:
    """429 and Retry-After: the push comes later, once."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    world.service.answer(browser.path, Reply(429, {"Retry-After": "2"}, times=1))

    started = time.monotonic()
    await world.say(direct, "one")
    await browser.wait_for(2)

    assert time.monotonic() - started >= 2
    assert [notice["text"] for notice in browser.notices()] == ["one", "one"]
    await world.all_told()
    assert len(browser.taken) == 2


@pytest.mark.usefixtures("notifier")
async def test_notify_service_that_hangs_holds_no_other_up(
    world: PushWorld,
) -> None:
    """Each service is a way of its own."""
    direct, group = await world.direct(), await world.group()
    async with open_push_service() as stuck:
        theirs = await world.subscribe(world.bob, stuck)
        stuck.answer(theirs.path, Reply(201, gate=asyncio.Event()))
        carols = await world.subscribe(world.carol)
        await world.say(direct, "never there")
        await eventually(lambda: len(theirs.taken) == 1)

        await world.say(group, "there")
        assert (await carols.wait_for(1))[0]["text"] == "there"


@pytest.mark.usefixtures("notifier")
async def test_notify_push_that_may_have_arrived_is_not_sent_again(
    world: PushWorld,
) -> None:
    """Behind a 500 the push may have been taken: at most once is the promise."""
    direct = await world.direct()
    browser, other = await world.subscribe(world.bob), await world.subscribe(world.bob)
    world.service.answer(browser.path, Reply(500))

    await world.say(direct, "one")
    await other.wait_for(1)
    await world.all_told()

    assert len(browser.taken) == 1


# what is told once


async def test_notify_claim_is_given_once_and_not_for_what_is_read(world: PushWorld) -> None:
    """Whoever claims, also a process that was paused."""
    direct = await world.direct()
    push_state = PushState(world.hot)
    ask = push_state.claim

    asked = await asyncio.gather(*(ask(world.bob, "s1", direct.chat, Seq(2)) for _ in range(5)))
    assert sorted(asked) == [False, False, False, False, True]
    assert not await ask(world.bob, "s1", direct.chat, Seq(1))
    assert await ask(world.bob, "s2", direct.chat, Seq(2))
    assert await ask(world.bob, "s1", direct.chat, Seq(2), is_retry=True)
    assert await ask(world.bob, "s1", direct.chat, Seq(3))
    assert not await ask(world.bob, "s1", direct.chat, Seq(2), is_retry=True), "a newer one is out"
    await world.hot.call("HSET", world.hot.keys.box(world.bob), f"r:{direct.chat}", 4)
    assert not await ask(world.bob, "s1", direct.chat, Seq(4))


async def test_notify_two_workers_tell_once(
    redis_url: str, push_warm: Warm, push_service: PushService, world: PushWorld
) -> None:
    """One looks through a partition at a time; when it ends, the other goes on where it was."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    async with (
        open_push_world(redis_url, push_warm, push_service) as other,
        other.notifying("n2"),
    ):
        async with world.notifying("n1"):
            await world.say(direct, "one")
            await browser.wait_for(1)
        await world.say(direct, "two")
        await browser.wait_for(2)
        await world.all_told()

    assert [notice["text"] for notice in browser.notices()] == ["one", "two"]


async def test_notify_what_is_persisted_first_is_told_all_the_same(
    world: PushWorld,
) -> None:
    """The backlog keeps what is persisted until it was looked through for pushes."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    async with world.notifying():
        await world.say(direct, "one")
        await browser.wait_for(1)
    async with running(persister_of(world.container).run()):
        await world.say(direct, "two")
        stored = world.hot.keys.chat(direct.chat)

        async def is_stored() -> bool:
            return bool(await world.hot.call("HGET", stored, "stored") == b"2")

        await eventually(is_stored)
        async with world.notifying():
            assert (await browser.wait_for(2))[1]["text"] == "two"

            async def is_empty() -> bool:
                return bool(await world.hot.call("XLEN", world.hot.keys.backlog(0)) == 0)

            await eventually(is_empty)


@pytest.mark.parametrize(
    ("place", "count"), [("after_record", 1), ("after_claim", 0), ("after_send", 1)]
)
async def test_notify_killed_anywhere_tells_at_most_once(
    world: PushWorld, place: str, count: int
) -> None:
    """A push claimed by a dead worker is lost; an unclaimed one is sent by the next worker."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    await world.say(direct, "one")

    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chatserver.cli.main", "worker", "notify",
        env={**os.environ, **world.variables(), "CHAT_FAILPOINT": f"notify.{place}:kill"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert await asyncio.wait_for(worker.wait(), 90) == -signal.SIGKILL
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    await world.hot.call("HSET", world.hot.keys.lease(0, "notify"), "until_ms", 0)
    await world.end_delay(direct)
    async with world.notifying("n2"):
        await world.all_told()
        assert [notice["text"] for notice in browser.notices()] == ["one"] * count
        await world.say(direct, "two")
        assert (await browser.wait_for(count + 1))[-1]["text"] == "two"


async def test_notify_quiet_is_for_members_only(world: PushWorld) -> None:
    """Non-members cannot mute a chat."""
    direct = await world.direct()

    with pytest.raises(NotFound):
        await world.container.get(PushContainer).muted_chats.set_until(
            direct.chat, UserId("mallory"), FOR_EVER_MS
        )
    with pytest.raises(NotFound):
        await world.container.get(PushContainer).muted_chats.get_until(
            direct.chat, UserId("mallory")
        )
    assert (
        await world.container.get(PushContainer).muted_chats.get_until(direct.chat, world.bob) == 0
    )
