"""Push data in Redis: due chats, the scanned position of the backlog, absent users."""

from __future__ import annotations

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.presence import GatewayPresence, State
from chatserver.features.push.hot import Due, DueChats, Need, PushState
from chatserver.hot.chats.backlog import Backlog
from chatserver.hot.leases import Lease
from chatserver.hot.redis.client import HotClient
from chatserver.hot.users.presence_subscriptions import PresenceStates

pytest_plugins = ["tests.integration.hot.fixtures"]

ALICE, BOB, CAROL, DAVE = (UserId(name) for name in ("alice", "bob", "carol", "dave"))
CHAT, OTHER = ChatId("c1"), ChatId("c2")


async def lease_of(hot: HotClient, work: str) -> Lease:
    """A lease that is held."""
    lease = Lease(hot=hot, partition=0, work=work, owner="me", ttl_s=60, clock=SystemClock())
    assert await lease.claim()
    return lease


async def due_chats(hot: HotClient) -> DueChats:
    """The chats of the only partition, for the holder of the lease."""
    return DueChats(hot, await lease_of(hot, "notify"))


async def add_entries(hot: HotClient, *ids: str) -> None:
    """Put entries into the backlog."""
    for name in ids:
        await hot.call("XADD", hot.keys.backlog(0), name, "g", "gw1")


async def kept(hot: HotClient) -> list[str]:
    """The entries of the backlog."""
    reply = await hot.call("XRANGE", hot.keys.backlog(0), "-", "+")
    return [name.decode() for name, _ in reply]


# which chats are due


async def test_due_chat_keeps_its_first_time_and_seq(hot: HotClient) -> None:
    """A chat in which much is written does not wait longer for it."""
    chats = await due_chats(hot)
    await chats.record("1-0", {CHAT: Seq(5)}, 0)
    await chats.record("2-0", {CHAT: Seq(9), OTHER: Seq(2)}, 300)

    (due,) = await chats.claim_due(10, 60)

    assert (due.chat, due.since) == (CHAT, 5)
    assert await chats.claim_due(10, 60) == [], "it is taken, and comes up again in a minute"
    assert await chats.get_checkpoint() == "2-0"


async def test_due_chat_that_is_ended_is_gone_unless_something_came(hot: HotClient) -> None:
    """Messages committed during a push are pushed next time."""
    chats = await due_chats(hot)
    await chats.record("1-0", {CHAT: Seq(5), OTHER: Seq(1)}, 0)
    first, second = sorted(await chats.claim_due(10, 60), key=lambda due: due.chat)

    await chats.finish(second, Seq(2))
    await chats.record("2-0", {CHAT: Seq(8)}, 0)
    await chats.finish(first, Seq(8))

    (again,) = await chats.claim_due(10, 60)
    assert (again.chat, again.since) == (CHAT, 8)
    await chats.finish(again, Seq(9))
    assert await hot.call("EXISTS", hot.keys.due(0), hot.keys.since(0)) == 0


async def test_due_chat_that_nobody_ends_comes_up_again(hot: HotClient) -> None:
    """The claimant may have died; its late finish has no effect."""
    chats = await due_chats(hot)
    await chats.record("1-0", {CHAT: Seq(5)}, 0)
    (lost,) = await chats.claim_due(10, 0)

    (again,) = await chats.claim_due(10, 60)
    assert again.since == 5
    await chats.finish(Due(CHAT, Seq(5), lost.time - 1, lost.claimed_ms), Seq(5))

    assert await hot.call("ZCARD", hot.keys.due(0)) == 1


async def test_due_chat_with_members_in_front_is_due_once_more(hot: HotClient) -> None:
    """The second look starts at the first message that may still need a push."""
    chats = await due_chats(hot)
    await chats.record("1-0", {CHAT: Seq(5), OTHER: Seq(1)}, 0)
    first, second = sorted(await chats.claim_due(10, 60), key=lambda due: due.chat)

    await chats.finish(first, Seq(7), 0)
    await chats.finish(second, Seq(2), 300)

    (again,) = await chats.claim_due(10, 60)
    assert (again.chat, again.since) == (CHAT, 7)
    assert await hot.call("ZCARD", hot.keys.due(0)) == 2


