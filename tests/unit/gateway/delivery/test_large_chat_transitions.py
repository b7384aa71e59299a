"""Channels of chats that become large or small: sessions join and leave at their own positions."""

from __future__ import annotations

from chatserver.domain.ids import Seq
from tests.unit.gateway.delivery.large_chat_world import ALICE, BOB, CHAT, Device, Tier, World


async def test_channel_of_chat_that_became_small_sends_entries_up_to_the_transition() -> None:
    """Later entries are in the inbox and would be delivered twice."""
    world = World(Tier(top=3))
    here, slow = Device(), Device(BOB)

    await world.join(here)
    await world.join(slow, after=0)
    world.push(world.tier.commit())
    world.tier.commit()
    world.tier.large = 0
    world.tier.commit()
    world.channels.notify_seq(CHAT, Seq(6))
    await world.channels.refresh()
    for device in (here, slow):
        await world.finish(device, 5, 9)
    await world.wait_until_idle()

    assert here.received == [4, 5]
    assert slow.received == [1, 2, 3, 4, 5]
    assert world.tier.listeners == 0


async def test_channel_after_two_transitions_skips_entries_of_the_inbox() -> None:
    """A session handles each transition at its own inbox position."""
    world = World(Tier(top=3))
    early, late = Device(), Device(BOB)

    await world.join(early)
    world.push(world.tier.commit())
    world.tier.large = 9  # small above 4, large again above 6
    world.tier.commit()
    world.tier.commit()
    world.tier.record_transition(ALICE, 20, 6)
    world.tier.record_transition(BOB, 20, 6)
    newest = world.tier.commit()
    await world.join(late, after=2, start=20)
    world.push(newest)
    await world.wait_until_idle()
    await world.finish(early, 4, 10)
    await world.channels.begin(early, CHAT, Seq(6), Seq(20))
    await world.wait_until_idle()
    world.push(world.tier.commit())
    await world.wait_until_idle()

    assert early.received == [4, 7, 8]
    assert late.received == [7, 8]


async def test_channel_of_a_past_large_period_is_sent_from_the_log() -> None:
    """Both transitions are in the past: nothing is pushed live."""
    world = World(Tier(top=9))
    device = Device()

    world.tier.large = 0
    world.tier.record_transition(ALICE, 12, 2, 5)
    await world.join(device, start=10)
    await world.channels.begin(device, CHAT, Seq(2), Seq(11))
    await world.finish(device, 5, 12)
    await world.wait_until_idle()

    assert device.received == [3, 4, 5]


async def test_channel_position_that_cannot_be_verified_starts_recovery() -> None:
    """A device states its position; it does not decide what it may read."""
    world = World(Tier(top=9))
    device = Device()

    world.tier.record_transition(ALICE, 30, 8)
    await world.join(device, after=1, start=10)
    await world.finish(device, 5, 12)
    await world.wait_until_idle()

    assert device.received == []
    assert device.recoveries == [0]


async def test_channel_without_a_position_starts_recovery_if_entries_were_missed() -> None:
    """A device without a position may lack a whole large period, so it needs a snapshot."""
    world = World(Tier(top=9))
    device, up_to_date = Device(), Device(BOB)

    world.tier.large = 0
    world.tier.record_transition(ALICE, 12, 2, 5)
    world.tier.record_transition(BOB, 12, 5, 5)
    for each in (device, up_to_date):
        await world.join(each, start=10)
        await world.finish(each, 5, 12)
    await world.wait_until_idle()

    assert (device.received, device.recoveries) == ([], [0])
    assert (up_to_date.received, up_to_date.recoveries) == ([], [])


async def test_channel_without_a_position_after_unrecorded_transitions_starts_recovery() -> None:
    """The chat may have had entries in a large period that is no longer recorded."""
    world = World(Tier(top=9))
    device = Device()

    world.tier.record_transition(ALICE, 30, 8)
    await world.join(device, start=10)
    await world.finish(device, 5, 12)
    await world.wait_until_idle()

    assert device.recoveries == [0]


async def test_channel_of_chat_that_was_never_large_sends_nothing_on_removal() -> None:
    """The inbox contains everything, including the entry of the removal."""
    world = World(Tier(top=9))
    device = Device()

    world.tier.large = 0
    world.tier.record_transition(ALICE, 3, 1, 1)
    await world.join(device, start=10)
    await world.finish(device, 5, 12, is_removal=True)
    await world.wait_until_idle()

    assert (device.received, device.recoveries) == ([], [])
