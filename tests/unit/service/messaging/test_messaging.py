"""Sending: order, and exactly one answer, whatever becomes of the chat."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from chatserver.domain.access.caller import CALLER
from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.messages import format_place
from chatserver.errors import (
    BadRequest,
    Conflict,
    NotFound,
    Overloaded,
    TooLarge,
    Unavailable,
)
from chatserver.protocol import codec, frames
from chatserver.service.messaging import service as messaging
from chatserver.service.messaging.service import LOADS_MAX, Draft
from tests.support.servers.processes import eventually
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, audience_of
from tests.unit.service.messaging.messaging_world import (
    Acked,
    Refused,
    World,
    settle_down,
)

OTHER = ChatId("c2")


@pytest.fixture
async def world() -> World:
    """The chat of alice and bob is open and known."""
    return World()


@pytest.fixture
async def cold() -> World:
    """The chat is not known here."""
    return World(is_open=False)


def draft_of(ref: str, body: str = "hi") -> Draft:
    return Draft(ALICE, frames.Send(1, CHAT, ref, body))


# a chat that is open


async def test_send_submits_what_the_codec_makes_of_the_frame(world: World) -> None:
    """The committed bytes decode to the message that was sent."""
    await world.send("r1", body="e\u0301 🙂", reply_to=3, kind="note")

    ((draft, audience),) = world.commits.queue
    message = codec.decode_message(codec.join_message(7, 70, draft.tail))
    assert message == frames.Message(
        seq=7, ts=70, chat=CHAT, mid=draft.mid, sender=ALICE, ref="r1", kind="note",
        body="é 🙂", reply_to=3,
    )  # fmt: skip
    assert audience is world.audiences.known[CHAT]


async def test_send_committed_is_acked_and_pushed_to_all(world: World) -> None:
    """Each recipient gets the event at the inbox's own place, the sender too."""
    await world.send("r1")
    (draft, _) = world.commits.queue[0]

    world.commits.commit_all()

    assert world.client.heard == [Acked("r1", 1, draft.mid, dup=False)]
    assert world.outcomes.pushed == [(ALICE, 1, 0), (BOB, 1, 0)]
    event = msgspec.json.decode(
        codec.join_event("E1", 1, world.outcomes.bodies[0]), type=frames.Event
    )
    assert (event.chat, event.cs, event.kind) == (CHAT, 1, "message")
    assert isinstance(event.message, frames.Message)
    assert event.message.body == "text r1"
    assert world.outcomes.settled_soon == []


async def test_awaited_send_returns_the_ack(world: World) -> None:
    """The position is that of the committed message; devices get it as usual."""
    sending = asyncio.create_task(world.messaging.send(draft_of("r1")))
    await settle_down()

    (draft, _) = world.commits.queue[0]
    world.commits.commit_all()

    ack = await sending
    assert (ack.ref, ack.seq, ack.mid, ack.dup) == ("r1", 1, draft.mid, False)
    assert len(world.outcomes.pushed) == 2


async def test_awaited_send_raises_what_refuses_the_message(world: World) -> None:
    """A refusal before and after acceptance reaches the caller alike."""
    sending = asyncio.create_task(world.messaging.send(draft_of("r1")))
    await settle_down()
    draft, _ = world.commits.queue.popleft()
    draft.owner.failed(draft, Unavailable("redis"))

    with pytest.raises(Unavailable, match="redis"):
        await sending
    with pytest.raises(BadRequest):
        await world.messaging.send(draft_of("r2", ""))


async def test_cancelled_send_ignores_its_late_outcome(world: World) -> None:
    """The message may have been sent; its ack is ignored."""
    sending = asyncio.create_task(world.messaging.send(draft_of("r1")))
    await settle_down()
    sending.cancel()
    await settle_down()

    world.commits.commit_all()

    assert len(world.outcomes.pushed) == 2


async def test_send_to_user_elsewhere_is_settled_after_the_mail(world: World) -> None:
    """The chat stays listed until the other gateways are notified."""
    await world.send("r1")

    world.commits.commit_all(far=b"gw2")

    assert world.outcomes.pushed == [(ALICE, 1, b"gw2"), (BOB, 1, b"gw2")]
    assert world.outcomes.settled_soon == [(CHAT, 1)]


async def test_send_known_ref_with_the_same_body_is_acked_as_a_repeat(world: World) -> None:
    """The answer is that of the first time."""
    await world.send("r1")
    draft, _ = world.commits.queue.popleft()

    draft.owner.known(draft, format_place(4, 40, "M-first", draft.digest))

    assert world.client.heard == [Acked("r1", 4, "M-first", dup=True)]
    assert world.outcomes.pushed == []


async def test_send_known_ref_with_another_body_is_a_conflict(world: World) -> None:
    """A ref identifies one message."""
    await world.send("r1")
    draft, _ = world.commits.queue.popleft()

    draft.owner.known(draft, format_place(4, 40, "M-first", "0123abcd"))

    (answer,) = world.client.heard
    assert isinstance(answer, Refused)
    assert isinstance(answer.error, Conflict)


