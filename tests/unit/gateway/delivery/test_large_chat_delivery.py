"""Channels: each session gets each entry of a large chat once and in order."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import Seq, UserId
from chatserver.domain.messages import LogEntry
from chatserver.errors import Unavailable
from tests.unit.gateway.delivery.large_chat_world import (
    ALICE,
    BOB,
    CHAT,
    NEXT_EPOCH,
    Device,
    Tier,
    World,
    entry_of,
    run,
)


async def test_channel_pushed_entry_reaches_every_session() -> None:
    """The next entry is sent without a read of the log and is framed once for all."""
    world = World(Tier(top=5))
    devices = [Device(), Device(), Device(BOB)]

    for device in devices:
        await world.join(device)
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert [device.received for device in devices] == [[6], [6], [6]]
    assert all(device.frames[0] is devices[0].frames[0] for device in devices)
    assert world.tier.reads == 0


async def test_channel_session_with_an_older_position_gets_missed_entries() -> None:
    """A resumed session gets the missed entries, then the same entries as the others."""
    world = World(Tier(top=5))
    old, new = Device(), Device(BOB)

    await world.join(new)
    await world.join(old, after=2)
    world.push(world.tier.commit())
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert old.received == [3, 4, 5, 6, 7]
    assert new.received == [6, 7]


@given(st.integers(0, 2**32), st.integers(0, 300), st.integers(1, 60))
def test_channel_with_pushes_in_any_order_sends_each_entry_once_in_order(
    seed: int, top: int, commits: int
) -> None:
    """Pushes may be late, repeated or lost: missing entries are read from the log."""
    chance = random.Random(seed)
    devices: list[tuple[Device, int]] = []

    async def test(world: World) -> None:
        waiting: list[LogEntry] = []
        for _ in range(commits):
            if chance.random() < 0.2:
                after = chance.choice([world.tier.top, chance.randint(0, world.tier.top)])
                device = Device(UserId(f"u{len(devices)}"))
                await world.join(device, after=after)
                devices.append((device, after))
            waiting.append(world.tier.commit())
            if chance.random() < 0.1:
                waiting.pop()  # a push that is lost
            chance.shuffle(waiting)
            while waiting and chance.random() < 0.7:
                world.push(waiting[-1] if chance.random() < 0.1 else waiting.pop())
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        if devices:
            await world.channels.refresh()

    world = run(test, top)

    for device, after in devices:
        assert device.received == list(range(after + 1, world.tier.top + 1))
        assert device.recoveries == []


async def test_channel_removed_member_gets_no_later_entry() -> None:
    """The entry that removes a user arrives in the inbox, as the last one (guarantee P7)."""
    world = World(Tier())
    alice, bob = Device(), Device(BOB)

    await world.join(alice)
    await world.join(bob)
    world.push(world.tier.commit())
    world.push(world.tier.commit(user="bob", role=""))
    world.push(world.tier.commit())
    world.tier.record_transition(BOB, 1, 0, 1)
    await world.finish(bob, 1, 1)
    await world.wait_until_idle()

    assert alice.received == [1, 2, 3]
    assert bob.received == [1]


async def test_channel_offline_member_gets_only_entries_before_the_removal() -> None:
    """The limit holds for every cursor that the device sends."""
    world = World(Tier())
    bob = Device(BOB)

    for _ in range(4):
        world.tier.commit()
    world.tier.commit(user="bob", role="")
    world.tier.commit()
    world.tier.removed_users.add(BOB)
    world.tier.record_transition(BOB, 1, 2)  # the device claims a seq before the member joined
    await world.join(bob, after=1, start=1)
    await world.wait_until_idle()
    await world.finish(bob, 4, 2)
    await world.wait_until_idle()

    assert bob.received == [3, 4]
    assert bob.recoveries == []


async def test_channel_slow_member_gets_no_entry_after_the_removal() -> None:
    """The member's own read of the log stops at the removal."""
    world = World(Tier(top=3))
    alice, bob = Device(), Device(BOB)

    await world.join(alice)
    world.tier.commit(user="bob", role="")
    last = world.tier.commit()
    await world.join(bob, after=1)  # this gateway has not received the removal
    world.push(last)
    await world.wait_until_idle()

    assert alice.received == [4, 5]
    assert bob.received == [2, 3]


