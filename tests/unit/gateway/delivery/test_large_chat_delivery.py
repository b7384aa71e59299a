"""Channels: each session gets each entry of a large chat once and in order, whatever happens."""

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
    World,
    entry_of,
    run,
)


def test_channel_entry_reaches_every_session_at_once() -> None:
    """The next entry needs no read of the log, and is framed once: the bytes are the same."""
    devices = [Device(), Device(), Device(BOB)]

    async def test(world: World) -> None:
        for device in devices:
            await world.join(device)
        world.push(world.tier.commit())

    world = run(test, top=5)

    assert [device.got for device in devices] == [[6], [6], [6]]
    assert all(device.frames[0] is devices[0].frames[0] for device in devices)
    assert world.tier.reads == 0


def test_channel_session_with_an_older_place_gets_what_it_missed() -> None:
    """Resume costs what was missed, and then goes on with everybody else."""
    old, new = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(new)
        await world.join(old, after=2)
        world.push(world.tier.commit())
        await world.rest()
        world.push(world.tier.commit())

    run(test, top=5)

    assert old.got == [3, 4, 5, 6, 7]
    assert new.got == [6, 7]


@given(st.integers(0, 2**32), st.integers(0, 300), st.integers(1, 60))
def test_channel_gives_each_entry_once_and_in_order_whatever_order_it_hears_of_them(
    seed: int, top: int, commits: int
) -> None:
    """Entries that come late, twice, or not at all: what is missing is read from the log."""
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
                waiting.pop()  # mail that was lost
            chance.shuffle(waiting)
            while waiting and chance.random() < 0.7:
                world.push(waiting[-1] if chance.random() < 0.1 else waiting.pop())
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        if devices:
            await world.channels.refresh()

    world = run(test, top)

    for device, after in devices:
        assert device.got == list(range(after + 1, world.tier.top + 1))
        assert device.lost == []


def test_channel_member_who_is_removed_hears_nothing_from_then_on() -> None:
    """The entry that removes a user comes by the inbox, as the last one (promise P7)."""
    alice, bob = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(alice)
        await world.join(bob)
        world.push(world.tier.commit())
        world.push(world.tier.commit(user="bob", role=""))
        world.push(world.tier.commit())
        world.tier.turn(BOB, 1, 0, 1)
        await world.finish(bob, 1, 1)

    run(test)

    assert alice.got == [1, 2, 3]
    assert bob.got == [1]


def test_channel_member_who_was_away_gets_what_came_before_the_removal() -> None:
    """Not more, whatever cursor the device sends."""
    bob = Device(BOB)

    async def test(world: World) -> None:
        for _ in range(4):
            world.tier.commit()
        world.tier.commit(user="bob", role="")
        world.tier.commit()
        world.tier.gone.add(BOB)
        world.tier.turn(BOB, 1, 2)  # what he says to have is of before his time
        await world.join(bob, after=1, start=1)
        await world.rest()
        await world.finish(bob, 4, 2)

    run(test)

    assert bob.got == [3, 4]
    assert bob.lost == []


def test_channel_member_who_is_behind_is_stopped_by_his_removal() -> None:
    """His own reading of the log finds it, though the others are far ahead."""
    alice, bob = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(alice)
        world.tier.commit(user="bob", role="")
        last = world.tier.commit()
        await world.join(bob, after=1)  # a gateway that has not heard of it
        world.push(last)

    run(test, top=3)

    assert alice.got == [4, 5]
    assert bob.got == [2, 3]


def test_channel_new_member_who_is_here_hears_of_it_and_of_all_after() -> None:
    """A new member need not reconnect to receive a large chat."""
    alice, bob = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(alice)
        world.tier.turn(BOB, 7, 3)
        await world.join(bob)  # the inbox has yet to say it
        world.push(world.tier.commit(user="bob", role="member"))
        await world.channels.begin(bob, CHAT, Seq(3), Seq(7))
        await world.rest()
        world.push(world.tier.commit())

    run(test, top=3)

    assert alice.got == [4, 5]
    assert bob.got == [4, 5]


def test_channel_session_of_rejoined_member_stays_attached() -> None:
    """The session is ahead of the channel, which has yet to read both entries."""
    alice, bob = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(alice)
        world.tier.commit(user="bob", role="")
        world.tier.commit(user="bob", role="member")
        world.tier.turn(BOB, 7, 4)
        await world.join(bob)
        await world.channels.begin(bob, CHAT, Seq(4), Seq(7))
        await world.rest()
        world.push(world.tier.commit())

    run(test, top=3)

    assert alice.got == [4, 5, 6]
    assert bob.got == [5, 6]


def test_channel_of_a_chat_that_left_the_hot_tier_is_opened_again() -> None:
    """It was idle for long; a device that comes has its place all the same."""
    device = Device()

    async def test(world: World) -> None:
        world.tier.is_open = False
        await world.join(device, after=2)
        await world.rest()
        world.push(world.tier.commit())

    run(test, top=3)

    assert device.got == [3, 4]


def test_channel_signal_reaches_the_other_members_here() -> None:
    """The sender of a typing signal does not receive it."""
    alice, bob = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(alice)
        await world.join(bob)
        world.channels.send_signal(CHAT, ALICE, b"typing")

    run(test)

    assert (alice.signals, bob.signals) == ([], [b"typing"])


def test_channel_hole_below_the_log_is_told_and_the_rest_goes_on() -> None:
    """A device that is too far behind must page history; no entry is skipped silently."""
    device = Device()

    async def test(world: World) -> None:
        world.tier.trim(4)
        await world.join(device, after=1)
        await world.rest()
        await world.come_back(device)
        world.push(world.tier.commit())

    run(test, top=6)

    assert device.lost == [0]
    assert device.got == [7]


def test_channel_whose_last_session_left_is_given_up() -> None:
    """A gateway receives a chat only while it has a session of a member."""
    device = Device()

    async def test(world: World) -> None:
        await world.join(device)
        world.channels.detach(device)
        await world.rest()
        world.push(world.tier.commit())

    world = run(test)

    assert device.got == []
    assert world.tier.listeners == 0


def test_channel_in_a_new_epoch_starts_everybody_from_a_snapshot() -> None:
    """Places of another life of the hot tier mean nothing."""
    device = Device()

    async def test(world: World) -> None:
        await world.join(device)
        world.tier.epoch = NEXT_EPOCH
        world.tier.entries = [entry_of(1), entry_of(2)]
        await world.channels.refresh()
        await world.come_back(device)
        world.push(world.tier.commit())

    run(test, top=9)

    assert device.lost == [0]
    assert device.got == [3]


def test_channel_while_redis_is_away_keeps_its_sessions_in_step() -> None:
    """Entries that could not be read then are found at the next refresh."""
    device = Device()

    async def test(world: World) -> None:
        await world.join(device)
        world.tier.commit()
        later = world.tier.commit()
        world.tier.is_down = True
        world.push(later)
        await world.rest()
        with pytest.raises(Unavailable):
            await world.channels.refresh()
        world.tier.is_down = False
        await world.channels.refresh()

    run(test)

    assert device.got == [1, 2]


def test_channel_place_ahead_of_the_log_is_not_believed() -> None:
    """It is from a lost log: those seqs are other entries now, which must be delivered."""
    device = Device()

    async def test(world: World) -> None:
        await world.join(device, after=5)
        for _ in range(3):
            world.push(world.tier.commit())
        await world.rest()
        await world.come_back(device)
        world.push(world.tier.commit())

    run(test, top=3)

    assert device.lost == [0]
    assert device.got == [7]
