"""The notify worker: retries, faults of the push service, and killed workers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

import pytest

from chatserver.config import Warm
from chatserver.domain.ids import Seq, UserId
from chatserver.errors import NotFound
from chatserver.features.push.container import PushContainer
from chatserver.features.push.hot import PushState
from chatserver.telemetry.metrics import PUSH_NOTICES
from tests.integration.features.push.support import PushWorld, open_push_world
from tests.integration.workers.support import persist, persister_of, running
from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.servers.push_service import PushService, Reply, open_push_service

pytestmark = pytest.mark.constants({"chatserver.features.push.worker.push_worker.POLL_MS": 20})


@pytest.mark.usefixtures("notifier")
async def test_notify_busy_service_is_retried_after_retry_after(
    world: PushWorld,
) -> None:
    """The push is sent again after the time in the 429 response."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    world.service.set_replies(browser.path, Reply(429, {"Retry-After": "2"}, times=1))

    started = time.monotonic()
    await world.send(direct, "one")
    await browser.wait_for(2)

    assert time.monotonic() - started >= 2
    assert [notice["text"] for notice in browser.notices()] == ["one", "one"]
    await world.wait_until_scanned()
    assert len(browser.taken) == 2


@pytest.mark.usefixtures("notifier")
async def test_notify_message_deleted_before_the_retry_is_not_pushed(world: PushWorld) -> None:
    """A push contains the text, so it is checked again before each later attempt."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    world.service.set_replies(browser.path, Reply(429, {"Retry-After": "2"}, times=1))
    dropped = PUSH_NOTICES.labels("not_wanted")
    before = dropped._value.get()

    await world.send(direct, "one")
    await browser.wait_for(1)
    await world.edit(direct, 1, "", kind="delete")

    await eventually(lambda: dropped._value.get() > before, what="the push is dropped")
    assert len(browser.taken) == 1


@pytest.mark.usefixtures("notifier")
async def test_notify_message_that_left_redis_before_the_retry_is_pushed(world: PushWorld) -> None:
    """While Redis is short of memory, DynamoDB has the message, and Redis only the push."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    world.service.set_replies(browser.path, Reply(429, {"Retry-After": "2"}, times=1))

    await world.send(direct, "one")
    await browser.wait_for(1)
    await persist(world.container)
    await world.hot.call("XTRIM", world.hot.keys.log(direct.chat), "MAXLEN", 0)

    assert [notice["text"] for notice in await browser.wait_for(2)] == ["one", "one"]


@pytest.mark.usefixtures("notifier")
async def test_notify_service_that_hangs_does_not_delay_others(
    world: PushWorld,
) -> None:
    """Pushes to different services are independent."""
    direct, group = await world.direct(), await world.group()
    async with open_push_service() as stuck:
        bobs = await world.subscribe(world.bob, stuck)
        stuck.set_replies(bobs.path, Reply(201, gate=asyncio.Event()))
        carols = await world.subscribe(world.carol)
        await world.send(direct, "for bob")
        await eventually(lambda: len(bobs.taken) == 1)

        await world.send(group, "for carol")
        assert (await carols.wait_for(1))[0]["text"] == "for carol"


@pytest.mark.usefixtures("notifier")
async def test_notify_push_that_may_have_arrived_is_not_sent_again(
    world: PushWorld,
) -> None:
    """After a 500, the push may have been sent. A push is delivered at most once."""
    direct = await world.direct()
    browser, other = await world.subscribe(world.bob), await world.subscribe(world.bob)
    world.service.set_replies(browser.path, Reply(500))

    await world.send(direct, "one")
    await other.wait_for(1)
    await world.wait_until_scanned()

    assert len(browser.taken) == 1


# At most one push per message.


