"""Changing messages: what is asked of the commit, what is read for it, and what it answers with."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from chatserver.domain.amendments import Amended, Amendment, Hide, Outcome
from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.inboxes import Place
from chatserver.domain.messages import ChatHead, format_place
from chatserver.errors import (
    BadRequest,
    ChatError,
    Conflict,
    Forbidden,
    NotFound,
    TooLarge,
    Unavailable,
)
from chatserver.hot.bus.rpc import HistoryRun
from chatserver.protocol import codec, frames
from chatserver.service.messaging.amendments import TRIES_MAX, AnyChange, MessageAmendments
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, KnownAudiences, audience_of

DONE = Amended(Outcome.COMMITTED, 8, 1008)
EDIT = frames.Edit(1, CHAT, 5, "r1", "two")


class Audiences(KnownAudiences):
    """Counts what was dropped."""

    dropped = 0

    def drop(self, chat: ChatId) -> None:
        self.dropped += 1


@dataclasses.dataclass
class World:
    """Everything that the use case needs; `outcomes` are the results of the commits, in order."""

    outcomes: list[Amended] = dataclasses.field(default_factory=lambda: [DONE])
    stored: list[frames.Message] = dataclasses.field(default_factory=list)
    outcome: Hide = Hide.NEW
    asked: list[tuple[Amendment, bytes, int]] = dataclasses.field(default_factory=list)
    reads: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    fanned_out: list[tuple[ChatId, Seq, UserId]] = dataclasses.field(default_factory=list)
    hidden: list[tuple[UserId, ChatId, Seq]] = dataclasses.field(default_factory=list)
    events: list[tuple[UserId, bytes]] = dataclasses.field(default_factory=list)
    notified: list[UserId] = dataclasses.field(default_factory=list)
    audiences: Audiences = dataclasses.field(
        default_factory=lambda: Audiences(audience_of(ALICE, BOB))
    )

    async def amend(self, amendment: Amendment, base: bytes = b"", asked: int = 0) -> Amended:
        self.asked.append((amendment, base, asked))
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    async def hide(self, user: UserId, chat: ChatId, seq: Seq) -> Hide:
        self.hidden.append((user, chat, seq))
        return self.outcome

    async def get_head(self, chat: ChatId) -> ChatHead:
        return ChatHead(Seq(7), is_open=True)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        self.reads.append((chat, before, after, limit))
        return HistoryRun(self.stored)

    def fan_out(self, chat: ChatId, seq: Seq, sender: UserId) -> None:
        self.fanned_out.append((chat, seq, sender))

    async def append_event(self, users: Sequence[UserId], chat: ChatId, body: bytes) -> list[Place]:
        self.events += [(user, body) for user in users]
        return [Place(user, 1, Seq(3), (GatewayId("gw1"),)) for user in users]

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        self.notified.append(user)

    def change(self, frame: AnyChange, user: UserId = ALICE) -> frames.Ack:
        """Ask the use case."""
        fake: Any = self
        amending = MessageAmendments(
            commits=fake,
            hidden=fake,
            audiences=self.audiences,
            log=fake,
            warm=fake,
            messaging=fake,
            inboxes=fake,
            devices=fake,
        )
        return asyncio.run(amending.change(user, frame))


def test_change_is_committed_fanned_out_and_acked() -> None:
    """The ack has the entry's place and the server's id of it."""
    world = World()

    ack = world.change(EDIT)

    ((made, base, asked),) = world.asked
    assert (made.kind, made.target, made.body, base, asked) == ("edit", 5, "two", b"", 0)
    entry = codec.decode_message(codec.join_message(8, 1008, made.tail))
    assert (entry.kind, entry.target, entry.body, entry.sender) == ("edit", 5, "two", ALICE)
    assert world.fanned_out == [(CHAT, 8, ALICE)]
    assert ack == frames.Ack(1, "r1", made.mid, 8, 1008, False, "hot")


@pytest.mark.parametrize(
    ("frame", "kind", "body"),
    [
        (EDIT, "edit", "two"),
        (frames.React(1, CHAT, 5, "r1", "👍"), "reaction", "👍"),
        (frames.React(1, CHAT, 5, "r1", ""), "reaction", ""),
        (frames.Delete(1, CHAT, 5, "r1"), "delete", ""),
    ],
)
def test_change_of_each_sort_is_an_entry_of_its_kind(
    frame: AnyChange, kind: str, body: str
) -> None:
    """A request becomes an entry of its kind."""
    world = World()

    world.change(frame)

    assert (world.asked[0][0].kind, world.asked[0][0].body) == (kind, body)


def test_change_of_what_is_not_hot_is_asked_again_with_the_stored_message() -> None:
    """With the head from before the read, so that the commit can check it."""
    stored = frames.Message(5, 1005, CHAT, "M", ALICE, "r", "text", "one")
    world = World([Amended(Outcome.ELSEWHERE, 7), DONE], [stored])

    world.change(EDIT)

    assert world.reads == [(CHAT, 6, None, 1)]
    assert world.asked[1][1:] == (codec.encode(stored), 7)
    assert world.asked[0][0] is world.asked[1][0]


@pytest.mark.parametrize("seqs", [[], [4]])
def test_change_of_what_no_tier_has_finds_nothing(seqs: list[int]) -> None:
    """It is not for the commit to wait for."""
    stored = [frames.Message(seq, seq, CHAT, "M", ALICE, "r", "text", "x") for seq in seqs]
    world = World([Amended(Outcome.ELSEWHERE, 7)], stored)

    with pytest.raises(NotFound, match="seq: the chat has no such message"):
        world.change(EDIT)


def test_change_that_is_overtaken_again_and_again_gives_up() -> None:
    """Bounded, and worth another try later."""
    stored = frames.Message(5, 1005, CHAT, "M", ALICE, "r", "text", "one")
    world = World([Amended(Outcome.ELSEWHERE, 7)], [stored])

    with pytest.raises(Unavailable):
        world.change(EDIT)
    assert len(world.asked) == TRIES_MAX
    assert not world.fanned_out


def test_change_in_a_closed_chat_opens_it_and_tries_again() -> None:
    """As a send does."""
    world = World([Amended(Outcome.CLOSED), DONE])

    assert world.change(EDIT).seq == 8
    assert world.audiences.dropped == 1


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (Outcome.NOT_MEMBER, NotFound, "no such chat, or you are not a member"),
        (Outcome.FORBIDDEN, Forbidden, "you can only edit your own messages"),
        (Outcome.DELETED, Conflict, "the message is deleted"),
        (Outcome.REACTIONS_FULL, TooLarge, "at most 1,000 reactions"),
        (Outcome.NO_MESSAGE, NotFound, "no such message"),
    ],
)
def test_change_that_is_refused_says_why(
    outcome: Outcome, error: type[ChatError], words: str
) -> None:
    """In words for people, with the code for programs."""
    world = World([Amended(outcome)])

    with pytest.raises(error, match=words):
        world.change(EDIT)
    assert not world.fanned_out


def test_change_again_hears_the_first_place() -> None:
    """Nothing is fanned out twice."""
    world = World()
    digest = world.change(EDIT) and world.asked[0][0].digest
    place = format_place(3, 1003, "M3", digest)
    world = World([Amended(Outcome.KNOWN, place=place)])

    assert world.change(EDIT) == frames.Ack(1, "r1", "M3", 3, 1003, True, "hot")
    assert not world.fanned_out


@pytest.mark.parametrize(
    "other",
    [
        frames.Edit(1, CHAT, 5, "r1", "three"),
        frames.Edit(1, CHAT, 4, "r1", "two"),
        frames.React(1, CHAT, 5, "r1", "👍"),
    ],
)
def test_change_under_a_ref_of_another_change_is_a_conflict(other: AnyChange) -> None:
    """Another text, another target, another sort of change."""
    world = World()
    world.change(EDIT)
    place = format_place(3, 1003, "M3", world.asked[0][0].digest)
    world = World([Amended(Outcome.KNOWN, place=place)])

    with pytest.raises(Conflict, match="ref: already used"):
        world.change(other)


def test_change_known_without_a_digest_is_taken_for_the_same() -> None:
    """A text that is gone cannot be compared: the retry of its sender is believed."""
    world = World([Amended(Outcome.KNOWN, place=format_place(3, 1003, "M3", ""))])

    assert world.change(EDIT).dup


@pytest.mark.parametrize(
    "frame", [frames.Edit(1, CHAT, 5, "r1", ""), frames.React(1, CHAT, 5, "r1", "a b")]
)
def test_change_with_a_text_that_is_not_allowed_reaches_nobody(frame: AnyChange) -> None:
    """It is refused before anything is asked."""
    world = World()

    with pytest.raises(BadRequest):
        world.change(frame)
    assert not world.asked


# for oneself


@pytest.mark.parametrize(
    ("outcome", "durability"), [(Hide.NEW, "hot"), (Hide.KNOWN, "hot"), (Hide.STORED, "stored")]
)
def test_delete_for_me_tells_the_user_s_own_devices_once(
    outcome: Hide, durability: Literal["hot", "stored"]
) -> None:
    """The chat gets no entry, and no other user is notified."""
    is_new, world = outcome is Hide.NEW, World(outcome=outcome)

    ack = world.change(frames.Delete(1, CHAT, 5, "r1", "me"))

    assert world.hidden == [(ALICE, CHAT, 5)]
    assert ack == frames.Ack(1, "r1", "", 5, 0, not is_new, durability)
    assert world.notified == ([ALICE] if is_new else [])
    assert [user for user, _ in world.events] == ([ALICE] if is_new else [])
    assert not world.asked and not world.fanned_out


@pytest.mark.parametrize(("user", "seq"), [(CAROL, 5), (ALICE, 8)])
def test_delete_for_me_of_what_is_not_there_is_refused(user: UserId, seq: int) -> None:
    """By a stranger, or beyond the head."""
    world = World()

    with pytest.raises(NotFound):
        world.change(frames.Delete(1, CHAT, seq, "r1", "me"), user)
    assert not world.hidden
