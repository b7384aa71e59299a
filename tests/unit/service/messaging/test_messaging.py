"""Sending: order, and exactly one outcome, for open, unloaded and failing chats."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.ids import ChatId, Seq
from chatserver.domain.messages import (
    CommitRefused,
    DuplicateSend,
    SenderNotMember,
    format_ref_record,
)
from chatserver.errors import (
    BadRequest,
    Conflict,
    NotFound,
    Overloaded,
    TooLarge,
    Unavailable,
)
from chatserver.protocol import codec, frames
from chatserver.service.messaging import message_sender as messaging
from chatserver.service.messaging.message_sender import LOADS_MAX, OutgoingMessage
from tests.support.servers.processes import eventually
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, audience_of
from tests.unit.service.messaging.messaging_world import (
    Acked,
    Refused,
    World,
    run_pending_tasks,
)

OTHER = ChatId("c2")


@pytest.fixture
async def world() -> World:
    """The chat of alice and bob is open and known."""
    return World()


@pytest.fixture
async def unloaded() -> World:
    """The chat is not loaded."""
    return World(is_open=False)


def draft_of(ref: str, body: str = "hi") -> OutgoingMessage:
    return OutgoingMessage(ALICE, frames.Send(1, CHAT, ref, body))


# a chat that is open


async def test_send_submits_the_encoded_message(world: World) -> None:
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
    """Each recipient, including the sender, gets the event at its inbox position."""
    await world.send("r1")
    (draft, _) = world.commits.queue[0]

    world.commits.commit_all()

    assert world.client.outcomes_received == [Acked("r1", 1, draft.mid, dup=False)]
    assert world.outcomes.pushed == [(ALICE, 1, 0), (BOB, 1, 0)]
    event = msgspec.json.decode(
        codec.join_event("E1", 1, world.outcomes.bodies[0]), type=frames.Event
    )
    assert (event.chat, event.cs, event.kind) == (CHAT, 1, "message")
    assert isinstance(event.message, frames.Message)
    assert event.message.body == "text r1"
    assert world.outcomes.finished_soon == []


async def test_awaited_send_returns_the_ack(world: World) -> None:
    """The ack has the position of the message; devices get the event as usual."""
    sending = asyncio.create_task(world.messaging.send(draft_of("r1")))
    await run_pending_tasks()

    (draft, _) = world.commits.queue[0]
    world.commits.commit_all()

    ack = await sending
    assert (ack.ref, ack.seq, ack.mid, ack.dup) == ("r1", 1, draft.mid, False)
    assert len(world.outcomes.pushed) == 2


async def test_awaited_send_that_is_refused_raises_the_error(world: World) -> None:
    """The caller gets refusals before and after acceptance as exceptions."""
    sending = asyncio.create_task(world.messaging.send(draft_of("r1")))
    await run_pending_tasks()
    draft, _ = world.commits.queue.popleft()
    world.commits.report(draft, CommitRefused(Unavailable("redis")))

    with pytest.raises(Unavailable, match="redis"):
        await sending
    with pytest.raises(BadRequest):
        await world.messaging.send(draft_of("r2", ""))


async def test_canceled_send_ignores_its_late_outcome(world: World) -> None:
    """The message may have been sent; its ack is ignored."""
    sending = asyncio.create_task(world.messaging.send(draft_of("r1")))
    await run_pending_tasks()
    sending.cancel()
    await run_pending_tasks()

    world.commits.commit_all()

    assert len(world.outcomes.pushed) == 2


async def test_send_to_a_remote_user_is_finished_after_the_notification(world: World) -> None:
    """The chat stays listed for repair until the other gateways are notified."""
    await world.send("r1")

    world.commits.commit_all(far=b"gw2")

    assert world.outcomes.pushed == [(ALICE, 1, b"gw2"), (BOB, 1, b"gw2")]
    assert world.outcomes.finished_soon == [(CHAT, 1)]


async def test_send_with_a_known_ref_and_the_same_body_is_acked_as_duplicate(world: World) -> None:
    """The ack has the position of the first send."""
    await world.send("r1")
    draft, _ = world.commits.queue.popleft()

    record = format_ref_record(4, 40, "M-first", draft.digest)
    world.commits.report(draft, DuplicateSend(record))

    assert world.client.outcomes_received == [Acked("r1", 4, "M-first", dup=True)]
    assert world.outcomes.pushed == []


async def test_send_with_a_known_ref_and_another_body_is_a_conflict(world: World) -> None:
    """A ref identifies one message."""
    await world.send("r1")
    draft, _ = world.commits.queue.popleft()

    record = format_ref_record(4, 40, "M-first", "0123abcd")
    world.commits.report(draft, DuplicateSend(record))

    (outcome,) = world.client.outcomes_received
    assert isinstance(outcome, Refused)
    assert isinstance(outcome.error, Conflict)


async def test_send_of_non_member_is_not_found_and_drops_the_audience(world: World) -> None:
    """The error does not reveal the chat; the next send loads the audience again."""
    await world.send("r1", sender=CAROL)
    draft, _ = world.commits.queue.popleft()

    world.commits.report(draft, SenderNotMember())

    assert world.client.errors() == ["not_found"]
    assert world.audiences.dropped == [CHAT]


async def test_send_that_failed_is_refused_with_the_reason(world: World) -> None:
    """With `unavailable` the outcome is unknown; a retry with the same ref reports it."""
    await world.send("r1")
    draft, _ = world.commits.queue.popleft()
    error = Unavailable("redis: down")

    world.commits.report(draft, CommitRefused(error))

    assert world.client.outcomes_received == [Refused("r1", error)]


@pytest.mark.parametrize(
    ("body", "error"), [("", BadRequest), ("a\x00b", BadRequest), ("x" * 4001, TooLarge)]
)
async def test_send_with_an_invalid_body_is_not_queued(
    world: World, body: str, error: type[Exception]
) -> None:
    """The error is raised before anything is queued, and no callback is called."""
    with pytest.raises(error):
        await world.send("r1", body=body)

    assert world.commits.submitted == []
    assert world.client.outcomes_received == []


async def test_send_with_a_full_commit_queue_is_overloaded_at_once(world: World) -> None:
    """Nothing was accepted: only the exception reports it."""
    world.commits.full = Overloaded("full")

    with pytest.raises(Overloaded):
        await world.send("r1")

    assert world.client.outcomes_received == []


# a chat that has to be loaded


async def test_send_while_the_chat_loads_waits_in_order(unloaded: World) -> None:
    """Commits keep the order of sends, also for those that arrive as the load ends."""
    await unloaded.send("r1", "r2")
    await unloaded.send("r3")
    assert unloaded.commits.submitted == []

    await unloaded.audiences.loaded(audience_of(ALICE, BOB))
    await unloaded.send("r4")

    assert unloaded.commits.submitted == ["r1", "r2", "r3", "r4"]


async def test_send_loads_its_chat_as_the_sender(unloaded: World) -> None:
    """Connections share a context, so the caller is not set after the call."""
    caller = unloaded.client.caller = RequestCaller(BOB, ("4-0a0102",))

    await unloaded.send("r1", sender=BOB)

    assert unloaded.audiences.callers == [caller]
    assert CALLER.get().user == ""
    await unloaded.audiences.loaded(audience_of(ALICE, BOB))


async def test_send_at_the_end_of_a_load_does_not_overtake_waiting_sends(unloaded: World) -> None:
    """The audience is known before the waiting sends continue."""
    await unloaded.send("r1", "r2")
    unloaded.audiences.known[CHAT] = audience_of(ALICE, BOB)
    await unloaded.send("r3")

    await unloaded.audiences.loaded(audience_of(ALICE, BOB))

    assert unloaded.commits.submitted == ["r1", "r2", "r3"]


async def test_send_to_other_chats_during_a_load_is_submitted(unloaded: World) -> None:
    """A chat that loads slowly delays no other chat."""
    unloaded.audiences.known[OTHER] = audience_of(ALICE, BOB, chat=OTHER)
    await unloaded.send("r1")

    await unloaded.send("r2", chat=OTHER)

    assert unloaded.commits.submitted == ["r2"]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotFound("chat c1: does not exist"), "not_found"),
        (Unavailable("warm tier"), "unavailable"),
    ],
)
async def test_send_to_chat_that_cannot_be_loaded_is_refused_once(
    unloaded: World, failure: Unavailable | NotFound, code: str
) -> None:
    """All waiting sends get the error; a later send starts another load."""
    await unloaded.send("r1", "r2")

    await unloaded.audiences.loaded(failure)

    assert [each.ref for each in unloaded.client.outcomes_received] == ["r1", "r2"]
    assert unloaded.client.errors() == [code, code]
    await unloaded.send("r3")
    await unloaded.audiences.loaded(audience_of(ALICE, BOB))
    assert unloaded.commits.submitted == ["r3"]


async def test_send_to_chat_with_a_slow_load_is_unavailable(
    unloaded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded (guarantee P9), and a later send starts another load."""
    monkeypatch.setattr(messaging, "LOAD_S_MAX", 0.01)
    await unloaded.send("r1", "r2")

    await eventually(lambda: len(unloaded.client.outcomes_received) == 2)

    assert unloaded.client.errors() == ["unavailable", "unavailable"]
    await unloaded.audiences.loaded(audience_of(ALICE, BOB))
    await unloaded.send("r3")
    assert unloaded.commits.submitted == ["r3"]