async def test_notify_claim_succeeds_once_and_not_for_read_messages(world: PushWorld) -> None:
    """This includes concurrent claims and a process that was paused."""
    direct = await world.direct()
    push_state = PushState(world.hot)
    claim = push_state.claim

    claims = await asyncio.gather(
        *(claim(world.bob, "s1", direct.chat, (Seq(2), 20)) for _ in range(5))
    )
    assert sorted(claims) == [False, False, False, False, True]
    assert not await claim(world.bob, "s1", direct.chat, (Seq(1), 10))
    assert await claim(world.bob, "s2", direct.chat, (Seq(2), 20))
    assert await claim(world.bob, "s1", direct.chat, (Seq(2), 20), is_retry=True)
    assert await claim(world.bob, "s1", direct.chat, (Seq(3), 30))
    assert await claim(world.bob, "s1", direct.chat, (Seq(3), 31)), "Redis lost the earlier one"
    assert not await claim(world.bob, "s1", direct.chat, (Seq(2), 20), is_retry=True), (
        "a newer message was already pushed"
    )
    await world.hot.call("HSET", world.hot.keys.box(world.bob), f"r:{direct.chat}", 4)
    assert not await claim(world.bob, "s1", direct.chat, (Seq(4), 40))


async def test_notify_two_workers_send_one_push(
    redis_url: str, push_warm: Warm, push_service: PushService, world: PushWorld
) -> None:
    """One worker has the lease of a partition. When it exits, the other one continues."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    async with (
        open_push_world(redis_url, push_warm, push_service) as other,
        other.running_worker("n2"),
    ):
        async with world.running_worker("n1"):
            await world.send(direct, "one")
            await browser.wait_for(1)
        await world.send(direct, "two")
        await browser.wait_for(2)
        await world.wait_until_scanned()

    assert [notice["text"] for notice in browser.notices()] == ["one", "two"]


async def test_notify_message_persisted_before_the_scan_is_pushed(
    world: PushWorld,
) -> None:
    """The backlog keeps persisted entries until they are scanned for pushes."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    async with world.running_worker():
        await world.send(direct, "one")
        await browser.wait_for(1)
    async with running(persister_of(world.container).run()):
        await world.send(direct, "two")
        stored = world.hot.keys.chat(direct.chat)

        await eventually_equal(lambda: world.hot.call("HGET", stored, "stored"), b"2")
        async with world.running_worker():
            assert (await browser.wait_for(2))[1]["text"] == "two"

            await eventually_equal(lambda: world.hot.call("XLEN", world.hot.keys.backlog(0)), 0)


@pytest.mark.parametrize(
    ("failpoint", "count"), [("after_record", 1), ("after_claim", 0), ("after_send", 1)]
)
async def test_notify_killed_at_a_step_sends_at_most_one_push(
    world: PushWorld, failpoint: str, count: int
) -> None:
    """A push that the killed worker claimed is lost; others are sent by the next worker."""
    direct = await world.direct()
    browser = await world.subscribe(world.bob)
    await world.send(direct, "one")

    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chatserver.cli.main", "worker", "notify",
        env={**os.environ, **world.variables(), "CHAT_FAILPOINT": f"notify.{failpoint}:kill"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert await asyncio.wait_for(worker.wait(), 90) == -signal.SIGKILL
    finally:
        if worker.returncode is None:
            worker.kill()
            await wait_for_exit(worker)
    await world.hot.call("HSET", world.hot.keys.lease(0, "notify"), "until_ms", 0)
    await world.end_delay(direct)
    async with world.running_worker("n2"):
        await world.wait_until_scanned()
        assert [notice["text"] for notice in browser.notices()] == ["one"] * count
        await world.send(direct, "two")
        assert (await browser.wait_for(count + 1))[-1]["text"] == "two"


async def test_notify_mute_state_requires_membership(world: PushWorld) -> None:
    direct = await world.direct()

    with pytest.raises(NotFound):
        await world.container.get(PushContainer).muted_chats.get_until(
            direct.chat, UserId("mallory")
        )
    assert (
        await world.container.get(PushContainer).muted_chats.get_until(direct.chat, world.bob) == 0
    )