async def test_due_chats_are_for_the_holder_of_the_lease(hot: HotClient) -> None:
    """A worker that slept past its lease notes and takes nothing."""
    slept = await due_chats(hot)
    await slept.record("1-0", {CHAT: Seq(5)}, 0)
    await hot.call("HSET", hot.keys.lease(0, "notify"), "token", 99)

    assert not await slept.record("2-0", {OTHER: Seq(1)}, 0)
    assert await slept.claim_due(10, 60) == []
    assert await slept.get_checkpoint() == "1-0"


# how far the backlog is kept


async def test_backlog_is_kept_for_both_of_its_readers(hot: HotClient) -> None:
    """Persisted entries stay until they are scanned for pushes, and vice versa."""
    chats, persist = await due_chats(hot), await lease_of(hot, "persist")
    now, _ = await hot.call("TIME")
    one, two, three = (f"{int(now)}{n:03}-0" for n in (1, 2, 3))
    await add_entries(hot, one, two, three)

    await chats.record(one, {}, 0)
    assert await Backlog(hot, 0).checkpoint(persist, two, 1)
    assert await kept(hot) == [two, three]
    await chats.record(three, {}, 0)
    assert await kept(hot) == [three]
    assert await Backlog(hot, 0).checkpoint(persist, three, 1)
    assert await kept(hot) == []


@pytest.mark.parametrize("is_there", [True, False])
async def test_backlog_waits_a_minute_for_who_looks_for_pushes(
    hot: HotClient, is_there: bool
) -> None:
    """A worker that is behind gets a minute of entries, one that is gone none."""
    chats, persist = await due_chats(hot), await lease_of(hot, "persist")
    now, _ = await hot.call("TIME")
    old, recent, last = f"{int(now) - 90}000-0", f"{int(now) - 30}000-0", f"{int(now)}000-0"
    await add_entries(hot, f"{int(now) - 100}000-0", old, recent, last)
    await chats.record(f"{int(now) - 100}000-0", {}, 0)
    if not is_there:
        await hot.call("HINCRBY", hot.keys.checkpoint(0), "told_ms", -61_000)

    assert await Backlog(hot, 0).checkpoint(persist, last, 1)

    assert await kept(hot) == ([recent, last] if is_there else [])


# who is absent


async def test_absent_is_who_shows_no_client_and_may_have_devices(hot: HotClient) -> None:
    """Clients in the background or on a dead gateway do not count; read marks are included."""
    push_state = PushState(hot)
    seen = PresenceStates(hot=hot, gateway=GatewayId("gw1"), online_ttl_s=60, keep_s=600)
    dead = PresenceStates(hot=hot, gateway=GatewayId("gw2"), online_ttl_s=60, keep_s=600)
    await seen.keep_alive()
    await dead.keep_alive()
    await seen.announce(
        [GatewayPresence(BOB, State.ONLINE, 0.0), GatewayPresence(CAROL, State.AWAY, 0.0)]
    )
    await dead.announce([GatewayPresence(DAVE, State.ONLINE, 0.0)])
    await hot.call("HSET", hot.keys.box(CAROL), f"r:{CHAT}", 3)
    await push_state.record_devices(CAROL)
    await push_state.record_no_devices(ALICE)

    before = await push_state.find_needs(CHAT, [ALICE, BOB, CAROL, DAVE])
    await dead.leave(0)
    after = await push_state.find_needs(CHAT, [ALICE, BOB, CAROL, DAVE])

    bob = (Need.FOREGROUND, 0)
    assert before == {BOB: bob, CAROL: (Need.YES, 3), DAVE: (Need.FOREGROUND, 0)}
    assert after == {BOB: bob, CAROL: (Need.YES, 3), DAVE: (Need.IF_DEVICES, 0)}


async def test_note_of_no_devices_yields_to_a_registration(hot: HotClient) -> None:
    """A cached "no devices" does not hide a device that was registered since."""
    push_state = PushState(hot)
    await push_state.record_devices(BOB)
    await push_state.record_no_devices(BOB)

    assert await push_state.find_needs(CHAT, [BOB]) == {BOB: (Need.YES, 0)}
