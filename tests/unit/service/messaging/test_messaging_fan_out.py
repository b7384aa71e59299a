"""Sending: fan-out after the commit, and large chats."""

from __future__ import annotations

from typing import Literal

import pytest

from chatserver.domain.ids import ChatId
from chatserver.domain.inboxes import Delivery
from chatserver.errors import (
    Unavailable,
)
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, EPOCH, audience_of
from tests.unit.service.messaging.messaging_world import Acked, World, run_pending_tasks

OTHER = ChatId("c2")


@pytest.fixture
async def world() -> World:
    """The chat of alice and bob is open and known."""
    return World()


@pytest.fixture
async def unloaded() -> World:
    """The chat is not loaded."""
    return World(is_open=False)


# fan-out of messages that the commit did not deliver


async def test_undelivered_is_acked_at_once_and_delivered_to_all(world: World) -> None:
    """Each member gets messages only from their join on."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, after={BOB: 4})  # bob joined later
    await world.send("r1")

    world.commits.leave_undelivered()
    assert [type(each) for each in world.client.outcomes_received] == [Acked]
    await world.messaging.drain()

    assert world.inboxes.calls == [
        [
            Delivery(ALICE, CHAT, 0, 1, EPOCH),  # type: ignore[arg-type]  # plain numbers
        ]
    ]
    assert world.outcomes.notified == [(ALICE, 1)]
    assert world.outcomes.finished == [(CHAT, 1)]


async def test_undelivered_during_a_fan_out_is_in_the_next_one(world: World) -> None:
    """One fan-out per chat at a time keeps the order of inboxes."""
    world.audiences.is_slow = True
    await world.send("r1", "r2", "r3")
    world.commits.leave_undelivered()
    await run_pending_tasks()

    world.commits.leave_undelivered(2)
    world.audiences.is_slow = False
    await world.audiences.loaded(audience_of(ALICE, BOB))
    await world.messaging.drain()

    uptos = [[each.upto for each in call] for call in world.inboxes.calls]
    assert uptos == [[1, 1], [3, 3]]
    assert world.outcomes.finished == [(CHAT, 1), (CHAT, 3)]
    assert world.inboxes.tops == {(ALICE, CHAT): 3, (BOB, CHAT): 3}


async def test_undelivered_that_cannot_be_delivered_is_left_to_repair(world: World) -> None:
    """The chat stays listed for repair; the next message starts another fan-out."""
    world.inboxes.error = Unavailable("redis")
    await world.send("r1")
    world.commits.leave_undelivered()
    await world.messaging.drain()
    assert world.outcomes.finished == []

    world.inboxes.error = None
    await world.send("r2")
    world.commits.leave_undelivered()
    await world.messaging.drain()

    assert world.inboxes.tops == {(ALICE, CHAT): 2, (BOB, CHAT): 2}
    assert world.outcomes.finished == [(CHAT, 2)]


async def test_undelivered_uses_the_current_audience(world: World) -> None:
    """The commit did not deliver because its recipients were outdated."""
    await world.send("r1")
    world.audiences.known[CHAT] = audience_of(ALICE, CAROL, gate="E1:2")

    world.commits.leave_undelivered()
    await world.messaging.drain()

    assert set(world.inboxes.tops) == {(ALICE, CHAT), (CAROL, CHAT)}
    assert world.audiences.fresh_reads == 1


async def test_undelivered_skips_messages_delivered_by_the_commit(world: World) -> None:
    """Messages delivered between two fan-outs are already in every inbox."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, after={BOB: 4}, done=2)
    await world.send("r1", "r2", "r3")
    world.commits.pop_committed()
    world.commits.pop_committed()

    world.commits.leave_undelivered()
    await world.messaging.drain()

    ((alice,),) = world.inboxes.calls  # bob joined later
    assert (alice.user, alice.after, alice.upto) == (ALICE, 2, 3)


async def test_undelivered_that_redis_lost_is_not_delivered(world: World) -> None:
    """Redis may assign the seq of a lost message again."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, top=1)
    await world.send("r1", "r2")

    world.commits.leave_undelivered(2)
    await world.messaging.drain()

    assert world.inboxes.tops == {(ALICE, CHAT): 1, (BOB, CHAT): 1}
    assert world.outcomes.finished == [(CHAT, 1)]


# large chats


@pytest.mark.parametrize(("far", "finished"), [(0, []), (b"gw2", [(CHAT, 1)])])
async def test_send_to_large_chat_is_acked_and_published(
    world: World, far: bytes | Literal[0], finished: list[tuple[ChatId, int]]
) -> None:
    """It is published once for all members, and finished after remote gateways are notified."""
    await world.send("r1")

    world.commits.publish_all(far)

    assert [type(each) for each in world.client.outcomes_received] == [Acked]
    assert world.outcomes.published == [(CHAT, 1, far)]
    assert world.outcomes.finished_soon == finished
    assert world.outcomes.pushed == []


async def test_undelivered_in_large_chat_notifies_its_gateways(world: World) -> None:
    """A large chat has no inboxes: gateways with its sessions read the log."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, is_large=True)
    await world.send("r1")

    world.commits.leave_undelivered()
    await world.messaging.drain()

    assert world.inboxes.calls == []
    assert world.outcomes.channels_notified == [(CHAT, 1)]
    assert world.outcomes.finished == [(CHAT, 1)]


async def test_drain_waits_for_loads_and_fan_outs(unloaded: World) -> None:
    """A gateway that stops has committed every accepted send."""
    await unloaded.send("r1")
    loading = unloaded.audiences.loading[CHAT]
    loading.get_loop().call_soon(loading.set_result, audience_of(ALICE, BOB))

    await unloaded.messaging.drain()

    assert unloaded.commits.submitted == ["r1"]
