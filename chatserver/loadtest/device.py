"""A device of one user: it sends when told, checks what comes, and comes back when cut off.

It keeps the rules of `chat.v1` for clients: at most `sends_in_flight_max` sends unanswered (what is
due beyond that waits here, and its latency runs), what was not answered is sent again under the
same `ref` after a break, and the cursor of the last event says where to go on.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Final

from chatserver.domain.jitter import jittered
from chatserver.loadtest import heard, wire
from chatserver.loadtest.checker import Seen, key_of
from chatserver.loadtest.heard import Heard
from chatserver.loadtest.link import Link, Refused
from chatserver.loadtest.site import Site, now_us

OUTBOX_MAX: Final = 20_000  # drafts that wait; what is due beyond that is counted as unsent
ANSWER_S: Final = 30.0
PAGE: Final = 50
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.1, 5.0

Answer = Callable[[Heard | None], None]  # None: the connection ended first


@dataclasses.dataclass(slots=True)
class Draft:
    """A message that has no answer yet."""

    id: int
    chat: str
    key: int
    due_us: int
    frame: bytes
    tries: int = 0


class Device:
    """One user's one device. `index` is the user's number."""

    def __init__(self, site: Site, index: int) -> None:
        self.site = site
        self.index = index
        self.user = site.user(index)
        self.seen: dict[str, Seen] = {}
        self.outbox: collections.deque[Draft] = collections.deque()
        self.in_flight: dict[int, Draft] = {}
        self._numbers = self._ids = 0
        self._asked: dict[int, Answer] = {}
        self._link: Link | None = None
        self._in_flight_max = 64
        self._cursor: heard.Cursor | None = None
        self._large: set[str] = set()
        self._returning: asyncio.Task[None] | None = None
        self._filling: asyncio.Task[None] | None = None
        self._caught_up: tuple[int, int] | None = None  # inbox seq to reach, and since when
        self._is_pausing = False
        self._wait_s = 0.0  # what the server asked for when it said bye

    @property
    def is_live(self) -> bool:
        """True while frames can be sent."""
        return self._link is not None

    @property
    def is_idle(self) -> bool:
        """Connected, and nothing is unanswered."""
        return self.is_live and not (self.outbox or self.in_flight or self._asked or self._filling)

    def is_behind(self) -> bool:
        """True if a message that others have seen, or that was acked, has not come."""
        books = self.site.books
        return any(
            bool(seen.missing) or (seen.last or 0) < books[chat].top
            for chat, seen in self.seen.items()
            if chat in books
        )

    # coming and going

    def come(self, due_us: int) -> asyncio.Task[None]:
        """Connect, and say hello with the cursor; try until it works or the run is over."""
        if self._returning is None or self._returning.done():
            self._returning = asyncio.create_task(self._come(due_us), name=f"come {self.user}")
        return self._returning

    def cut(self) -> None:
        """Drop the connection as a network does: without a word."""
        link, self._link = self._link, None
        if link is not None:
            link.abort()
            self._lost()

    def close(self) -> None:
        """End the connection, and come back no more."""
        for task in (self._returning, self._filling):
            if task is not None:
                task.cancel()
        self.cut()

    def take_unreadable(self, data: bytes) -> None:
        """Note a frame that is none."""
        self.site.findings.note("mismatched", f"{self.user}: cannot read {data[:100]!r}")

    def link_ended(self, link: Link) -> None:
        """The server, or the network, ended a connection."""
        if link is self._link:
            self._link = None
            self._lost()
            if not self.site.is_over:
                self.site.meters.counts["reconnects"] += 1
                self.come(now_us())

    def _lost(self) -> None:
        for answer in list(self._asked.values()):
            answer(None)
        self._asked.clear()
        self.outbox.extendleft(reversed(self.in_flight.values()))
        self.in_flight.clear()

    async def _come(self, due_us: int) -> None:
        pause_s = _PAUSE_FIRST_S
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
            self._wait_s = 0.0
        while not self.site.is_over and self._link is None:
            try:
                await self._connect(due_us)
            except Refused as exc:
                if not exc.is_temporary:
                    self.site.fatal = f"{self.user} was refused: {exc}"
                    return
                why, wait_s = str(exc), exc.retry_after_s
            except (OSError, TimeoutError, wire.BadHandshake) as exc:
                why, wait_s = str(exc), getattr(exc, "retry_after_s", None)
            else:
                return
            self.site.meters.counts["connects_failed"] += 1
            self.site.last_failure = why
            await asyncio.sleep(jittered(max(pause_s, wait_s or 0), 0.7, 1.3))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    async def _connect(self, due_us: int) -> None:
        fields: dict[str, Any] = {
            "type": "hello",
            "v": 1,
            "token": self.site.mint(self.user),
            "device": f"{self.user}-d",
        }
        if self._cursor is not None:
            fields["cursor"] = self._cursor
            places = ((chat, self.seen[chat].last) for chat in self._large if chat in self.seen)
            fields["large"] = {chat: last for chat, last in places if last is not None}
        link, welcome = await Link.open(self, self.site.address, fields)
        self.site.meters.counts["connects"] += 1
        self.site.meters.time("connect", now_us() - due_us)
        self._in_flight_max = welcome.limits.sends_in_flight_max
        self._large.update(one.chat for one in welcome.large)
        if self._cursor is None:
            self._cursor = heard.Cursor(welcome.epoch, welcome.seq)
            self.site.on_done()
        else:
            self._caught_up = (welcome.seq, due_us)
        self._link = link
        link.begin()  # the frames that came after the welcome
        self._note_progress()
        self.flush()

    def _note_progress(self) -> None:
        """Tell when all that was missed has come."""
        if self._caught_up is not None and self._cursor is not None:
            seq, since_us = self._caught_up
            if self._cursor.seq >= seq:
                self._caught_up = None
                self.site.meters.time("resume", now_us() - since_us)
                self.site.on_done()

    # asking

    def send(self, chat: str, due_us: int) -> None:
        """Send a message that is, or was, due at a time; now, or when the server lets us."""
        if len(self.outbox) >= OUTBOX_MAX:
            self.site.meters.counts["unsent"] += 1
            return
        self._numbers += 1
        self._ids += 1
        number, site = self._numbers, self.site
        fields = {
            "type": "send",
            "id": self._ids,
            "chat": chat,
            "ref": site.ref(self.index, number),
            "body": site.body(self.index, number, due_us),
        }
        frame = wire.client_frame(heard.encode(fields))
        key = key_of(self.index, number)
        self.outbox.append(Draft(self._ids, chat, key, due_us, frame))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the bound of unanswered sends allows."""
        link = self._link
        if link is None or self._is_pausing or not self.outbox:
            return
        frames = []
        while self.outbox and len(self.in_flight) < self._in_flight_max:
            draft = self.outbox.popleft()
            self.in_flight[draft.id] = draft
            self.site.meters.counts["retried" if draft.tries else "sent"] += 1
            draft.tries += 1
            frames.append(draft.frame)
        if frames:
            link.transport.write(b"".join(frames))

    def page(self, chat: str, before: int, due_us: int) -> None:
        """Ask for the page of history before a place, and check it."""
        site = self.site

        def answered(answer: Heard | None) -> None:
            if isinstance(answer, heard.Page):
                site.meters.time("page", now_us() - due_us)
                site.meters.counts["pages"] += 1
                site.meters.counts[f"tier:{answer.tier or 'none'}"] += 1
                self._check_page(chat, before, answer)
            else:
                code = answer.code if isinstance(answer, heard.Refusal) else "disconnected"
                site.meters.counts[f"refused:{code}"] += 1
            site.on_done()

        self._ask({"type": "history", "chat": chat, "before": before, "limit": PAGE}, answered)

    def _check_page(self, chat: str, before: int, page: heard.Page) -> None:
        places = sorted(one.seq for one in page.messages)
        if places != list(range(before - len(places), before)) or not places:
            text = f"{self.user}: page of {chat} before {before} has places {places[:60]}"
            self.site.findings.note("mismatched", text)
        book = self.site.books[chat]
        for one in page.messages:
            read = self.site.read_body(one.sender, one.ref, one.body)
            if read is not None:
                book.put(one.seq, read[0])

    def _ask(self, fields: dict[str, Any], answered: Answer) -> None:
        if self._link is None:
            answered(None)
            return
        self._ids += 1
        self._asked[self._ids] = answered
        self._link.transport.write(wire.client_frame(heard.encode({**fields, "id": self._ids})))

    async def ask(self, **fields: Any) -> Heard:
        """Ask and return the answer, whatever it is.

        Raises:
            ConnectionError: the connection ended first.
            TimeoutError: none came in `ANSWER_S`.
        """
        future: asyncio.Future[Heard | None] = asyncio.get_running_loop().create_future()

        def answered(answer: Heard | None) -> None:
            if not future.done():
                future.set_result(answer)

        self._ask(fields, answered)
        answer = await asyncio.wait_for(future, ANSWER_S)
        if answer is None:
            raise ConnectionResetError(f"{self.user}: the connection ended")
        return answer

    # hearing

    def take(self, frame: Heard) -> None:
        """Take what the server says."""
        kind = type(frame)
        if kind is heard.Event:
            self._take_event(frame)  # type: ignore[arg-type]  # asked above, and on the hot path
        elif kind is heard.Ack:
            self._take_ack(frame)  # type: ignore[arg-type]  # likewise
        elif isinstance(frame, (heard.Ok, heard.Page)):
            self._resolve(frame.id, frame)
        elif isinstance(frame, heard.Refusal):
            if frame.id in self.in_flight:
                self._take_refusal(self.in_flight.pop(frame.id), frame)
            elif frame.id is not None:
                self._resolve(frame.id, frame)
        elif isinstance(frame, (heard.TooLong, heard.Reset)):
            self._cursor = frame.cursor
            self._note_progress()
            if self._filling is None:
                self._filling = asyncio.create_task(self._fill(), name=f"fill {self.user}")
        elif isinstance(frame, heard.Bye):
            self._wait_s = (frame.retry_after_ms or 0) / 1000

    def _resolve(self, id_: int, frame: Heard) -> None:
        answer = self._asked.pop(id_, None)
        if answer is not None:
            answer(frame)

    def _take_event(self, event: heard.Event) -> None:
        cursor = self._cursor
        if event.seq and cursor is not None:
            if event.epoch == cursor.epoch and event.seq <= cursor.seq:
                seen = self.seen.get(event.chat)
                if seen is not None and event.cs in seen.missing:  # it was passed over, see below
                    seen.take(event.cs, self.user, self.site.findings)
                    self._take_message(event.chat, event.message, is_pushed=True)
                    return
                text = f"{self.user}: inbox seq {event.seq} after {cursor.seq}"
                self.site.findings.note("duplicate", text)
                return
            if event.epoch != cursor.epoch or event.seq != cursor.seq + 1:
                text = f"{self.user}: inbox {event.epoch}/{event.seq} after {cursor.seq}"
                self.site.findings.note("jumped", text)
            self._cursor = heard.Cursor(event.epoch, event.seq)
        elif event.cs:
            self._large.add(event.chat)
        if event.cs:
            seen = self.seen.get(event.chat)
            if seen is not None and seen.take(event.cs, self.user, self.site.findings):
                self._take_message(event.chat, event.message, is_pushed=True)
        if self._caught_up is not None:
            self._note_progress()

    def _take_message(self, chat: str, message: heard.Message | None, *, is_pushed: bool) -> None:
        if message is None:
            return
        read = self.site.read_body(message.sender, message.ref, message.body)
        if read is None:
            return
        key, due_us = read
        book = self.site.books.get(chat)
        if book is not None:
            book.put(message.seq, key)
        self.site.meters.counts["delivered"] += 1
        if is_pushed:
            self.site.meters.time("delivered", now_us() - due_us)

    def _take_ack(self, ack: heard.Ack) -> None:
        if ack.id in self._asked:
            self._resolve(ack.id, ack)
            return
        draft = self.in_flight.pop(ack.id, None)
        if draft is None:
            self.site.findings.note("duplicate", f"{self.user}: ack {ack.id} again")
            return
        site = self.site
        if ack.dup and draft.tries == 1:
            site.findings.note("mismatched", f"{self.user}: ack {ack.id} says it was sent before")
        book = site.books.get(draft.chat)
        if book is not None:
            book.put(ack.seq, draft.key, is_ack=True)
        site.meters.counts["acked"] += 1
        site.meters.time("ack", now_us() - draft.due_us)
        self.flush()
        site.on_done()

    def _take_refusal(self, draft: Draft, refusal: heard.Refusal) -> None:
        site = self.site
        if not refusal.temporary or refusal.code == "rate_limited" or site.is_over:
            site.meters.counts[f"refused:{refusal.code}"] += 1
            if refusal.code not in site.refusals:
                site.refusals[refusal.code] = refusal.message
            self.flush()
            site.on_done()
            return
        site.repeated.add(draft.key)
        self.outbox.appendleft(draft)
        if not self._is_pausing:
            self._is_pausing = True
            pause_s = jittered(max(0.05, refusal.retry_after_ms / 1000), 1.0, 1.5)
            asyncio.get_running_loop().call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._is_pausing = False
        self.flush()

    async def _fill(self) -> None:
        """Read from history what the inbox does not have any more."""
        try:
            for chat, seen in list(self.seen.items()):
                while True:
                    after = min(seen.missing, default=(seen.last or 0) + 1) - 1
                    page = await self.ask(type="history", chat=chat, after=after, limit=PAGE)
                    if not isinstance(page, heard.Page):
                        break
                    for one in page.messages:
                        if seen.fill(one.seq):
                            self._take_message(chat, one, is_pushed=False)
                    if not page.more or not page.messages:
                        break
        except (ConnectionError, TimeoutError):
            pass  # whoever comes back is told of the hole again, or `settle` finds him behind
        finally:
            self._filling = None
