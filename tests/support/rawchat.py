"""Chat client at the protocol level, without the SDK.

`RawChat` is one device of one user with at most one connection. It has the state that the
protocol requires of a client: its cursor and the sends without a response. `reconnect` resumes with
the cursor and retries these sends in order, with the same `ref`.

Connection, requests and state are one class, because they share the state that tests inspect.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self

import msgspec
import pytest

from tests.support import wire
from tests.support.history.events import (
    Delivered,
    Final,
    LogEntry,
    Marked,
    Notified,
    Page,
    Requested,
    Responded,
    Restarted,
    Started,
    Unread,
    Watermark,
)
from tests.support.received_frames import Fields, ReceivedFrames
from tests.support.recorder import Recorder
from tests.support.wire import DEADLINE_S, Ended, RawSocket, close_payload, describe


def entry_of(message: Fields) -> LogEntry:
    """Convert a message of a frame."""
    return msgspec.convert(message, LogEntry)


class Failed(Exception):
    """The server responded to a request with an `error` frame."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(f"{fields['code']}: {fields['message']}")
        self.fields = fields
        self.code: str = fields["code"]
        self.message: str = fields["message"]
        self.is_temporary: bool = fields["temporary"]


async def get_refusal(work: Awaitable[object]) -> Failed:
    """Await a request that the server must refuse; return the error."""
    with pytest.raises(Failed) as caught:
        await work
    return caught.value


@dataclasses.dataclass
class Pending:
    """A send whose outcome is not known yet."""

    chat: str
    ref: str
    body: str
    extra: Fields
    answer: asyncio.Future[Fields]  # the final one
    attempt: asyncio.Future[Fields] | None = None  # of the last attempt
    attempted_at: float = 0.0


