"""A long chat across three tiers, and a reader that pages through it while workers move it.

Its oldest part is written to DynamoDB with old timestamps, so that the archive moves it to S3; the
next part has recent timestamps, so that it stays; the newest is committed in Redis. The expected
content of each seq is known in advance.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from chatserver.container.storage import StorageContainer
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.domain.messages import Audience
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.hot.chats.message_changes import HiddenMessages
from chatserver.protocol import frames
from chatserver.service.history.history_pages import HistoryPages, TierPage
from chatserver.service.history.reader_views import ReaderViews
from chatserver.warm.messages.messages import PersistItem
from tests.integration.workers.support import Gateway, make_direct

LONG_AGO_TS = 1_600_000_000_000_000
_PUTS_AT_ONCE = 8
_PUT = 500


def body_of(seq: int) -> str:
    """Return the body of the message at `seq`."""
    return f"message {seq} ⟨é⟩ " + "x" * (seq % 150)


@dataclasses.dataclass
class LongChat:
    """A direct chat with `old` + `recent` messages below Redis; `head` is the total number."""

    container: StorageContainer
    old: int
    recent: int

    async def prepare(self) -> None:
        """Write the lower tiers, then load the chat, which reads its head from them."""
        self.a, self.b = UserId("tier-a"), UserId("tier-b")
        self.chat = direct_chat_id(self.a, self.b)
        now_ts = int(time.time() * 1e6) - 60_000_000
        total = self.old + self.recent

        def message(seq: int) -> frames.Message:
            ts = LONG_AGO_TS + seq * 1000 if seq <= self.old else now_ts + seq * 100
            sender = (self.a, self.b)[seq % 2]
            return frames.Message(
                seq, ts, self.chat, f"M{seq}", sender, f"r{seq}", "text", body_of(seq)
            )

        async def put(start: int, step: int) -> None:
            for first in range(start, total + 1, step):
                seqs = range(first, min(first + _PUT, total + 1))
                items = [PersistItem(message(seq), self.b) for seq in seqs]
                await self.container.messages.put_batch(items, 120)

        step = _PUT * _PUTS_AT_ONCE
        await asyncio.gather(*(put(1 + n * _PUT, step) for n in range(_PUTS_AT_ONCE)))
        self.audience: Audience = await make_direct(self.container, self.a, self.b)
        self.gateway = Gateway(self.container.hot)
        self.head = total

    async def send_messages(self, count: int) -> None:
        """Commit the next messages; load the chat again if it was evicted from Redis."""
        await self.container.chat_loader.load_chat(self.chat)
        self.audience = await self.container.audiences.get(self.chat)
        bodies = [body_of(seq) for seq in range(self.head + 1, self.head + count + 1)]
        await self.gateway.send(self.audience, *bodies, sender=self.a)
        self.head += count


def history_of(container: StorageContainer) -> HistoryPages:
    """Create a `HistoryPages` like the serving processes."""
    hot = container.hot
    log, audiences = ChatLog(hot), Audiences(hot, container.chat_loader.load_chat)
    return HistoryPages(
        log=log,
        older=container.older_tiers,
        members=MemberCheck(hot, audiences),
        clock=SystemClock(),
        views=ReaderViews(log, HiddenMessages(hot)),
    )


@dataclasses.dataclass
class Walk:
    """The pages of a walk through a chat by tier, and the duration of each."""

    pages: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    messages: int = 0

    def add(self, page: TierPage, took_s: float) -> None:
        self.pages[page.tier] += 1
        self.seconds.setdefault(page.tier, []).append(took_s)
        self.messages += len(page.messages)


async def walk(
    history: HistoryPages,
    chat: LongChat,
    *,
    is_down: bool,
    limit: int = 50,
    after_page: Callable[[], None] = lambda: None,
) -> Walk:
    """Read the whole chat in one direction and check each message of each page.

    Each seq must come once, without a gap and with its original content.
    """
    seen, wanted = Walk(), 1
    frame = frames.History(0, chat.chat, limit=limit, **({} if is_down else {"after": 0}))
    while True:
        started = time.perf_counter()
        page = await history.get_page(chat.a, frame)
        seen.add(page, time.perf_counter() - started)
        rows = [msgspec.json.decode(raw, type=frames.Message) for raw in page.messages]
        seqs = [row.seq for row in rows]
        assert rows, f"an empty page at {frame}"
        if is_down:
            if frame.before is not None:
                assert seqs[-1] == frame.before - 1
            edge = rows[0]
        else:
            assert seqs[0] == wanted
            edge = rows[-1]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), seqs
        assert [row.body for row in rows] == [body_of(seq) for seq in seqs]
        after_page()
        wanted = seqs[-1] + 1
        if not page.has_more:
            assert edge.seq == 1 if is_down else edge.seq >= chat.old + chat.recent
            return seen
        place = {"before": edge.seq} if is_down else {"after": edge.seq}
        frame = frames.History(0, chat.chat, limit=limit, ts=edge.ts, **place)
