"""Push data in Redis: due chats, the scan position in the backlog, and absent users."""

from __future__ import annotations

import dataclasses

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.presence import GatewayPresence, PresenceState
from chatserver.features.push.hot import DueChats, PushNeed, PushState
from chatserver.features.push.keys import NotificationKeys
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.presence_states import PresenceStates
from chatserver.hot.worker_leases import Lease

KEYS = NotificationKeys(1)
ALICE, BOB, CAROL, DAVE = (UserId(name) for name in ("alice", "bob", "carol", "dave"))
CHAT, OTHER = ChatId("c1"), ChatId("c2")


async def claim_lease(hot: HotClient, work: str) -> Lease:
    lease = Lease(hot=hot, partition=0, work=work, owner="me", ttl_s=60, clock=SystemClock())
    assert await lease.claim()
    return lease


async def open_due_chats(hot: HotClient) -> DueChats:
    """Return the due chats of the only partition, with a claimed lease."""
    return DueChats(hot, await claim_lease(hot, "notify"))


async def add_entries(hot: HotClient, *ids: str) -> None:
    for name in ids:
        await hot.call("XADD", hot.keys.backlog(0), name, "g", "gw1")


async def list_entries(hot: HotClient) -> list[str]:
    reply = await hot.call("XRANGE", hot.keys.backlog(0), "-", "+")
    return [name.decode() for name, _ in reply]


async def test_due_chat_keeps_its_first_time_and_seq(hot: HotClient) -> None:
    """Later messages do not delay the push."""
    chats = await open_due_chats(hot)
    await chats.schedule("1-0", {CHAT: Seq(5)}, 0)
    await chats.schedule("2-0", {CHAT: Seq(9), OTHER: Seq(2)}, 300)

    (due,) = await chats.claim_due(10, 60)

    assert (due.chat, due.since) == (CHAT, 5)
    assert await chats.claim_due(10, 60) == [], "the chat must be claimed for a minute"
    assert await chats.get_checkpoint() == "2-0"


async def test_finished_chat_is_due_again_after_new_messages(hot: HotClient) -> None:
    """Messages committed during a push are in the next push."""
    chats = await open_due_chats(hot)
    await chats.schedule("1-0", {CHAT: Seq(5), OTHER: Seq(1)}, 0)
    first, second = sorted(await chats.claim_due(10, 60), key=lambda due: due.chat)

    await chats.finish(second, Seq(2))
    await chats.schedule("2-0", {CHAT: Seq(8)}, 0)
    await chats.finish(first, Seq(8))

    (again,) = await chats.claim_due(10, 60)
    assert (again.chat, again.since) == (CHAT, 8)
    await chats.finish(again, Seq(9))
    assert await hot.call("EXISTS", KEYS.due(0), KEYS.since(0)) == 0


async def test_due_chat_is_claimed_again_after_its_claim_expired(hot: HotClient) -> None:
    """The first worker may be dead; its late `finish` has no effect."""
    chats = await open_due_chats(hot)
    await chats.schedule("1-0", {CHAT: Seq(5)}, 0)
    (lost,) = await chats.claim_due(10, 0)

    (again,) = await chats.claim_due(10, 60)
    assert again.since == 5
    await chats.finish(dataclasses.replace(lost, time=lost.time - 1), Seq(5))

    assert await hot.call("ZCARD", KEYS.due(0)) == 1


async def test_due_chat_of_an_earlier_epoch_does_not_change_the_schedule(hot: HotClient) -> None:
    """Redis lost the messages that were pushed, and has assigned their seqs again."""
    chats = await open_due_chats(hot)
    await chats.schedule("1-0", {CHAT: Seq(9)}, 0)
    (lost,) = await chats.claim_due(10, 60)
    await hot.call("DEL", KEYS.due(0), KEYS.since(0))
    await hot.call("HSET", hot.keys.epoch(0), "epoch", "other")
    await chats.schedule("2-0", {CHAT: Seq(7)}, 0)

    await chats.finish(lost, Seq(10))

    (due,) = await chats.claim_due(10, 60)
    assert (due.chat, due.since) == (CHAT, 7)


async def test_due_chat_with_users_in_foreground_is_due_again(hot: HotClient) -> None:
    """The second check starts at the first message that may still need a push."""
    chats = await open_due_chats(hot)
    await chats.schedule("1-0", {CHAT: Seq(5), OTHER: Seq(1)}, 0)
    first, second = sorted(await chats.claim_due(10, 60), key=lambda due: due.chat)

    await chats.finish(first, Seq(7), 0)
    await chats.finish(second, Seq(2), 300)

    (again,) = await chats.claim_due(10, 60)
    assert (again.chat, again.since) == (CHAT, 7)
    assert await hot.call("ZCARD", KEYS.due(0)) == 2