async def test_send_to_chat_whose_load_crashes_gets_an_internal_error(unloaded: World) -> None:
    """A bug affects the waiting sends only; later sends to the chat work."""
    await unloaded.send("r1", "r2")

    unloaded.audiences.loading.pop(CHAT).set_exception(ValueError("a bug"))
    await run_pending_tasks()

    assert unloaded.client.errors() == ["internal", "internal"]
    await unloaded.send("r3")
    await unloaded.audiences.loaded(audience_of(ALICE, BOB))
    assert unloaded.commits.submitted == ["r3"]


async def test_send_to_chat_whose_load_is_canceled_is_unavailable(unloaded: World) -> None:
    """After a gateway stops during a load, the client can retry at another gateway."""
    await unloaded.send("r1", "r2")

    (loading,) = [task for task in asyncio.all_tasks() if task.get_name() == f"load-{CHAT}"]
    loading.cancel()
    await run_pending_tasks()

    assert unloaded.client.errors() == ["unavailable", "unavailable"]


async def test_send_to_unknown_and_foreign_chat_get_the_same_error(unloaded: World) -> None:
    """The existence of a chat is not disclosed."""
    await unloaded.send("r1")
    await unloaded.audiences.loaded(NotFound("chat c1: does not exist"))
    unloaded.audiences.known[CHAT] = audience_of(BOB, CAROL)
    await unloaded.send("r2")
    draft, _ = unloaded.commits.queue.popleft()
    unloaded.commits.report(draft, SenderNotMember())

    first, second = unloaded.client.outcomes_received
    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert first.error.message == second.error.message


