"""Simulated device of one user: sends on schedule, verifies deliveries, reconnects.

It follows the `chat.v1` rules for clients. Up to `sends_in_flight_max` sends are in flight; further
sends are queued, but their latency is measured from their scheduled time. After a reconnect,
unanswered sends are retried with the same `ref`, and the session resumes at the cursor of the last
event.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from chatserver.domain.jitter import add_jitter
from chatserver.loadtest import frame_reader, wire
from chatserver.loadtest.delivery_checker import ReceivedSeqs, encode_key
from chatserver.loadtest.device_connection import DeviceConnection, HelloRefused
from chatserver.loadtest.frame_reader import ReceivedFrame
from chatserver.loadtest.worker_state import ParsedBody, WorkerState, get_now_us

# maximum queued messages per device; above it, new messages are dropped and count as unsent
OUTBOX_MAX: Final = 20_000
ANSWER_S: Final = 30.0
PAGE: Final = 50
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.1, 5.0

# called with the response, or None if the connection was lost
Answer = Callable[[ReceivedFrame | None], None]
# called with the seq of an acked message, or with 0 and the error code of a refused one
SendResult = Callable[[int, str], None]


class PendingSend(msgspec.Struct):
    """A message that has not been acked or rejected yet."""

    id: int
    chat: str
    key: int
    due_us: int
    frame: bytes
    attempts: int = 0
    on_result: SendResult | None = None


class MessageListener(Protocol):
    """Receives each message of this run once, after it was checked."""

    def handle_message(
        self, chat: str, message: frame_reader.Message, read: ParsedBody
    ) -> None: ...


class LoadDevice:
    """A user's only device. `index` is the user's number."""

    def __init__(self, state: WorkerState, index: int) -> None:
        self.state = state
        self.index = index
        self.user = state.build_user_id(index)
        self.received: dict[str, ReceivedSeqs] = {}
        self.outbox: collections.deque[PendingSend] = collections.deque()
        self.in_flight: dict[int, PendingSend] = {}
        self.listener: MessageListener | None = None
        self._numbers = self._ids = 0
        self._requests: dict[int, Answer] = {}
        self._link: DeviceConnection | None = None
        self._in_flight_max = 64
        self._cursor: frame_reader.Cursor | None = None
        self._large: set[str] = set()
        self._connecting: asyncio.Task[None] | None = None
        self._filling: asyncio.Task[None] | None = None
        # while resuming: (inbox seq to reach, start time in µs)
        self._caught_up: tuple[int, int] | None = None
        self._is_pausing = False
        self._wait_s = 0.0  # the retry delay requested in `bye`

    @property
    def is_live(self) -> bool:
        return self._link is not None

    @property
    def is_idle(self) -> bool:
        """True if connected, with nothing queued, unanswered or being loaded."""
        return self.is_live and not (
            self.outbox or self.in_flight or self._requests or self._filling
        )

    def is_behind(self) -> bool:
        """Return whether this device lacks a message that was acked or that another device has."""
        records = self.state.records
        return any(
            bool(received.missing) or (received.last or 0) < records[chat].top
            for chat, received in self.received.items()
            if chat in records
        )

    def has_received(self, chat: str, seq: int) -> bool:
        received = self.received[chat]
        return (received.last or 0) >= seq and seq not in received.missing

    def start_connecting(self, due_us: int) -> asyncio.Task[None]:
        """Connect and resume at the cursor; retry until this succeeds or the run is over."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(
                self._connect_with_retries(due_us), name=f"connect {self.user}"
            )
        return self._connecting

    def abort(self) -> None:
        """Abort the connection, as in a network failure."""
        link, self._link = self._link, None
        if link is not None:
            link.abort()
            self._requeue_unanswered()

    def close(self) -> None:
        for task in (self._connecting, self._filling):
            if task is not None:
                task.cancel()
        self.abort()

    def handle_unreadable(self, data: bytes) -> None:
        self.state.findings.add("mismatched", f"{self.user}: cannot read {data[:100]!r}")

    def handle_link_close(self, link: DeviceConnection) -> None:
        """Handle the end of a connection that this device did not close."""
        if link is self._link:
            self._link = None
            self._requeue_unanswered()
            if not self.state.is_over:
                self.state.meters.counts["reconnects"] += 1
                self.start_connecting(get_now_us())

    def _requeue_unanswered(self) -> None:
        for response in list(self._requests.values()):
            response(None)
        self._requests.clear()
        self.outbox.extendleft(reversed(self.in_flight.values()))
        self.in_flight.clear()

    async def _connect_with_retries(self, due_us: int) -> None:
        pause_s = _PAUSE_FIRST_S
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
            self._wait_s = 0.0
        while not self.state.is_over and self._link is None:
            try:
                await self._connect(due_us)
            except HelloRefused as exc:
                if not exc.is_temporary:
                    self.state.fatal = f"{self.user} was refused: {exc}"
                    return
                reason, wait_s = str(exc), exc.retry_after_s
            except (OSError, TimeoutError, wire.BadHandshake) as exc:
                reason, wait_s = str(exc), getattr(exc, "retry_after_s", None)
            else:
                return
            self.state.meters.counts["connects_failed"] += 1
            self.state.last_failure = reason
            await asyncio.sleep(add_jitter(max(pause_s, wait_s or 0), 0.7, 1.3))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    async def _connect(self, due_us: int) -> None:
        fields: dict[str, Any] = {
            "type": "hello",
            "v": 1,
            "token": self.state.mint(self.user),
            "device": f"{self.user}-d",
        }
        if self._cursor is not None:
            fields["cursor"] = self._cursor
            lasts = ((chat, received.last) for chat, received in self.received.items())
            fields["large"] = {
                chat: last for chat, last in lasts if chat in self._large and last is not None
            }
        link, welcome = await DeviceConnection.open(self, self.state.address, fields)
        self.state.meters.counts["connects"] += 1
        self.state.meters.record_latency("connect", get_now_us() - due_us)
        self._in_flight_max = welcome.limits.sends_in_flight_max
        self._large.update(large_chat.chat for large_chat in welcome.large)
        if self._cursor is None:
            self._cursor = frame_reader.Cursor(welcome.epoch, welcome.seq)
            self.state.on_done()
        else:
            self._caught_up = (welcome.seq, due_us)
        self._link = link
        link.start()  # handles the frames that arrived after `welcome`
        self._record_progress()
        self.flush()

    def _record_progress(self) -> None:
        """Record the resume latency when all missed events have arrived."""
        if self._caught_up is not None and self._cursor is not None:
            seq, since_us = self._caught_up
            if self._cursor.seq >= seq:
                self._caught_up = None
                self.state.meters.record_latency("resume", get_now_us() - since_us)
                self.state.on_done()

    def send(
        self,
        chat: str,
        due_us: int,
        text: str | None = None,
        on_result: SendResult | None = None,
    ) -> bool:
        """Send a message now, or queue it if too many are in flight.

        `due_us`: the scheduled time. Return False if the queue is full.
        """
        if len(self.outbox) >= OUTBOX_MAX:
            self.state.meters.counts["unsent"] += 1
            return False
        self._numbers += 1
        self._ids += 1
        number, state = self._numbers, self.state
        fields = {
            "type": "send",
            "id": self._ids,
            "chat": chat,
            "ref": state.build_ref(self.index, number),
            "body": state.build_body(self.index, number, due_us, text),
        }
        frame = wire.encode_client_frame(frame_reader.encode(fields))
        key = encode_key(self.index, number)
        draft = PendingSend(self._ids, chat, key, due_us, frame, on_result=on_result)
        self.outbox.append(draft)
        self.flush()
        return True

    def flush(self) -> None:
        link = self._link
        if link is None or self._is_pausing or not self.outbox:
            return
        frames = []
        while self.outbox and len(self.in_flight) < self._in_flight_max:
            draft = self.outbox.popleft()
            self.in_flight[draft.id] = draft
            self.state.meters.counts["retried" if draft.attempts else "sent"] += 1
            draft.attempts += 1
            frames.append(draft.frame)
        if frames:
            link.transport.write(b"".join(frames))

    def request_page(
        self,
        chat: str,
        before: int,
        due_us: int,
        on_page: Callable[[frame_reader.Page | None], None] = lambda _: None,
    ) -> None:
        """Request the history page before a seq, and verify it; `on_page` gets None on an error."""
        state = self.state

        def answered(response: ReceivedFrame | None) -> None:
            if isinstance(response, frame_reader.Page):
                state.meters.record_latency("page", get_now_us() - due_us)
                state.meters.counts["pages"] += 1
                state.meters.counts[f"tier:{response.tier or 'none'}"] += 1
                self._check_page(chat, before, response)
                on_page(response)
            else:
                code = (
                    response.code if isinstance(response, frame_reader.Refusal) else "disconnected"
                )
                state.meters.counts[f"refused:{code}"] += 1
                on_page(None)
            state.on_done()

        self._send_request(
            {"type": "history", "chat": chat, "before": before, "limit": PAGE}, answered
        )

    def _check_page(self, chat: str, before: int, page: frame_reader.Page) -> None:
        seqs = sorted(entry.seq for entry in page.messages)
        if seqs != list(range(before - len(seqs), before)) or not seqs:
            text = f"{self.user}: page of {chat} before {before} has seqs {seqs[:60]}"
            self.state.findings.add("mismatched", text)
        book = self.state.records[chat]
        for message in page.messages:
            read = self.state.parse_body(message.sender, message.ref, message.body)
            if read is not None:
                book.put(message.seq, read.key)

    def _send_request(self, fields: dict[str, Any], answered: Answer) -> None:
        if self._link is None:
            answered(None)
            return
        self._ids += 1
        self._requests[self._ids] = answered
        self._link.write({**fields, "id": self._ids})

    async def request(self, **fields: Any) -> ReceivedFrame:
        """Send a request and return its response, which may be an error.

        Raises:
            ConnectionError: the connection was lost before the response arrived.
            TimeoutError: no response within `ANSWER_S`.
        """
        future: asyncio.Future[ReceivedFrame | None] = asyncio.get_running_loop().create_future()

        def answered(reply: ReceivedFrame | None) -> None:
            if not future.done():
                future.set_result(reply)

        self._send_request(fields, answered)
        response = await asyncio.wait_for(future, ANSWER_S)
        if response is None:
            raise ConnectionResetError(f"{self.user}: the connection ended")
        return response

    async def request_fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Send any request and return all fields of its response, which may be an error.

        Raises:
            ConnectionError: not connected, or the connection was lost before the response arrived.
            TimeoutError: no response within `ANSWER_S`.
        """
        if self._link is None:
            raise ConnectionResetError(f"{self.user} is not connected")
        self._ids += 1
        async with asyncio.timeout(ANSWER_S):
            return await self._link.request_fields({**fields, "id": self._ids}, self._ids)

    def post(self, fields: dict[str, Any]) -> None:
        """Send a frame that has no response; without a connection, it is dropped."""
        if self._link is not None:
            self._link.write(fields)

    def handle_frame(self, frame: ReceivedFrame) -> None:
        kind = type(frame)
        if kind is frame_reader.Event:
            self._handle_event(frame)  # type: ignore[arg-type]  # `kind` is checked above
        elif kind is frame_reader.Ack:
            self._handle_ack(frame)  # type: ignore[arg-type]  # likewise
        elif isinstance(frame, (frame_reader.Ok, frame_reader.Page)):
            self._resolve(frame.id, frame)
        elif isinstance(frame, frame_reader.Refusal):
            if frame.id in self.in_flight:
                self._handle_refusal(self.in_flight.pop(frame.id), frame)
            elif frame.id is not None:
                self._resolve(frame.id, frame)
        elif isinstance(frame, (frame_reader.TooLong, frame_reader.Reset)):
            self._cursor = frame.cursor
            self._record_progress()
            if self._filling is None:
                self._filling = asyncio.create_task(self._fill(), name=f"fill {self.user}")
        elif isinstance(frame, frame_reader.Bye):
            self._wait_s = (frame.retry_after_ms or 0) / 1000

    def _resolve(self, id_: int, frame: ReceivedFrame) -> None:
        response = self._requests.pop(id_, None)
        if response is not None:
            response(frame)

    def _handle_event(self, event: frame_reader.Event) -> None:
        cursor = self._cursor
        if event.seq and cursor is not None:
            if event.epoch == cursor.epoch and event.seq <= cursor.seq:
                received = self.received.get(event.chat)
                # The event is late, but not a duplicate: its message is still missing.
                if received is not None and event.cs in received.missing:
                    received.record_pushed(event.cs, self.user, self.state.findings)
                    self._record_message(event.chat, event.message, is_pushed=True)
                    return
                text = f"{self.user}: inbox seq {event.seq} after {cursor.seq}"
                self.state.findings.add("duplicate", text)
                return
            if event.epoch != cursor.epoch or event.seq != cursor.seq + 1:
                text = f"{self.user}: inbox {event.epoch}/{event.seq} after {cursor.seq}"
                self.state.findings.add("jumped", text)
            self._cursor = frame_reader.Cursor(event.epoch, event.seq)
        elif event.cs:
            self._large.add(event.chat)
        if event.cs:
            received = self.received.get(event.chat)
            if received is not None and received.record_pushed(
                event.cs, self.user, self.state.findings
            ):
                self._record_message(event.chat, event.message, is_pushed=True)
        if self._caught_up is not None:
            self._record_progress()

    def _record_message(
        self, chat: str, message: frame_reader.Message | None, *, is_pushed: bool
    ) -> None:
        if message is None:
            return
        read = self.state.parse_body(message.sender, message.ref, message.body)
        if read is None:
            return
        book = self.state.records.get(chat)
        if book is not None:
            book.put(message.seq, read.key)
        self.state.meters.counts["delivered"] += 1
        if is_pushed:
            self.state.meters.record_latency("delivered", get_now_us() - read.due_us)
        if self.listener is not None:
            self.listener.handle_message(chat, message, read)

    def _handle_ack(self, ack: frame_reader.Ack) -> None:
        if ack.id in self._requests:
            self._resolve(ack.id, ack)
            return
        draft = self.in_flight.pop(ack.id, None)
        if draft is None:
            self.state.findings.add("duplicate", f"{self.user}: ack {ack.id} again")
            return
        state = self.state
        if ack.dup and draft.attempts == 1:
            state.findings.add("mismatched", f"{self.user}: ack {ack.id} has dup, but no retry")
        book = state.records.get(draft.chat)
        if book is not None:
            book.put(ack.seq, draft.key, is_ack=True)
        state.meters.counts["acked"] += 1
        state.meters.record_latency("ack", get_now_us() - draft.due_us)
        if draft.on_result is not None:
            draft.on_result(ack.seq, "")
        self.flush()
        state.on_done()

    def _handle_refusal(self, draft: PendingSend, refusal: frame_reader.Refusal) -> None:
        state = self.state
        if not refusal.temporary or refusal.code == "rate_limited" or state.is_over:
            state.meters.counts[f"refused:{refusal.code}"] += 1
            if refusal.code not in state.refusals:
                state.refusals[refusal.code] = refusal.message
            if draft.on_result is not None:
                draft.on_result(0, refusal.code)
            self.flush()
            state.on_done()
            return
        state.retried.add(draft.key)
        self.outbox.appendleft(draft)
        if not self._is_pausing:
            self._is_pausing = True
            pause_s = add_jitter(max(0.05, refusal.retry_after_ms / 1000), 1.0, 1.5)
            asyncio.get_running_loop().call_later(pause_s, self._resume_sending)

    def _resume_sending(self) -> None:
        self._is_pausing = False
        self.flush()

    async def _fill(self) -> None:
        """Load missing messages from history, because the inbox no longer has them."""
        try:
            for chat, received in list(self.received.items()):
                while True:
                    after = min(received.missing, default=(received.last or 0) + 1) - 1
                    page = await self.request(type="history", chat=chat, after=after, limit=PAGE)
                    if not isinstance(page, frame_reader.Page):
                        break
                    for message in page.messages:
                        if received.record_loaded(message.seq):
                            self._record_message(chat, message, is_pushed=False)
                    if not page.more or not page.messages:
                        break
        except (ConnectionError, TimeoutError):
            pass  # no retry here: after the next connect, the server sends `too_long` again
        finally:
            self._filling = None