class RawChat(ReceivedFrames):
    """One device of a user. Use `start` or ``async with``; `stop` ends it."""

    def __init__(
        self,
        user: str,
        port: int,
        token_of: Callable[[str], str],
        *,
        device: str | None = None,
        recorder: Recorder | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        super().__init__(device or f"{user}-1")
        self.user = user
        self.port = port
        self.host = host
        self.recorder = recorder or Recorder()
        self.cursor: tuple[str, int] | None = None
        self.large: dict[str, int] = {}  # chats without inbox events: chat → last seq
        self.welcome: Fields = {}
        self.pending: dict[str, Pending] = {}  # by ref, in sending order
        self.unstored: dict[str, tuple[Pending, int]] = {}  # acked with a seq, but not stored yet
        self.lost: list[Pending] = []  # acked in a previous epoch and not stored in it
        self._token_of = token_of
        self._ws: RawSocket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ids = itertools.count(1)
        self._requests: dict[int, tuple[asyncio.Future[Fields], str | None]] = {}
        self._conn = 0
        self.recorder.add_device(self.user, self.device)

    async def start(self, *, port: int | None = None, cursor: Any = ..., **hello: Any) -> Self:
        """Connect and send hello, by default with the device's cursor.

        Raises:
            Ended: the server closed the connection instead; `close_frame` has the details.
        """
        self.port = port or self.port
        self._conn = next(self.recorder.conns)
        self.ended = asyncio.Event()
        self.close_frame = None
        fields: Fields = {"type": "hello", "v": 1, "device": self.device, **hello}
        fields.setdefault("token", self._token_of(self.user))
        place = self.cursor if cursor is ... else cursor
        if place is not None:
            fields["cursor"] = {"epoch": place[0], "seq": place[1]}
            if self.large:
                fields.setdefault("large", dict(self.large))
            if self.unstored:
                newest: dict[str, int] = {}
                for pending, seq in self.unstored.values():
                    newest[pending.chat] = max(seq, newest.get(pending.chat, 0))
                fields.setdefault("unstored", newest)
        ws = await RawSocket.open(self.port, self.host)
        try:
            await ws.send_json(fields)
            self.welcome = await self._read_welcome(ws)
        except BaseException:
            self.ended.set()
            await ws.abort()
            raise
        if place is None:
            self._restart(self.welcome["epoch"], self.welcome["seq"], None)
        begins = {large["chat"]: large["seq"] for large in self.welcome["large"]}
        self.large = begins if place is None else begins | self.large
        self._ws = ws
        self._reader = asyncio.create_task(self._read(ws), name=f"reader of {self.device}")
        return self

    async def _read_welcome(self, ws: RawSocket) -> Fields:
        while True:
            frame = await ws.recv()
            if frame.opcode == wire.CLOSE:
                self.close_frame = frame
                raise Ended(describe(frame))
            if frame.opcode == wire.PING:
                await ws.send(wire.PONG, frame.payload)
            if frame.opcode == wire.TEXT:
                fields: Fields = msgspec.json.decode(frame.payload)
                self.frames.append(fields)
                if fields["type"] == "welcome":
                    return fields

    @property
    def gateway(self) -> str:
        """The gateway process of the current or last connection."""
        assert self._ws is not None and self._ws.response is not None
        return self._ws.response.headers["chat-gateway"]

    @property
    def is_connected(self) -> bool:
        """True from `welcome` until the connection ends."""
        return self._reader is not None and not self.ended.is_set()

    async def reconnect(self, port: int | None = None, **hello: Any) -> Self:
        """Reconnect by cursor and retry unanswered sends."""
        await self.abort()
        await self.start(port=port, **hello)
        await self.resend()
        return self

    async def resend(self) -> None:
        """Retry every unanswered send in order, with the same `ref`."""
        for pending in list(self.pending.values()):
            if pending.ref in self.pending:
                await self._send_attempt(pending)

    async def resend_unstored(self) -> None:
        """Resend messages that were acked but not stored before a reset, with the same `ref`."""
        lost, self.lost = self.lost, []
        for old in lost:
            if old.ref not in self.pending:
                await self.send_nowait(old.chat, old.body, old.ref, **old.extra)

    async def abort(self) -> None:
        """Abort the connection, like a machine that loses its network."""
        if self._ws is not None:
            await self._ws.abort()
        await self._join_reader()

    async def stop(self, code: int = 1000) -> None:
        """Close the connection with a close handshake."""
        if self._ws is not None and not self.ended.is_set():
            await self._ws.send_ignoring_end(wire.CLOSE, close_payload(code))
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await self.ended.wait()
            finally:
                await self._ws.abort()
        await self.abort()

    async def _join_reader(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await reader

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def request(self, type_: str, deadline_s: float = DEADLINE_S, **fields: Any) -> Fields:
        """Send a request and return its response.

        Raises:
            Failed: the response is an error.
            Ended: the connection ended before a response arrived.
        """
        number = next(self._ids)
        future = asyncio.get_running_loop().create_future()
        self._requests[number] = (future, None)
        try:
            await self.send_frame(type_, id=number, **fields)
            async with asyncio.timeout(deadline_s):
                answer: Fields = await future
        finally:
            self._requests.pop(number, None)
        return answer

    async def open_direct(self, user: str, deadline_s: float = DEADLINE_S) -> str:
        """Open the direct chat with a user; return its id."""
        answer = await self.request("open_direct", deadline_s, user=user)
        chat: str = answer["chat"]["chat"]
        return chat

    async def create_group(
        self, members: Iterable[str], *, ref: str = "g", deadline_s: float = DEADLINE_S, **info: Any
    ) -> str:
        """Create a group of the user and the members; return its id."""
        fields = {"ref": ref, "members": list(members), **info}
        chat: str = (await self.request("create_chat", deadline_s, **fields))["chat"]["chat"]
        return chat

    async def change(self, type_: str, chat: str, **fields: Any) -> Fields:
        """Request a change of a chat; return the chat's info after the change."""
        fields.setdefault("ref", f"{self.device}-{random.getrandbits(48):012x}")
        info: Fields = (await self.request(type_, chat=chat, **fields))["chat"]
        return info

    async def send_frame(self, type_: str, **fields: Any) -> None:
        """Send a frame that gets no response."""
        assert self._ws is not None
        await self._ws.send_json({"type": type_, **fields})

    async def send_nowait(
        self, chat: str, body: str, ref: str | None = None, **extra: Any
    ) -> Pending:
        """Send a message without waiting for its ack; its `answer` is a future.

        An ack or a permanent error completes it. Otherwise it stays pending, and `resend` or
        `reconnect` sends it again.
        """
        ref = ref or f"{self.device}-{random.getrandbits(48):012x}"
        answer = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda future: future.cancelled() or future.exception())
        pending = self.pending[ref] = Pending(chat, ref, body, extra, answer)
        await self._send_attempt(pending)
        return pending

    async def send(self, chat: str, body: str, ref: str | None = None, **extra: Any) -> Fields:
        """Send a message and return its ack.

        Raises:
            Failed: the server refused it, permanently or temporarily.
        """
        pending = await self.send_nowait(chat, body, ref, **extra)
        assert pending.attempt is not None
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await pending.attempt
            finally:
                self.pending.pop(pending.ref, None)

    async def send_unrecorded(self, chat: str, ref: str, body: str, **extra: Any) -> Fields:
        """Send with a ref that may be in use, unrecorded; return the response to this attempt."""
        return await self.request("send", chat=chat, ref=ref, body=body, **extra)

    async def send_burst(self, sends: list[tuple[str, str, str]]) -> None:
        """Send many messages, given as (chat, ref, body), in one packet, unrecorded."""
        assert self._ws is not None
        frames = b""
        for chat, ref, body in sends:
            fields = {"type": "send", "id": next(self._ids), "chat": chat, "ref": ref, "body": body}
            frames += wire.build_frame(wire.TEXT, msgspec.json.encode(fields))
        await self._ws.write(frames)

    async def _send_attempt(self, pending: Pending) -> None:
        number = next(self._ids)
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._requests[number] = (future, pending.ref)
        pending.attempt = future
        pending.attempted_at = self.recorder.now()
        request = Requested(
            pending.attempted_at,
            self.user,
            pending.chat,
            pending.ref,
            "send",
            pending.body,
            conn=self._conn,
        )
        self.recorder.add(request)
        fields = {"chat": pending.chat, "ref": pending.ref, "body": pending.body, **pending.extra}
        try:
            await self.send_frame("send", id=number, **fields)
        except Ended:
            return  # The message stays pending. The reader detects the end too.

    async def _read(self, ws: RawSocket) -> None:
        try:
            while True:
                frame = await ws.recv(deadline_s=3600)
                if frame.opcode == wire.TEXT:
                    self._handle(msgspec.json.decode(frame.payload))
                elif frame.opcode == wire.PING:
                    await ws.send(wire.PONG, frame.payload)
                elif frame.opcode == wire.CLOSE:
                    self.close_frame = frame
                    await ws.send_ignoring_end(wire.CLOSE, frame.payload[:2])
                await self.notify_waiters()
        except Ended:
            pass
        finally:
            await ws.abort()
            requests, self._requests = self._requests, {}
            for future, _ in requests.values():
                if not future.done():
                    future.set_exception(Ended("the connection ended"))
            self.ended.set()
            await self.notify_waiters()

    def _handle(self, fields: Fields) -> None:
        self.frames.append(fields)
        match fields["type"]:
            case "event":
                self._handle_event(fields)
            case "signal" if "chat" in fields:
                self.recorder.add(Notified(*self._at(fields["chat"]), fields["kind"]))
            case "too_long" | "reset":
                tops = {chat["chat"]: chat.get("top", 0) for chat in fields["chats"]}
                self.large |= {chat: tops[chat] for chat in self.large.keys() & tops.keys()}
                begins = {large["chat"]: large["seq"] for large in fields.get("large", [])}
                self.large = begins | self.large
                if "id" not in fields:
                    self._restart(fields["cursor"]["epoch"], fields["cursor"]["seq"], tops)
                is_reset = fields["type"] == "reset"
                self.recorder.add(Restarted(self.recorder.now(), self.user, self.device, is_reset))
                if is_reset:
                    # At once, because from here on `stored` refers to seqs of the new epoch.
                    self.lost += [pending for pending, _ in self.unstored.values()]
                    self.unstored.clear()
                self._complete_request(fields)
            case "stored":
                self.recorder.add(Watermark(*self._at(fields["chat"]), fields["upto"]))
                for ref, (pending, seq) in list(self.unstored.items()):
                    if pending.chat == fields["chat"] and seq <= fields["upto"]:
                        del self.unstored[ref]
            case "ack" | "ok" | "page" | "turn" | "error":
                self._complete_request(fields)
            case _:
                pass

    def _restart(self, epoch: str, seq: int, tops: dict[str, int] | None) -> None:
        self.cursor = (epoch, seq)
        now = self.recorder.now()
        self.recorder.add(Started(now, self.user, self.device, epoch, seq, tops))

    def _handle_event(self, event: Fields) -> None:
        if event["seq"] == 0:
            self.large[event["chat"]] = event["cs"]
            return
        self._apply_transition(event)
        self.cursor = (event["epoch"], event["seq"])
        at, epoch, seq = self._at(event["chat"]), event["epoch"], event["seq"]
        if "message" in event:
            entry = entry_of(event["message"])
            self.recorder.add(Delivered(*at, entry, event=seq, epoch=epoch))
        else:
            self.recorder.add(Notified(*at, event["kind"], seq, epoch))
        if event["kind"] == "read":
            marks = event["read"]
            levels = (marks.get("read", 0), marks.get("received", 0))
            self.recorder.add(Marked(*at, marks["user"], *levels))

    def _at(self, chat: str) -> tuple[float, str, str, str]:
        return (self.recorder.now(), self.user, self.device, chat)

    def _apply_transition(self, event: Fields) -> None:
        """Apply a large-chat transition: the chat became large for the user, or small again."""
        info = event.get("info", {})
        if info.get("large") and "since" in info:
            self.large[event["chat"]] = info["since"]
        elif "since" in info or (event["kind"], event.get("message", {}).get("user")) == (
            "member",
            self.user,
        ):
            self.large.pop(event["chat"], None)

    def _complete_request(self, fields: Fields) -> None:
        future, ref = self._requests.pop(fields.get("id", -1), (None, None))
        if ref is not None:
            self._complete_send(ref, fields)
        if future is None or future.done():
            return
        if fields["type"] == "error":
            future.set_exception(Failed(fields))
        else:
            future.set_result(fields)

    def _complete_send(self, ref: str, fields: Fields) -> None:
        now, pending = self.recorder.now(), self.pending.get(ref)
        if pending is None:
            return
        response = Responded(now, self.user, pending.chat, ref, device=self.device, conn=self._conn)
        if fields["type"] == "ack":
            place = {name: fields[name] for name in ("seq", "ts", "mid", "dup")}
            self.recorder.add(msgspec.structs.replace(response, **place))
            if fields["durability"] == "hot":
                self.unstored[ref] = (pending, fields["seq"])
        else:
            self.recorder.add(msgspec.structs.replace(response, code=fields["code"]))
            if fields["temporary"]:
                return
        del self.pending[ref]
        if not pending.answer.done():
            if fields["type"] == "ack":
                pending.answer.set_result(fields)
            else:
                pending.answer.set_exception(Failed(fields))

    async def read_page(self, chat: str, **window: Any) -> Fields:
        """Request one history page and record it."""
        asked = self.recorder.now()
        page = await self.request("history", chat=chat, **window)
        entries = tuple(map(entry_of, page["messages"]))
        bounds = (window.get("before"), window.get("after"), page["more"])
        self.recorder.add(Page(self.recorder.now(), self.user, chat, entries, asked, *bounds))
        return page

    async def read_final(self, chat: str, limit: int = 200) -> tuple[LogEntry, ...]:
        """Read a chat's whole history, page by page, and record it as final."""
        rows: list[LogEntry] = []
        while True:
            page = await self._read_page_with_retries(chat, rows[-1].seq if rows else 0, limit)
            rows += map(entry_of, page["messages"])
            if not page["more"]:
                break
            assert page["messages"], "a page is empty although `more` is set"
        self.recorder.add(Final(self.user, chat, tuple(rows)))
        return tuple(rows)

    async def _read_page_with_retries(self, chat: str, after: int, limit: int) -> Fields:
        """Request a history page; retry temporary errors until the deadline, as clients do."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    return await self.read_page(chat, after=after, limit=limit)
                except Failed as failed:
                    if not failed.is_temporary:
                        raise
                    await asyncio.sleep(failed.fields.get("retry_after_ms", 100) / 1000)

    async def read_list(self) -> dict[str, Fields]:
        """Read the whole chat list, page by page, record each line and return them by chat."""
        lines: dict[str, Fields] = {}
        window: dict[str, Any] = {}
        has_more = True
        while has_more:
            page = await self.request("chats", **window)
            lines |= {line["chat"]: line for line in page["chats"]}
            window, has_more = {"after": page.get("next")}, page["more"]
        for chat, line in lines.items():
            levels = (line.get("read", 0), line.get("unread", 0), line.get("top", 0))
            self.recorder.add(Unread(self.user, self.device, chat, *levels))
        return lines