async def test_due_chats_are_changed_by_the_lease_holder_only(hot: HotClient) -> None:
    """A worker that was paused until its lease expired records and claims nothing."""
    paused = await open_due_chats(hot)
    await paused.schedule("1-0", {CHAT: Seq(5)}, 0)
    await hot.call("HSET", hot.keys.lease(0, "notify"), "token", 99)

    assert not await paused.schedule("2-0", {OTHER: Seq(1)}, 0)
    assert await paused.claim_due(10, 60) == []
    assert await paused.get_checkpoint() == "1-0"


async def test_backlog_entries_are_kept_for_both_readers(hot: HotClient) -> None:
    """An entry is trimmed when it is persisted and scanned for pushes."""
    chats, persist = await open_due_chats(hot), await claim_lease(hot, "persist")
    now, _ = await hot.call("TIME")
    one, two, three = (f"{int(now)}{n:03}-0" for n in (1, 2, 3))
    await add_entries(hot, one, two, three)

    await chats.schedule(one, {}, 0)
    assert await Backlog(hot, 0).checkpoint(persist, two, hot.get_epoch(0))
    assert await list_entries(hot) == [two, three]
    await chats.schedule(three, {}, 0)
    assert await list_entries(hot) == [three]
    assert await Backlog(hot, 0).checkpoint(persist, three, hot.get_epoch(0))
    assert await list_entries(hot) == []


@pytest.mark.parametrize("is_running", [True, False])
async def test_backlog_is_kept_a_minute_for_the_notify_worker(
    hot: HotClient, is_running: bool
) -> None:
    """A slow worker gets a minute. If no worker is running, entries are trimmed at once."""
    chats, persist = await open_due_chats(hot), await claim_lease(hot, "persist")
    now, _ = await hot.call("TIME")
    old, recent, last = f"{int(now) - 90}000-0", f"{int(now) - 30}000-0", f"{int(now)}000-0"
    await add_entries(hot, f"{int(now) - 100}000-0", old, recent, last)
    await chats.schedule(f"{int(now) - 100}000-0", {}, 0)
    if not is_running:
        await hot.call("HINCRBY", hot.keys.checkpoint(0), "told_ms", -61_000)

    assert await Backlog(hot, 0).checkpoint(persist, last, hot.get_epoch(0))

    assert await list_entries(hot) == ([recent, last] if is_running else [])


async def test_absent_users_have_no_foreground_client_and_may_have_devices(hot: HotClient) -> None:
    """Clients in the background or of a dead gateway do not count. Read marks are returned too."""
    push_state = PushState(hot)
    presence = PresenceStates(hot=hot, gateway=GatewayId("gw1"), online_ttl_s=60, keep_s=600)
    dead_gateway = PresenceStates(hot=hot, gateway=GatewayId("gw2"), online_ttl_s=60, keep_s=600)
    await presence.extend_expiry()
    await dead_gateway.extend_expiry()
    await presence.publish(
        [
            GatewayPresence(BOB, PresenceState.ONLINE, 0.0),
            GatewayPresence(CAROL, PresenceState.AWAY, 0.0),
        ]
    )
    await dead_gateway.publish([GatewayPresence(DAVE, PresenceState.ONLINE, 0.0)])
    await hot.call("HSET", hot.keys.box(CAROL), f"r:{CHAT}", 3)
    await push_state.record_devices(CAROL)
    await push_state.record_no_devices(ALICE)

    before = await push_state.find_needs(CHAT, [ALICE, BOB, CAROL, DAVE])
    await dead_gateway.leave(0)
    after = await push_state.find_needs(CHAT, [ALICE, BOB, CAROL, DAVE])

    bob = (PushNeed.FOREGROUND, 0)
    assert before == {BOB: bob, CAROL: (PushNeed.YES, 3), DAVE: (PushNeed.FOREGROUND, 0)}
    assert after == {BOB: bob, CAROL: (PushNeed.YES, 3), DAVE: (PushNeed.IF_DEVICES, 0)}


async def test_cached_absence_of_devices_does_not_hide_a_registration(hot: HotClient) -> None:
    """A device is registered just before the worker caches that there was none."""
    push_state = PushState(hot)
    await push_state.record_devices(BOB)
    await push_state.record_no_devices(BOB)

    assert await push_state.find_needs(CHAT, [BOB]) == {BOB: (PushNeed.YES, 0)}