async def test_channel_new_member_with_a_session_gets_all_later_entries() -> None:
    """A new member need not reconnect to receive a large chat."""
    world = World(Tier(top=3))
    alice, bob = Device(), Device(BOB)

    await world.join(alice)
    world.tier.record_transition(BOB, 7, 3)
    await world.join(bob)  # before the inbox event of the transition
    world.push(world.tier.commit(user="bob", role="member"))
    await world.channels.begin(bob, CHAT, Seq(3), Seq(7))
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert alice.received == [4, 5]
    assert bob.received == [4, 5]


async def test_channel_session_of_rejoined_member_stays_attached() -> None:
    """The session is ahead of the channel, which has not read both entries yet."""
    world = World(Tier(top=3))
    alice, bob = Device(), Device(BOB)

    await world.join(alice)
    world.tier.commit(user="bob", role="")
    world.tier.commit(user="bob", role="member")
    world.tier.record_transition(BOB, 7, 4)
    await world.join(bob)
    await world.channels.begin(bob, CHAT, Seq(4), Seq(7))
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert alice.received == [4, 5, 6]
    assert bob.received == [5, 6]


async def test_channel_snapshot_after_rejoining_is_not_rewound_by_old_notices() -> None:
    """The notices of leaving and joining may arrive after a snapshot that includes both."""
    world = World(Tier(top=3))
    bob = Device(BOB)

    world.tier.commit(user="bob", role="")
    world.tier.commit(user="bob", role="member")
    last = world.tier.commit()
    await world.join(bob, after=last.seq)
    await world.finish(bob, 3, 1)
    world.tier.record_transition(BOB, 2, 4)
    await world.channels.begin(bob, CHAT, Seq(4), Seq(2))
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert bob.received == [7]
    assert bob.recoveries == []


async def test_channel_of_an_evicted_chat_is_opened_again() -> None:
    """A device keeps its position in a chat that was evicted from the hot tier."""
    world = World(Tier(top=3))
    device = Device()

    world.tier.is_open = False
    await world.join(device, after=2)
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert device.received == [3, 4]


async def test_channel_signal_reaches_the_other_local_members() -> None:
    """The sender of a typing signal does not receive it."""
    world = World(Tier())
    alice, bob = Device(), Device(BOB)

    await world.join(alice)
    await world.join(bob)
    world.channels.send_signal(CHAT, ALICE, b"typing")
    await world.wait_until_idle()

    assert (alice.signals, bob.signals) == ([], [b"typing"])


async def test_channel_position_below_the_log_starts_recovery() -> None:
    """A device that is too far behind must read history; no entry is skipped silently."""
    world = World(Tier(top=6))
    device = Device()

    world.tier.trim(4)
    await world.join(device, after=1)
    await world.wait_until_idle()
    await world.reattach(device)
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert device.recoveries == [0]
    assert device.received == [7]


async def test_channel_without_sessions_is_closed() -> None:
    """A gateway subscribes to a chat only while it has a session of a member."""
    world = World(Tier())
    device = Device()

    await world.join(device)
    world.channels.detach(device)
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert device.received == []
    assert world.tier.listeners == 0


async def test_channel_in_a_new_epoch_recovers_every_session() -> None:
    """Positions of another epoch mean nothing."""
    world = World(Tier(top=9))
    device = Device()

    await world.join(device)
    world.tier.epoch = NEXT_EPOCH
    world.tier.entries = [entry_of(1), entry_of(2)]
    await world.channels.refresh()
    await world.reattach(device)
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert device.recoveries == [0]
    assert device.received == [3]


async def test_channel_after_a_redis_outage_sends_missed_entries() -> None:
    """Entries that could not be read during the outage are read at the next refresh."""
    world = World(Tier())
    device = Device()

    await world.join(device)
    world.tier.commit()
    later = world.tier.commit()
    world.tier.is_down = True
    world.push(later)
    await world.wait_until_idle()
    with pytest.raises(Unavailable):
        await world.channels.refresh()
    world.tier.is_down = False
    await world.channels.refresh()
    await world.wait_until_idle()

    assert device.received == [1, 2]


async def test_channel_position_ahead_of_the_log_starts_recovery() -> None:
    """The position is from a lost log: its seqs are other entries now."""
    world = World(Tier(top=3))
    device = Device()

    await world.join(device, after=5)
    for _ in range(3):
        world.push(world.tier.commit())
    await world.wait_until_idle()
    await world.reattach(device)
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert device.recoveries == [0]
    assert device.received == [7]
