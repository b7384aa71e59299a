"""Message trace: a bounded search, and results even if a tier fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Mid, MidSource, Seq, Ts
from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.operations.trace.model import LocatedMessage
from chatserver.operations.trace.service import MessageTrace


class FakeTiers:
    """The warm and cold tiers in memory: one chat may have the message, and calls may fail."""

    def __init__(self, chats: int, has: int | None = None, *, is_broken: bool = False) -> None:
        self.chats = [ChatId(f"c{number}") for number in range(chats)]
        self.has = has
        self.is_broken = is_broken
        self.searched: list[ChatId] = []
        self.spans: set[int] = set()

    async def iter_chats(self) -> AsyncIterator[list[ChatId]]:
        for at in range(0, len(self.chats), 40):
            yield self.chats[at : at + 40]

    async def find(self, chat: ChatId, mid: Mid, from_ts: int, to_ts: int) -> LocatedMessage | None:
        self.searched.append(chat)
        self.spans.add(to_ts - from_ts)
        if self.has is not None and chat == self.chats[self.has]:
            return LocatedMessage(chat, Seq(7), Ts(from_ts), "alice", "text", "warm")
        return None

    async def find_archived(self, *_: Any) -> None:
        if self.is_broken:
            raise Unavailable("S3 is down")

    async def find_state(self, *_: Any) -> None:
        if self.is_broken:
            raise Unavailable("DynamoDB is down")

    async def find_segment(self, *_: Any) -> tuple[int, None]:
        return 0, None

    async def find_hold(self, *_: Any) -> None:
        return None

    async def list_members(self, *_: Any) -> tuple[int, list[Any]]:
        return 0, []


def trace_in(older: FakeTiers, chats_max: int = 100) -> MessageTrace:
    """Return a message trace without Redis."""
    return MessageTrace(
        hot=None, older=older, clock=SystemClock(), chats_max=chats_max, members_max=50
    )  # type: ignore[arg-type]  # only the methods that the trace calls


async def test_search_above_the_chat_limit_fails_with_a_hint() -> None:
    """No more chats are searched than allowed."""
    older = FakeTiers(chats=300)

    with pytest.raises(NotFound, match=r"100 chats \(the maximum of --chats-max\).*--chat"):
        await trace_in(older).trace(MidSource().next(), None, None)

    assert len(older.searched) == 100


async def test_search_stops_at_the_message() -> None:
    """The message is in the second page of chats; later chats are not searched."""
    older = FakeTiers(chats=300, has=50)

    trace = await trace_in(older).trace(MidSource().next(), None, None)

    assert trace.found.chat == "c50" and len(older.searched) < 60
    assert older.spans == {360_000_000}  # µs: one minute before, five after


async def test_search_continues_after_a_tier_fails_and_reports_it_once() -> None:
    """The message is found although the archive of earlier chats could not be read."""
    older = FakeTiers(chats=80, has=70, is_broken=True)

    trace = await trace_in(older).trace(MidSource().next(), None, None)

    assert trace.found.chat == "c70"
    assert trace.problems == ["S3 is down", "DynamoDB is down"]
    assert trace.is_persisted is None  # unknown, because DynamoDB is down


async def test_search_in_a_given_chat_covers_all_time() -> None:
    """A message committed long after its mid was created is found in a given chat."""
    older = FakeTiers(chats=3, has=1)
    old = "01ARZ3NDEKTSV4RRFFQ69G5FAV"  # created in 2016

    trace = await trace_in(older).trace(old, ChatId("c1"), None)

    assert trace.found.seq == 7 and older.searched == ["c1"]
    (span,) = older.spans
    assert span > 9 * 365 * 86_400 * 1_000_000


async def test_trace_with_an_invalid_mid_is_refused() -> None:
    """An invalid mid is an error before any tier is read."""
    with pytest.raises(BadRequest, match="mid"):
        await trace_in(FakeTiers(chats=1)).trace("M1", None, None)
