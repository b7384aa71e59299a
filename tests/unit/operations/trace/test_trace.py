"""Where a message is: the search has a bound, and a tier that fails hides nothing of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, Mid, MidSource, Seq, Ts
from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.operations.trace.model import Found
from chatserver.operations.trace.service import MessageTrace


class Older:
    """Two tiers in memory: chats, of which one may have the message; some calls fail."""

    def __init__(self, chats: int, has: int | None = None, *, is_broken: bool = False) -> None:
        self.chats = [ChatId(f"c{number}") for number in range(chats)]
        self.has = has
        self.is_broken = is_broken
        self.asked: list[ChatId] = []
        self.spans: set[int] = set()

    async def iter_chats(self) -> AsyncIterator[list[ChatId]]:
        for at in range(0, len(self.chats), 40):
            yield self.chats[at : at + 40]

    async def find(self, chat: ChatId, mid: Mid, from_ts: int, to_ts: int) -> Found | None:
        self.asked.append(chat)
        self.spans.add(to_ts - from_ts)
        if self.has is not None and chat == self.chats[self.has]:
            return Found(chat, Seq(7), Ts(from_ts), "alice", "text", "warm")
        return None

    async def find_archived(self, *_: Any) -> None:
        if self.is_broken:
            raise Unavailable("S3 is away")

    async def find_state(self, *_: Any) -> None:
        if self.is_broken:
            raise Unavailable("DynamoDB is away")

    async def find_segment(self, *_: Any) -> tuple[int, None]:
        return 0, None

    async def find_hold(self, *_: Any) -> None:
        return None

    async def list_members(self, *_: Any) -> tuple[int, list[Any]]:
        return 0, []


def look_in(older: Older, chats_max: int = 100) -> MessageTrace:
    """Look with no Redis."""
    return MessageTrace(
        hot=None, older=older, clock=SystemClock(), chats_max=chats_max, members_max=50
    )  # type: ignore[arg-type]  # what is asked of it here


async def test_search_ends_at_its_bound_and_says_how_to_go_on() -> None:
    """No more chats are looked through than allowed."""
    older = Older(chats=300)

    with pytest.raises(NotFound, match=r"100 chats \(the maximum of --chats-max\).*--chat"):
        await look_in(older).trace(MidSource().next(), None, None)

    assert len(older.asked) == 100


async def test_search_stops_where_the_message_is() -> None:
    """Found in a chat of the second page; what lies behind is not asked."""
    older = Older(chats=300, has=50)

    trace = await look_in(older).trace(MidSource().next(), None, None)

    assert trace.found.chat == "c50" and len(older.asked) < 60
    assert older.spans == {360_000_000}  # µs: a minute before, five after


async def test_search_goes_on_where_one_tier_fails_and_names_it_once() -> None:
    """The message is found beyond chats of which the archive could not be read."""
    older = Older(chats=80, has=70, is_broken=True)

    trace = await look_in(older).trace(MidSource().next(), None, None)

    assert trace.found.chat == "c70"
    assert trace.problems == ["S3 is away", "DynamoDB is away"]
    assert trace.is_persisted is None  # nobody who answered knows


async def test_named_chat_is_looked_through_up_to_now() -> None:
    """With a named chat, a message committed long after its mid was created is found."""
    older = Older(chats=3, has=1)
    old = "01ARZ3NDEKTSV4RRFFQ69G5FAV"  # of 2016

    trace = await look_in(older).trace(old, ChatId("c1"), None)

    assert trace.found.seq == 7 and older.asked == ["c1"]
    (span,) = older.spans
    assert span > 9 * 365 * 86_400 * 1_000_000


async def test_what_is_no_mid_is_refused() -> None:
    """Named as such, before anybody is asked."""
    with pytest.raises(BadRequest, match="mid"):
        await look_in(Older(chats=1)).trace("M1", None, None)