async def test_send_above_the_limit_of_waiting_drafts_is_overloaded(
    unloaded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit counts drafts that wait for any chat; a completed load makes room."""
    monkeypatch.setattr(messaging, "WAITING_MAX", 3)
    await unloaded.send("r1", "r2")
    await unloaded.send("r3", chat=OTHER)

    with pytest.raises(Overloaded):
        await unloaded.send("r4")
    await unloaded.audiences.loaded(audience_of(ALICE, BOB))
    await unloaded.send("r5", chat=OTHER)

    assert unloaded.commits.submitted == ["r1", "r2"]
    await unloaded.audiences.loaded(audience_of(ALICE, BOB, chat=OTHER), OTHER)
    assert unloaded.commits.submitted == ["r1", "r2", "r3", "r5"]


async def test_waiting_send_with_a_full_commit_queue_is_refused(unloaded: World) -> None:
    """Every accepted send gets an outcome."""
    await unloaded.send("r1", "r2")
    unloaded.commits.full = Overloaded("full")

    await unloaded.audiences.loaded(audience_of(ALICE, BOB))

    assert unloaded.client.errors() == ["overloaded", "overloaded"]


# a chat that was closed after its audience was loaded


async def test_send_to_closed_chat_is_loaded_and_sent_again_in_order(world: World) -> None:
    """The client gets one ack per send, only later."""
    await world.send("r1", "r2")

    world.commits.close_chat(2)
    await run_pending_tasks()
    await world.send("r3")
    await world.audiences.loaded(audience_of(ALICE, BOB))

    assert world.commits.submitted[2:] == ["r1", "r2", "r3"]
    world.commits.commit_all()
    assert [each.ref for each in world.client.outcomes_received] == ["r1", "r2", "r3"]


async def test_send_between_two_batches_of_a_closed_chat_keeps_the_order(world: World) -> None:
    """A draft that returns late is committed before later sends."""
    await world.send("r1", "r2")

    world.commits.close_chat()
    await run_pending_tasks()
    await world.send("r3")
    world.commits.close_chat()
    await world.audiences.loaded(audience_of(ALICE, BOB))

    assert world.commits.submitted[2:] == ["r1", "r2", "r3"]


async def test_send_to_chat_that_stays_closed_is_unavailable(world: World) -> None:
    """The number of loads is limited."""
    await world.send("r1")
    for _ in range(LOADS_MAX - 1):
        world.commits.close_chat()
        await run_pending_tasks()
        await world.audiences.loaded(audience_of(ALICE, BOB))

    world.commits.close_chat()

    assert world.client.errors() == ["unavailable"]
    assert not world.commits.queue


async def test_send_to_closed_chat_at_the_waiting_limit_is_overloaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every accepted send gets an outcome."""
    await world.send("r1", "r2")
    monkeypatch.setattr(messaging, "WAITING_MAX", 1)

    world.commits.close_chat(2)

    assert world.client.errors() == ["overloaded"]


# expiry


async def test_send_that_expires_contains_its_expiry_rounded_up() -> None:
    """The message exists at least as long as requested, and less than a second longer."""
    world = World()
    before = time.time()

    await world.send("r1", expires_s=60)

    draft, *_ = world.commits.pop_committed()
    message = codec.decode_message(codec.join_message(1, 1, draft.tail))
    assert message.expires_at is not None
    assert before + 60 <= message.expires_at < time.time() + 61


async def test_repeated_send_of_an_expired_message_is_acked() -> None:
    """The text is removed, so there is nothing to compare the repeat with."""
    world = World()
    await world.send("r1")
    draft, *_ = world.commits.pop_committed()

    world.commits.report(draft, DuplicateSend(format_ref_record(4, 1004, "M4", "")))

    assert world.client.outcomes_received == [Acked("r1", Seq(4), "M4", dup=True)]