async def test_send_of_non_member_is_not_found_and_drops_the_audience(world: World) -> None:
    """The error does not reveal the chat; the next send loads the audience again."""
    await world.send("r1", sender=CAROL)
    draft, _ = world.commits.queue.popleft()

    draft.owner.not_member(draft)

    assert world.client.errors() == ["not_found"]
    assert world.audiences.dropped == [CHAT]


async def test_send_that_failed_is_refused_with_the_reason(world: World) -> None:
    """With `unavailable` the outcome is unknown; a retry with the same ref reports it."""
    await world.send("r1")
    draft, _ = world.commits.queue.popleft()
    error = Unavailable("redis: gone")

    draft.owner.failed(draft, error)

    assert world.client.heard == [Refused("r1", error)]


@pytest.mark.parametrize(
    ("body", "error"), [("", BadRequest), ("a\x00b", BadRequest), ("x" * 4001, TooLarge)]
)
async def test_send_with_a_bad_body_takes_nothing(
    world: World, body: str, error: type[Exception]
) -> None:
    """The error is raised before anything is queued, and no callback is called."""
    with pytest.raises(error):
        await world.send("r1", body=body)

    assert world.commits.submitted == []
    assert world.client.heard == []


async def test_send_while_the_commit_is_full_is_overloaded_at_once(world: World) -> None:
    """Nothing was accepted: only the exception reports it."""
    world.commits.full = Overloaded("full")

    with pytest.raises(Overloaded):
        await world.send("r1")

    assert world.client.heard == []


# a chat that has to be loaded


async def test_send_while_the_chat_loads_waits_in_order(cold: World) -> None:
    """Commits keep the order of sends, also for those that arrive as the load ends."""
    await cold.send("r1", "r2")
    await cold.send("r3")
    assert cold.commits.submitted == []

    await cold.audiences.loaded(audience_of(ALICE, BOB))
    await cold.send("r4")

    assert cold.commits.submitted == ["r1", "r2", "r3", "r4"]


async def test_send_loads_its_chat_as_the_sender(cold: World) -> None:
    """The connections of all users share a context: nothing of a sender may stay in it."""
    await cold.send("r1", sender=BOB)

    assert cold.audiences.callers == [BOB]
    assert CALLER.get() == ""
    await cold.audiences.loaded(audience_of(ALICE, BOB))


async def test_send_right_behind_the_loading_does_not_overtake(cold: World) -> None:
    """The audience is known a moment before those who waited for it go on."""
    await cold.send("r1", "r2")
    cold.audiences.known[CHAT] = audience_of(ALICE, BOB)
    await cold.send("r3")

    await cold.audiences.loaded(audience_of(ALICE, BOB))

    assert cold.commits.submitted == ["r1", "r2", "r3"]


async def test_send_to_other_chats_goes_on_while_one_loads(cold: World) -> None:
    """A chat that loads slowly delays no other chat."""
    cold.audiences.known[OTHER] = audience_of(ALICE, BOB, chat=OTHER)
    await cold.send("r1")

    await cold.send("r2", chat=OTHER)

    assert cold.commits.submitted == ["r2"]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotFound("chat c1: does not exist"), "not_found"),
        (Unavailable("warm tier"), "unavailable"),
    ],
)
async def test_send_to_chat_that_cannot_be_loaded_is_refused_once_each(
    cold: World, failure: Unavailable | NotFound, code: str
) -> None:
    """All waiting sends get the reason; a later send tries again."""
    await cold.send("r1", "r2")

    await cold.audiences.loaded(failure)

    assert [each.ref for each in cold.client.heard] == ["r1", "r2"]
    assert cold.client.errors() == [code, code]
    await cold.send("r3")
    await cold.audiences.loaded(audience_of(ALICE, BOB))
    assert cold.commits.submitted == ["r3"]


