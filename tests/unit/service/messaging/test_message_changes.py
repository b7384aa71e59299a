"""Message changes: the change that is committed, the reads for it and the response."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from chatserver.domain.ids import ChatId, GatewayId, Seq, UserId
from chatserver.domain.inboxes import AppendResult
from chatserver.domain.message_change_types import ChangeOutcome, ChangeResult, Hide, MessageChange
from chatserver.domain.messages import ChatHead, format_ref_record
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
from chatserver.service.messaging.message_changes import TRIES_MAX, AnyChange, MessageChangeService
from tests.unit.service.builders import ALICE, BOB, CAROL, CHAT, KnownAudiences, audience_of

DONE = ChangeResult(ChangeOutcome.COMMITTED, 8, 1008)
EDIT = frames.Edit(1, CHAT, 5, "r1", "two")


class Audiences(KnownAudiences):
    """Counts dropped audiences."""

    dropped = 0

    def drop(self, chat: ChatId) -> None:
        self.dropped += 1


@dataclasses.dataclass
class World:
    """The dependencies of the use case; `outcomes` are the results of the commits, in order."""

    outcomes: list[ChangeResult] = dataclasses.field(default_factory=lambda: [DONE])
    stored: list[frames.Message] = dataclasses.field(default_factory=list)
    outcome: Hide = Hide.NEW
    message_changes: list[tuple[MessageChange, bytes, int]] = dataclasses.field(
        default_factory=list
    )
    reads: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    fanned_out: list[tuple[ChatId, Seq]] = dataclasses.field(default_factory=list)
    hidden: list[tuple[UserId, ChatId, Seq]] = dataclasses.field(default_factory=list)
    notified: list[UserId] = dataclasses.field(default_factory=list)
    audiences: Audiences = dataclasses.field(
        default_factory=lambda: Audiences(audience_of(ALICE, BOB))
    )

    async def commit_change(
        self, change: MessageChange, base: bytes = b"", asked: int = 0
    ) -> ChangeResult:
        self.message_changes.append((change, base, asked))
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    async def hide(self, user: UserId, chat: ChatId, seq: Seq) -> tuple[Hide, AppendResult]:
        self.hidden.append((user, chat, seq))
        return self.outcome, AppendResult(user, 1, Seq(3), (GatewayId("gw1"),))

    async def get_head(self, chat: ChatId) -> ChatHead:
        return ChatHead(Seq(7), is_open=True)

    async def read_run(
        self, chat: ChatId, before: int | None, after: int | None, limit: int, ts: int | None
    ) -> HistoryRun:
        self.reads.append((chat, before, after, limit))
        return HistoryRun(self.stored)

    def fan_out(self, chat: ChatId, seq: Seq) -> None:
        self.fanned_out.append((chat, seq))

    def notify_seq(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        self.notified.append(user)

    def change(self, frame: AnyChange, user: UserId = ALICE) -> frames.Ack:
        """Change a message."""
        fake: Any = self
        message_changes = MessageChangeService(
            commits=fake,
            hidden=fake,
            audiences=self.audiences,
            log=fake,
            warm=fake,
            messaging=fake,
            devices=fake,
        )
        return asyncio.run(message_changes.change(user, frame))


def test_change_is_committed_fanned_out_and_acked() -> None:
    """The ack has the position and id of the entry."""
    world = World()

    ack = world.change(EDIT)

    ((change, base, asked),) = world.message_changes
    assert (change.kind, change.target, change.body, base, asked) == (
        "edit",
        5,
        "two",
        b"",
        0,
    )
    entry = codec.decode_message(codec.join_message(8, 1008, change.tail))
    assert (entry.kind, entry.target, entry.body, entry.sender) == ("edit", 5, "two", ALICE)
    assert world.fanned_out == [(CHAT, 8)]
    assert ack == frames.Ack(1, "r1", change.mid, 8, 1008, False, "hot")


@pytest.mark.parametrize(
    ("frame", "kind", "body"),
    [
        (EDIT, "edit", "two"),
        (frames.React(1, CHAT, 5, "r1", "👍"), "reaction", "👍"),
        (frames.React(1, CHAT, 5, "r1", ""), "reaction", ""),
        (frames.Delete(1, CHAT, 5, "r1"), "delete", ""),
    ],
)
def test_change_of_each_type_commits_an_entry_of_its_kind(
    frame: AnyChange, kind: str, body: str
) -> None:
    """Edits, reactions and deletions have their own kinds of entries."""
    world = World()

    world.change(frame)

    assert (world.message_changes[0][0].kind, world.message_changes[0][0].body) == (kind, body)


def test_change_of_a_cold_message_is_repeated_with_the_stored_message() -> None:
    """The commit gets the head from before the read, to detect a concurrent change."""
    stored = frames.Message(5, 1005, CHAT, "M", ALICE, "r", "text", "one")
    world = World([ChangeResult(ChangeOutcome.ELSEWHERE, 7), DONE], [stored])

    world.change(EDIT)

    assert world.reads == [(CHAT, 6, None, 1)]
    assert world.message_changes[1][1:] == (codec.encode(stored), 7)
    assert world.message_changes[0][0] is world.message_changes[1][0]


@pytest.mark.parametrize("seqs", [[], [4]])
def test_change_of_an_unknown_message_is_not_found(seqs: list[int]) -> None:
    """If no tier has the message, the commit is not repeated."""
    stored = [frames.Message(seq, seq, CHAT, "M", ALICE, "r", "text", "x") for seq in seqs]
    world = World([ChangeResult(ChangeOutcome.ELSEWHERE, 7)], stored)

    with pytest.raises(NotFound, match="seq: the chat has no such message"):
        world.change(EDIT)


def test_change_that_always_loses_the_race_is_unavailable() -> None:
    """The attempts are limited, and the error is temporary."""
    stored = frames.Message(5, 1005, CHAT, "M", ALICE, "r", "text", "one")
    world = World([ChangeResult(ChangeOutcome.ELSEWHERE, 7)], [stored])

    with pytest.raises(Unavailable):
        world.change(EDIT)
    assert len(world.message_changes) == TRIES_MAX
    assert not world.fanned_out


def test_change_in_a_closed_chat_is_repeated_after_a_load() -> None:
    """The audience is dropped and loaded again, as for a send."""
    world = World([ChangeResult(ChangeOutcome.CLOSED), DONE])

    assert world.change(EDIT).seq == 8
    assert world.audiences.dropped == 1


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (ChangeOutcome.NOT_MEMBER, NotFound, "no such chat, or you are not a member"),
        (ChangeOutcome.FORBIDDEN, Forbidden, "you can only edit your own messages"),
        (ChangeOutcome.DELETED, Conflict, "the message is deleted"),
        (ChangeOutcome.REACTIONS_FULL, TooLarge, "at most 1,000 reactions"),
        (ChangeOutcome.NO_MESSAGE, NotFound, "no such message"),
    ],
)
def test_refused_change_has_error_and_reason(
    outcome: ChangeOutcome, error: type[ChatError], message: str
) -> None:
    """Each outcome of the commit has its error and message."""
    world = World([ChangeResult(outcome)])

    with pytest.raises(error, match=message):
        world.change(EDIT)
    assert not world.fanned_out


def test_delete_of_a_deleted_message_is_acked() -> None:
    """The message is in the state that was requested."""
    world = World([ChangeResult(ChangeOutcome.DELETED, seq=5)])

    ack = world.change(frames.Delete(9, CHAT, 3, "r-9", "all"))

    assert (ack.id, ack.ref, ack.seq, ack.dup) == (9, "r-9", 5, True)
    assert not world.fanned_out


def test_repeated_change_gets_the_first_ack() -> None:
    """A repeat is not fanned out again."""
    world = World()
    digest = world.change(EDIT) and world.message_changes[0][0].digest
    place = format_ref_record(3, 1003, "M3", digest)
    world = World([ChangeResult(ChangeOutcome.KNOWN, record=place)])

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
def test_change_with_the_ref_of_another_change_is_a_conflict(other: AnyChange) -> None:
    """Text, target and type of the change must be equal."""
    world = World()
    world.change(EDIT)
    place = format_ref_record(3, 1003, "M3", world.message_changes[0][0].digest)
    world = World([ChangeResult(ChangeOutcome.KNOWN, record=place)])

    with pytest.raises(Conflict, match="ref: already used"):
        world.change(other)


def test_repeated_change_without_a_digest_is_acked() -> None:
    """A removed text cannot be compared, so the retry is accepted."""
    world = World([ChangeResult(ChangeOutcome.KNOWN, record=format_ref_record(3, 1003, "M3", ""))])

    assert world.change(EDIT).dup


@pytest.mark.parametrize(
    "frame", [frames.Edit(1, CHAT, 5, "r1", ""), frames.React(1, CHAT, 5, "r1", "a b")]
)
def test_change_with_invalid_text_is_not_committed(frame: AnyChange) -> None:
    """It is refused before the commit."""
    world = World()

    with pytest.raises(BadRequest):
        world.change(frame)
    assert not world.message_changes


# deletion for one user


@pytest.mark.parametrize(
    ("outcome", "durability"), [(Hide.NEW, "hot"), (Hide.KNOWN, "hot"), (Hide.STORED, "stored")]
)
def test_delete_for_me_notifies_own_devices(
    outcome: Hide, durability: Literal["hot", "stored"]
) -> None:
    """The chat gets no entry. A repeat notifies again: the first may have ended before this."""
    is_new, world = outcome is Hide.NEW, World(outcome=outcome)

    ack = world.change(frames.Delete(1, CHAT, 5, "r1", "me"))

    assert world.hidden == [(ALICE, CHAT, 5)]
    assert ack == frames.Ack(1, "r1", "", 5, 0, not is_new, durability)
    assert world.notified == [ALICE]
    assert not world.message_changes and not world.fanned_out


@pytest.mark.parametrize(("user", "seq"), [(CAROL, 5), (ALICE, 8)])
def test_delete_for_me_of_an_unknown_message_is_not_found(user: UserId, seq: int) -> None:
    """The user is not a member, or the seq is above the head."""
    world = World()

    with pytest.raises(NotFound):
        world.change(frames.Delete(1, CHAT, seq, "r1", "me"), user)
    assert not world.hidden
