"""Benchmark chat session: checks every frame without decoding it.

The next `ack` and the next `event` are known in advance, because seqs are contiguous and `ref`s are
consecutive numbers. Each frame is therefore compared with its expected bytes. A frame that differs
is decoded and classified: lost, duplicate, out of order, or of another type.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

from chatserver.dev.servers import HOST
from chatserver.loadtest import connection, wire
from chatserver.loadtest.delivery_checker import Findings
from chatserver.protocol.frames import SUBPROTOCOL
from tests.support.stack import Stack

# A message's number is both its request id and its `ref`. All numbers have the same width, so the
# byte offsets in a frame are known in advance.
FIRST_NUMBER = 1_000_000_000
ANSWER_TIMEOUT_S = 30
_DIGITS = 10
_MID_CHARS = 26  # length of a ULID
_TS_CHARS = 16  # digits of a timestamp in microseconds
_ACK_FORM = b'{"type":"ack","id":%d,"ref":"%d","mid":"'
_ACK_TAIL = b',"dup":false,"durability":"hot"}'
_E, _A = ord("e"), ord("a")  # first bytes of the frame types `event` and `ack`
_SETUPS_IN_FLIGHT = 32  # sessions that are opened concurrently


class Session(connection.LoadConnection):
    """A user's session with a gateway on this machine; an unexpected disconnect is a violation.

    `acked` counts the acks received in order, and `events_received` the events. `on_progress`
    is called after each read that increases either count.
    """

    def __init__(self, user: str, findings: Findings) -> None:
        super().__init__(user)
        self.user = user
        self.findings = findings
        self.acked = 0
        self.events_received = 0
        self.ack_at: list[float] = []
        self.event_at: list[float] = []
        self.is_recording = False
        self.on_progress: Callable[[], None] | None = None
        self._waiting: dict[int | str, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 1
        self._epoch = ""
        self._inbox_seq = 0
        self._is_expecting = False
        self._chat = self._sender = self._body = ""
        self._event_head = self._event_tail = b""
        self._number_at = 0

    # setup

    async def open(self, port: int) -> None:
        """Open the connection."""
        await self.open_to(wire.Address(HOST, port), SUBPROTOCOL)

    async def authenticate(self, token: str) -> None:
        """Authenticate; expect the next event at the seq that follows the one in `welcome`."""
        frame = {"type": "hello", "v": 1, "token": token, "device": f"{self.user}-d"}
        welcome = await self._request("welcome", frame)
        if welcome["type"] != "welcome":
            raise ConnectionRefusedError(f"{self.user}: {welcome}")
        self._epoch = welcome["epoch"]
        self._inbox_seq = welcome["seq"]

    async def request(self, type_: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its response; an `error` also counts as a violation."""
        self._next_id += 1
        return await self._request(self._next_id, {"type": type_, "id": self._next_id, **fields})

    async def ping(self) -> None:
        """Send a ping and wait for the pong, which follows all earlier output of the server."""
        await self._wait("pong", wire.encode_client_frame(b"load", wire.PING))

    async def _request(self, key: int | str, frame: dict[str, Any]) -> dict[str, Any]:
        payload = json.dumps(frame, separators=(",", ":")).encode()
        return await self._wait(key, wire.encode_client_frame(payload))

    async def _wait(self, key: int | str, output: bytes) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[key] = future
        self.transport.write(output)
        return await asyncio.wait_for(future, ANSWER_TIMEOUT_S)

    def expect(self, chat: str, sender: str, body: str) -> None:
        """Prepare the expected bytes of messages from `sender`. The chat must be empty."""
        self._chat, self._sender, self._body = chat, sender, body
        self._event_head = (
            f'{{"type":"event","epoch":"{self._epoch}","seq":%d,"kind":"message","chat":"{chat}",'
            f'"cs":%d,"message":{{"seq":%d,"ts":'
        ).encode()
        between = f',"chat":"{chat}","mid":"{"":<{_MID_CHARS}}","sender":"{sender}","ref":"'
        self._number_at = _TS_CHARS + len(between)
        self._event_tail = f'","kind":"text","body":{json.dumps(body)}}}}}'.encode()
        self._is_expecting = True

    def handle_close(self, failure: ConnectionError, *, is_expected: bool) -> None:
        if not is_expected:
            self.findings.add("closed", str(failure))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(failure)

    # the hot path

    def data_received(self, data: bytes) -> None:
        acked, events_received = self.acked, self.events_received
        super().data_received(data)
        if self.acked == acked and self.events_received == events_received:
            return
        if self.is_recording:
            now = perf_counter()
            self.ack_at.extend([now] * (self.acked - acked))
            self.event_at.extend([now] * (self.events_received - events_received))
        if self.on_progress is not None:
            self.on_progress()

    def read_frames(self, data: bytes) -> int:
        end = len(data)
        pos = 0
        while end - pos >= 4:
            if data[pos + 1] == 126 and data[pos] == wire.TEXT:
                start = pos + 4
                stop = start + (data[pos + 2] << 8 | data[pos + 3])
                if stop > end:
                    return pos
                if self._is_expecting:
                    kind = data[start + 9]
                    if kind == _E and self._is_next_event(data, start, stop):
                        self.events_received += 1
                        self._inbox_seq += 1
                        pos = stop
                        continue
                    if kind == _A and self._is_next_ack(data, start, stop):
                        self.acked += 1
                        pos = stop
                        continue
            else:
                payload = wire.find_payload(data, pos)
                if payload is None or payload[1] > end:
                    return pos
                start, stop = payload
            self._handle_frame(data[pos], data[start:stop])
            pos = stop
        # Fewer than four bytes are left: only a control frame can be complete.
        while (payload := wire.find_payload(data, pos)) is not None and payload[1] <= end:
            self._handle_frame(data[pos], data[payload[0] : payload[1]])
            pos = payload[1]
        return pos

    def _is_next_event(self, data: bytes, start: int, stop: int) -> bool:
        """Return whether a frame is the expected event, whatever its timestamp and message id."""
        cs = self.events_received + 1
        form = self._event_head % (self._inbox_seq + 1, cs, cs)
        digits_start = start + len(form) + self._number_at
        return (
            data.startswith(form, start)
            and data[digits_start : digits_start + _DIGITS]
            == b"%d" % (FIRST_NUMBER + self.events_received)
            and data.endswith(self._event_tail, start, stop)
            and stop == digits_start + _DIGITS + len(self._event_tail)
        )

    def _is_next_ack(self, data: bytes, start: int, stop: int) -> bool:
        number = FIRST_NUMBER + self.acked
        form = _ACK_FORM % (number, number)
        seq = b'","seq":%d,"ts":' % (self.acked + 1)
        return (
            data.startswith(form, start)
            and data.startswith(seq, start + len(form) + _MID_CHARS)
            and data.endswith(_ACK_TAIL, start, stop)
        )

    # the slow path

    def _handle_frame(self, first_byte: int, payload: bytes) -> None:
        match first_byte:
            case wire.TEXT:
                self._handle_text(json.loads(payload))
            case wire.PING:
                self.transport.write(wire.encode_client_frame(payload, wire.PONG))
            case wire.PONG:
                self._resolve("pong", {})
            case wire.CLOSE:
                self.findings.add("closed", f"{self.user}: {payload!r}")
            case _:
                self.findings.add("mismatched", f"{self.user}: first byte {first_byte:#x}")

    def _handle_text(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "event":
                self._handle_event(frame)
            case "ack":
                self._handle_ack(frame)
            case "stored" | "signal":
                pass
            case "error" if frame.get("id", 0) >= FIRST_NUMBER:
                self.findings.add("refused", f"{self.user}: {frame}")
            case "error" | "bye":
                self.findings.add(frame["type"], f"{self.user}: {frame}")
                self._resolve(frame.get("id", "welcome"), frame)
            case _:
                self._resolve(frame.get("id", "welcome"), frame)

    def _handle_event(self, frame: dict[str, Any]) -> None:
        seq = frame["seq"]
        if seq <= self._inbox_seq:
            self.findings.add("duplicate", f"{self.user}: inbox seq {seq} after {self._inbox_seq}")
            return
        if seq > self._inbox_seq + 1:
            self.findings.add("lost", f"{self.user}: inbox seq {seq} after {self._inbox_seq}")
        self._inbox_seq = seq
        if frame["kind"] != "message" or not self._is_expecting:
            return
        message = frame["message"]
        if (message["chat"], message["sender"]) != (self._chat, self._sender):
            self.findings.add("mismatched", f"{self.user}: {frame}")
            return
        if message["body"] != self._body:
            self.findings.add("mismatched", f"{self.user}: another body: {frame}")
        self._check_position("event", self.events_received, frame["cs"] - 1, message["ref"])
        self.events_received = max(self.events_received, frame["cs"])

    def _handle_ack(self, frame: dict[str, Any]) -> None:
        if frame["dup"] or frame["durability"] != "hot":
            self.findings.add("mismatched", f"{self.user}: {frame}")
        self._check_position("ack", self.acked, frame["seq"] - 1, frame["ref"])
        self.acked = max(self.acked, frame["seq"])

    def _check_position(self, what: str, expected: int, position: int, ref: str) -> None:
        number = int(ref) - FIRST_NUMBER
        text = f"{self.user}: {what} at {position}, expected {expected}, message {number}"
        if position < expected:
            self.findings.add("duplicate", text)
        elif position > expected:
            self.findings.add("lost", text)
        if number != position:
            self.findings.add("disordered", text)

    def _resolve(self, key: int | str, frame: dict[str, Any]) -> None:
        future = self._waiting.pop(key, None)
        if future is not None and not future.done():
            future.set_result(frame)


AnySession = TypeVar("AnySession", bound=Session)


async def open_sessions(
    stack: Stack, users: list[str], findings: Findings, kind: type[AnySession]
) -> list[AnySession]:
    """Return an authenticated session for each user."""
    slots = asyncio.Semaphore(_SETUPS_IN_FLIGHT)

    async def open_one(user: str) -> AnySession:
        async with slots:
            session = kind(user, findings)
            await session.open(stack.port)
            await session.authenticate(stack.token(user))
            return session

    return list(await asyncio.gather(*map(open_one, users)))