async def test_send_to_chat_that_takes_too_long_to_load_is_refused_for_now(
    cold: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tier that hangs is named in bounded time (promise P9); a later send tries again."""
    monkeypatch.setattr(messaging, "LOAD_S_MAX", 0.01)
    await cold.send("r1", "r2")

    await eventually(lambda: len(cold.client.heard) == 2)

    assert cold.client.errors() == ["unavailable", "unavailable"]
    await cold.audiences.loaded(audience_of(ALICE, BOB))
    await cold.send("r3")
    assert cold.commits.submitted == ["r3"]


async def test_send_to_chat_whose_loading_crashes_is_answered_all_the_same(cold: World) -> None:
    """A mistake of ours costs those who wait, not all who ever send to the chat again."""
    await cold.send("r1", "r2")

    cold.audiences.loading.pop(CHAT).set_exception(ValueError("a mistake"))
    await settle_down()

    assert cold.client.errors() == ["internal", "internal"]
    await cold.send("r3")
    await cold.audiences.loaded(audience_of(ALICE, BOB))
    assert cold.commits.submitted == ["r3"]


async def test_send_to_chat_whose_loading_is_cancelled_is_refused_for_now(cold: World) -> None:
    """A gateway that stops while a chat loads loses no message: it may be sent to another one."""
    await cold.send("r1", "r2")

    (loading,) = [task for task in asyncio.all_tasks() if task.get_name() == f"load-{CHAT}"]
    loading.cancel()
    await settle_down()

    assert cold.client.errors() == ["unavailable", "unavailable"]


async def test_send_to_unknown_chat_says_the_same_as_to_one_of_others(cold: World) -> None:
    """The existence of a chat is not disclosed."""
    await cold.send("r1")
    await cold.audiences.loaded(NotFound("chat c1: does not exist"))
    cold.audiences.known[CHAT] = audience_of(BOB, CAROL)
    await cold.send("r2")
    draft, _ = cold.commits.queue.popleft()
    draft.owner.not_member(draft)

    first, second = cold.client.heard
    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert first.error.message == second.error.message


async def test_send_beyond_the_waiting_bound_is_overloaded(
    cold: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts that wait for chats are bounded over all chats; what ended makes room."""
    monkeypatch.setattr(messaging, "WAITING_MAX", 3)
    await cold.send("r1", "r2")
    await cold.send("r3", chat=OTHER)

    with pytest.raises(Overloaded):
        await cold.send("r4")
    await cold.audiences.loaded(audience_of(ALICE, BOB))
    await cold.send("r5", chat=OTHER)

    assert cold.commits.submitted == ["r1", "r2"]
    await cold.audiences.loaded(audience_of(ALICE, BOB, chat=OTHER), OTHER)
    assert cold.commits.submitted == ["r1", "r2", "r3", "r5"]


async def test_send_that_waited_while_the_commit_filled_up_is_refused(cold: World) -> None:
    """It was taken, so it is answered."""
    await cold.send("r1", "r2")
    cold.commits.full = Overloaded("full")

    await cold.audiences.loaded(audience_of(ALICE, BOB))

    assert cold.client.errors() == ["overloaded", "overloaded"]


# a chat that turns out to be closed


async def test_send_to_closed_chat_is_loaded_and_sent_again_in_order(world: World) -> None:
    """The client notices nothing but the time it takes."""
    await world.send("r1", "r2")

    world.commits.close_chat(2)
    await settle_down()
    await world.send("r3")
    await world.audiences.loaded(audience_of(ALICE, BOB))

    assert world.commits.submitted[2:] == ["r1", "r2", "r3"]
    world.commits.commit_all()
    assert [each.ref for each in world.client.heard] == ["r1", "r2", "r3"]


async def test_send_between_two_batches_of_a_closed_chat_keeps_its_place(world: World) -> None:
    """A draft that returns late keeps its place before later sends (invariant I7)."""
    await world.send("r1", "r2")

    world.commits.close_chat()
    await settle_down()
    await world.send("r3")
    world.commits.close_chat()
    await world.audiences.loaded(audience_of(ALICE, BOB))

    assert world.commits.submitted[2:] == ["r1", "r2", "r3"]


async def test_send_to_chat_that_stays_closed_gives_up(world: World) -> None:
    """After a few attempts the client gets a temporary error."""
    await world.send("r1")
    for _ in range(LOADS_MAX - 1):
        world.commits.close_chat()
        await settle_down()
        await world.audiences.loaded(audience_of(ALICE, BOB))

    world.commits.close_chat()

    assert world.client.errors() == ["unavailable"]
    assert not world.commits.queue


async def test_send_to_closed_chat_with_all_places_taken_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken, so it is answered."""
    await world.send("r1", "r2")
    monkeypatch.setattr(messaging, "WAITING_MAX", 1)

    world.commits.close_chat(2)

    assert world.client.errors() == ["overloaded"]


# ── expiry ──────────────────────────────────────────────────────────────────────────────────────


async def test_send_that_expires_carries_its_end_rounded_up() -> None:
    """In seconds since 1970: it lives at least as long as was asked, and less than one more."""
    world = World()
    before = time.time()

    await world.send("r1", expires_s=60)

    draft, *_ = world.commits.take()
    message = codec.decode_message(codec.join_message(1, 1, draft.tail))
    assert message.expires_at is not None
    assert before + 60 <= message.expires_at < time.time() + 61


async def test_send_again_of_what_has_no_text_any_more_is_acked() -> None:
    """A reference whose message expired stands for it; there is nothing to compare it with."""
    world = World()
    await world.send("r1")
    draft, *_ = world.commits.take()

    world.messaging.known(draft, format_place(4, 1004, "M4", ""))

    assert world.client.heard == [Acked("r1", Seq(4), "M4", dup=True)]
