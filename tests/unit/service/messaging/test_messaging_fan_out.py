"""Sending: who delivers what the commit did not, and large chats."""

from __future__ import annotations

from typing import Literal

import pytest

from chatserver.domain.ids import ChatId
from chatserver.domain.inboxes import Delivery
from chatserver.errors import (
    Unavailable,
)
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, EPOCH, audience_of
from tests.unit.service.messaging.messaging_world import Acked, World, settle_down

OTHER = ChatId("c2")


@pytest.fixture
async def world() -> World:
    """The chat of alice and bob is open and known."""
    return World()


@pytest.fixture
async def cold() -> World:
    """The chat is not known here."""
    return World(is_open=False)


# fan-out of what the commit did not deliver


async def test_undelivered_is_acked_at_once_and_delivered_to_all(world: World) -> None:
    """Every member is served from where its membership begins."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, after={BOB: 4})  # bob joined later
    await world.send("r1")

    world.commits.leave_undelivered()
    assert [type(each) for each in world.client.heard] == [Acked]
    await world.messaging.drain()

    assert world.inboxes.calls == [
        [
            Delivery(ALICE, CHAT, 0, 1, EPOCH),  # type: ignore[arg-type]  # plain numbers
        ]
    ]
    assert world.outcomes.notified == [(ALICE, 1)]
    assert world.outcomes.settled == [(CHAT, 1)]


async def test_undelivered_while_a_fan_out_runs_joins_the_next_round(world: World) -> None:
    """One fan-out a chat at a time, so that inboxes are served in order."""
    world.audiences.is_slow = True
    await world.send("r1", "r2", "r3")
    world.commits.leave_undelivered()
    await settle_down()

    world.commits.leave_undelivered(2)
    world.audiences.is_slow = False
    await world.audiences.loaded(audience_of(ALICE, BOB))
    await world.messaging.drain()

    uptos = [[each.upto for each in call] for call in world.inboxes.calls]
    assert uptos == [[1, 1], [3, 3]]
    assert world.outcomes.settled == [(CHAT, 1), (CHAT, 3)]
    assert world.inboxes.tops == {(ALICE, CHAT): 3, (BOB, CHAT): 3}


async def test_undelivered_that_cannot_be_delivered_is_left_to_repair(world: World) -> None:
    """The chat stays listed; the next message starts a fan-out of its own."""
    world.inboxes.error = Unavailable("redis")
    await world.send("r1")
    world.commits.leave_undelivered()
    await world.messaging.drain()
    assert world.outcomes.settled == []

    world.inboxes.error = None
    await world.send("r2")
    world.commits.leave_undelivered()
    await world.messaging.drain()

    assert world.inboxes.tops == {(ALICE, CHAT): 2, (BOB, CHAT): 2}
    assert world.outcomes.settled == [(CHAT, 2)]


async def test_undelivered_uses_the_audience_of_now(world: World) -> None:
    """It was left because the recipients were out of date."""
    await world.send("r1")
    world.audiences.known[CHAT] = audience_of(ALICE, CAROL, gate="E1:2")

    world.commits.leave_undelivered()
    await world.messaging.drain()

    assert set(world.inboxes.tops) == {(ALICE, CHAT), (CAROL, CHAT)}
    assert world.audiences.fresh_reads == 1


async def test_undelivered_leaves_out_what_the_commit_served(world: World) -> None:
    """Messages delivered between two fan-outs are already in every inbox."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, after={BOB: 4}, done=2)
    await world.send("r1", "r2", "r3")
    world.commits.take()
    world.commits.take()

    world.commits.leave_undelivered()
    await world.messaging.drain()

    ((alice,),) = world.inboxes.calls  # nothing of it is for bob
    assert (alice.user, alice.after, alice.upto) == (ALICE, 2, 3)


async def test_undelivered_that_redis_lost_is_not_delivered(world: World) -> None:
    """Redis reassigns the seq of a lost message: no inbox contains it yet."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, top=1)
    await world.send("r1", "r2")

    world.commits.leave_undelivered(2)
    await world.messaging.drain()

    assert world.inboxes.tops == {(ALICE, CHAT): 1, (BOB, CHAT): 1}
    assert world.outcomes.settled == [(CHAT, 1)]


# large chats


@pytest.mark.parametrize(("far", "settled"), [(0, []), (b"gw2", [(CHAT, 1)])])
async def test_send_to_large_chat_is_acked_and_published(
    world: World, far: bytes | Literal[0], settled: list[tuple[ChatId, int]]
) -> None:
    """Once for all its members; it is settled behind the mail, if there is any."""
    await world.send("r1")

    world.commits.publish_all(far)

    assert [type(each) for each in world.client.heard] == [Acked]
    assert world.outcomes.published == [(CHAT, 1, far)]
    assert world.outcomes.settled_soon == settled
    assert world.outcomes.pushed == []


async def test_undelivered_in_large_chat_is_told_to_its_gateways(world: World) -> None:
    """A large chat has no inboxes: gateways with its sessions read the log."""
    world.audiences.known[CHAT] = audience_of(ALICE, BOB, is_large=True)
    await world.send("r1")

    world.commits.leave_undelivered()
    await world.messaging.drain()

    assert world.inboxes.calls == []
    assert world.outcomes.channels_notified == [(CHAT, 1)]
    assert world.outcomes.settled == [(CHAT, 1)]


async def test_drain_waits_for_loads_and_fan_outs(cold: World) -> None:
    """A gateway that leaves has delivered what it took."""
    await cold.send("r1")
    loading = cold.audiences.loading[CHAT]
    loading.get_loop().call_soon(loading.set_result, audience_of(ALICE, BOB))

    await cold.messaging.drain()

    assert cold.commits.submitted == ["r1"]
