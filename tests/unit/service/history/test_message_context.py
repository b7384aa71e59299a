"""Message context: a message by its reference, in any tier, and its neighbors."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatserver.domain.ids import ChatId, Mid, Seq, Ts, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.domain.messages import LogEntry
from chatserver.errors import BadRequest, NotFound
from chatserver.protocol import codec, frames
from chatserver.service.history.history_pages import TierPage
from chatserver.service.history.message_context import MessageContext, Reference
from tests.unit.service.builders import ALICE, BOB, CHAT


def message(seq: int) -> frames.Message:
    """Return a message; its timestamp increases with its seq."""
    return frames.Message(seq, 1000 + 10 * seq, CHAT, f"m{seq}", BOB, f"r{seq}", "text", "hello")


@dataclasses.dataclass
class Tiers:
    """A chat of `top` messages, stored up to `stored`; the log has those after `log_from`.

    Those up to `archived` have left the warm tier.
    """

    top: int
    stored: int
    log_from: int = 0
    archived: int = 0
    redis_calls: int = 0

    def context(self) -> MessageContext:
        """Return the use cases on these tiers."""
        return MessageContext(history=self, members=self, log=self, messages=self, cold=self)

    async def get_page(self, reader: UserId, frame: frames.History) -> TierPage:
        assert (frame.before is None) != (frame.after is None)
        if frame.before is not None:
            last = min(frame.before - 1, self.top)
            seqs = range(max(1, last - frame.limit + 1), last + 1)
            has_more = bool(seqs) and seqs[0] > 1
        else:
            seqs = range(
                (frame.after or 0) + 1, min((frame.after or 0) + frame.limit, self.top) + 1
            )
            has_more = bool(seqs) and seqs[-1] < self.top
        return TierPage([codec.encode(message(seq)) for seq in seqs], "hot", has_more)

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        if user != ALICE:
            raise NotFound("chat")
        return Reader(Seq(1), Seq(self.top), Seq(self.stored))

    async def list_after(self, chat: ChatId, after: Seq, limit: int) -> list[LogEntry]:
        self.redis_calls += 1
        seqs = range(max(after, self.log_from) + 1, self.top + 1)[:limit]
        return [LogEntry(Seq(seq), Ts(message(seq).ts), b"") for seq in seqs]

    async def get_many(
        self, places: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], frames.Message]:
        stored = [message(seq) for seq in range(self.archived + 1, self.stored + 1)]
        return {(m.chat, m.ts): m for m in stored if (m.chat, m.ts) in places}

    async def find_at(self, chat: str, ts: int) -> frames.Message | None:
        held = {message(seq).ts: message(seq) for seq in range(1, self.archived + 1)}
        return held.get(ts)


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 200), st.data())
async def test_message_in_any_tier_is_found_by_its_ts(
    top: int, stored: int, log_from: int, data: st.DataObject
) -> None:
    """The message may be stored or not, archived or not, and in the log or not."""
    stored, log_from = min(stored, top), min(log_from, stored, top)
    archived, seq = data.draw(st.integers(0, stored)), data.draw(st.integers(1, top))
    tiers = Tiers(top, stored, log_from, archived)
    wanted = message(seq)

    found = await tiers.context().get_message(ALICE, Reference(CHAT, ts=Ts(wanted.ts)))

    assert codec.decode_message(found) == wanted
    assert tiers.redis_calls <= 10
    with pytest.raises(NotFound):
        await tiers.context().get_message(ALICE, Reference(CHAT, ts=Ts(wanted.ts + 1)))


@given(st.integers(1, 30), st.integers(1, 12), st.data())
async def test_context_is_contiguous_and_as_long_as_requested(
    top: int, limit: int, data: st.DataObject
) -> None:
    """The message is included, and `has_older` and `has_newer` are correct."""
    seq = data.draw(st.integers(1, top))

    found = await Tiers(top, 0).context().get_context(ALICE, Reference(CHAT, Seq(seq)), limit)

    seqs = [codec.decode_message(each).seq for each in found.messages]
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert seq in seqs and len(seqs) <= limit
    assert (found.has_older, found.has_newer) == (seqs[0] > 1, seqs[-1] < top)
    assert len(seqs) == limit or not found.has_newer


@pytest.mark.parametrize(
    "reference",
    [
        Reference(CHAT, Seq(2), mid=Mid("m1")),
        Reference(CHAT, Seq(2), Ts(1010)),
        Reference(CHAT, Seq(9)),
        Reference(CHAT, ts=Ts(5)),
    ],
)
async def test_reference_with_conflicting_fields_is_not_found(reference: Reference) -> None:
    """All fields of a reference must match the same message."""
    with pytest.raises(NotFound):
        await Tiers(3, 2).context().get_message(ALICE, reference)
    with pytest.raises(NotFound):
        await Tiers(3, 2).context().get_context(ALICE, reference, 10)


async def test_reference_by_ts_of_a_non_member_is_not_found() -> None:
    """Membership is checked before any tier is read."""
    tiers = Tiers(3, 2)

    with pytest.raises(NotFound, match=r"^chat$"):
        await tiers.context().get_message(BOB, Reference(CHAT, ts=Ts(message(1).ts)))

    assert tiers.redis_calls == 0


async def test_reference_without_seq_and_ts_is_refused() -> None:
    """No tier is searched by `mid`."""
    with pytest.raises(BadRequest, match="seq, ts"):
        await Tiers(3, 2).context().get_message(ALICE, Reference(CHAT, mid=Mid("m1")))
