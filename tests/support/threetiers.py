"""One long chat over three tiers, and a reader who walks it while workers move it under him.

Its oldest part is put into DynamoDB with a time long past, so that the archive takes it to S3; the
next one with a time of just now, so that it stays; the newest is committed in Redis. What each seq
must say for ever is known beforehand.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId, direct_chat_id
from chatserver.domain.messages import Audience
from chatserver.hot.amending import Hidden
from chatserver.hot.audience import Audiences
from chatserver.hot.chatlog import ChatLog
from chatserver.hot.membership import MemberCheck
from chatserver.protocol import frames
from chatserver.service.history import History, Page
from chatserver.service.views import Views
from chatserver.warm.messages import PersistItem
from tests.integration.worker_support import Gateway, make_direct
from workers.parts import WorkerParts

LONG_AGO_TS = 1_600_000_000_000_000
_PUTS_AT_ONCE = 8
_PUT = 500


def body_of(seq: int) -> str:
    """What the message at `seq` says."""
    return f"message {seq} ⟨é⟩ " + "x" * (seq % 150)


@dataclasses.dataclass
class LongChat:
    """A direct chat of `old` + `recent` messages below Redis; `head` counts all."""

    parts: WorkerParts
    old: int
    recent: int

    async def prepare(self) -> None:
        """Write what is below Redis, then open the chat, which takes its head from there."""
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
                await self.parts.messages.put_batch(items, 120)

        step = _PUT * _PUTS_AT_ONCE
        await asyncio.gather(*(put(1 + n * _PUT, step) for n in range(_PUTS_AT_ONCE)))
        self.audience: Audience = await make_direct(self.parts, self.a, self.b)
        self.gateway = Gateway(self.parts.hot)
        self.head = total

    async def talk(self, count: int) -> None:
        """Commit the next messages; the chat is loaded again if it has left Redis."""
        await self.parts.opener.load_chat(self.chat)
        self.audience = await self.parts.audiences.get(self.chat)
        bodies = [body_of(seq) for seq in range(self.head + 1, self.head + count + 1)]
        await self.gateway.send(self.audience, *bodies, sender=self.a)
        self.head += count


def history_of(parts: WorkerParts) -> History:
    """History as a process that serves it has it."""
    hot = parts.hot
    log, audiences = ChatLog(hot), Audiences(hot, parts.opener.load_chat)
    return History(
        log, parts.older, MemberCheck(hot, audiences), SystemClock(), Views(log, Hidden(hot))
    )


@dataclasses.dataclass
class Walk:
    """What a reader saw on a way through a chat: pages by tier, and how long each took."""

    pages: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    messages: int = 0

    def add(self, page: Page, took_s: float) -> None:
        self.pages[page.tier] += 1
        self.seconds.setdefault(page.tier, []).append(took_s)
        self.messages += len(page.messages)


async def walk(
    history: History,
    chat: LongChat,
    *,
    is_down: bool,
    limit: int = 50,
    after_page: Callable[[], None] = lambda: None,
) -> Walk:
    """Read the whole chat in a direction, and judge each message of each page.

    Each seq comes once, without a hole, and says what it said when it was sent.
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
