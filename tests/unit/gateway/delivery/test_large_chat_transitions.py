"""Channels of chats that become large or small: sessions join and leave at their own positions."""

from __future__ import annotations

from chatserver.domain.ids import Seq
from tests.unit.gateway.delivery.large_chat_world import ALICE, BOB, CHAT, Device, World, run


def test_channel_of_a_chat_that_turned_small_gives_the_rest_up_to_there_and_no_more() -> None:
    """Later entries are in the inbox and would be delivered twice."""
    here, slow = Device(), Device(BOB)

    async def test(world: World) -> None:
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

    world = run(test, top=3)

    assert here.got == [4, 5]
    assert slow.got == [1, 2, 3, 4, 5]
    assert world.tier.listeners == 0


def test_channel_of_a_chat_that_turned_twice_meanwhile_leaves_out_what_inboxes_had() -> None:
    """A session handles each transition at its own inbox position."""
    early, late = Device(), Device(BOB)

    async def test(world: World) -> None:
        await world.join(early)
        world.push(world.tier.commit())
        world.tier.large = 9  # small above 4, large again above 6
        world.tier.commit()
        world.tier.commit()
        world.tier.turn(ALICE, 20, 6)
        world.tier.turn(BOB, 20, 6)
        newest = world.tier.commit()
        await world.join(late, after=2, start=20)
        world.push(newest)
        await world.rest()
        await world.finish(early, 4, 10)
        await world.channels.begin(early, CHAT, Seq(6), Seq(20))
        await world.rest()
        world.push(world.tier.commit())

    run(test, top=3)

    assert early.got == [4, 7, 8]
    assert late.got == [7, 8]


def test_channel_that_was_large_for_a_while_only_is_sent_from_its_two_ends() -> None:
    """Both lie behind the device: nothing is sent live."""
    device = Device()

    async def test(world: World) -> None:
        world.tier.large = 0
        world.tier.turn(ALICE, 12, 2, 5)
        await world.join(device, start=10)
        await world.channels.begin(device, CHAT, Seq(2), Seq(11))
        await world.finish(device, 5, 12)

    run(test, top=9)

    assert device.got == [3, 4, 5]


def test_channel_place_that_cannot_be_proven_is_answered_with_a_snapshot() -> None:
    """A device states its position; it does not decide what it may read."""
    device = Device()

    async def test(world: World) -> None:
        world.tier.turn(ALICE, 30, 8)
        await world.join(device, after=1, start=10)
        await world.finish(device, 5, 12)

    run(test, top=9)

    assert device.got == []
    assert device.lost == [0]


def test_channel_whose_place_was_not_given_ends_with_a_snapshot_if_something_was_said() -> None:
    """A device without a position may lack a whole large period, so it needs a snapshot."""
    device, content = Device(), Device(BOB)

    async def test(world: World) -> None:
        world.tier.large = 0
        world.tier.turn(ALICE, 12, 2, 5)
        world.tier.turn(BOB, 12, 5, 5)
        for each in (device, content):
            await world.join(each, start=10)
            await world.finish(each, 5, 12)

    run(test, top=9)

    assert (device.got, device.lost) == ([], [0])
    assert (content.got, content.lost) == ([], [])


def test_channel_that_turned_too_often_for_a_place_not_given_ends_with_a_snapshot() -> None:
    """The forgotten transitions may have contained entries."""
    device = Device()

    async def test(world: World) -> None:
        world.tier.turn(ALICE, 30, 8)
        await world.join(device, start=10)
        await world.finish(device, 5, 12)

    run(test, top=9)

    assert device.lost == [0]


def test_channel_of_a_chat_that_never_was_large_says_nothing_when_its_member_goes() -> None:
    """The inbox contains everything, including the entry of the removal."""
    device = Device()

    async def test(world: World) -> None:
        world.tier.large = 0
        world.tier.turn(ALICE, 3, 1, 1)
        await world.join(device, start=10)
        await world.finish(device, 5, 12, is_removal=True)

    run(test, top=9)

    assert (device.got, device.lost) == ([], [])
