"""WebSocket connection: an asyncio protocol on top of the Sans-I/O core of `websockets`.

This module adds a send queue bounded in bytes, one write per loop tick for all queued frames, and
deadlines. When the queue is full, the connection is closed with `slow`.
"""

from __future__ import annotations

import asyncio
import codecs
import enum
from collections.abc import Callable
from typing import cast

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State as WebSocketState

from chatserver.gateway.transport.connection_interfaces import Host, Receiver
from chatserver.gateway.transport.frame_codec import (
    NeedMore,
    encode_text_frame,
    find_frame_end,
    is_plain_text,
    repack,
    unmask,
)
from chatserver.gateway.transport.handshake import (
    HANDSHAKE_TIMEOUT_S,
    REQUEST_BYTES_MAX,
    create_protocol,
)
from chatserver.protocol import msgpack
from chatserver.protocol.error_codes import Close
from chatserver.protocol.frames import PACKED_SUBPROTOCOL, SUBPROTOCOL

FRAGMENTS_MAX = 1000  # maximum frames per WebSocket message
CONTROL_FRAMES_PER_S = 10.0  # maximum mean rate of pings and pongs from a peer
MESSAGE_TIMEOUT_S = 30.0  # timeout for a fragmented message, from its first frame on
SLOW_TIMEOUT_S = 10.0  # a connection whose write buffer stays full for this long is closed

CLOSE_TIMEOUT_S = 2.0
CONTROL_BURST_S = 10.0  # after a pause, a peer can send this many seconds' worth of pings at once
GATEWAY_HEADER = "Chat-Gateway"  # response header that identifies one of the processes on a port
WRITE_HIGH_WATER = 65_536
INVALID_DATA, MESSAGE_TOO_BIG, POLICY = 1007, 1009, 1008

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Phase(enum.Enum):
    """State of a connection."""

    HANDSHAKE = "handshake"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Connection(asyncio.Protocol):
    """One WebSocket connection."""

    __slots__ = (
        "_buffer",
        "_control_due",
        "_fragments",
        "_fragments_decoder",
        "_host",
        "_is_packed",
        "_is_paused",
        "_is_text",
        "_out",
        "_out_bytes",
        "_receiver",
        "_slow_timer",
        "_timer",
        "_transport",
        "_ws",
        "close_code",
        "loop",
        "peer",
        "phase",
        "pinged_at",
        "room_waiter",
    )

    def __init__(self, host: Host[Connection]) -> None:
        settings = host.settings
        self._host = host
        self.loop = asyncio.get_running_loop()
        self._ws = create_protocol(settings.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._buffer = b""
        self._fragments: list[bytes] | None = None
        self._fragments_decoder: codecs.IncrementalDecoder | None = None
        self._is_text = True
        self._is_packed = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_paused = False
        self._control_due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._slow_timer: asyncio.TimerHandle | None = None
        self.phase = Phase.HANDSHAKE
        self.peer = ""
        self.close_code = 1006
        self.pinged_at: float | None = None
        self.room_waiter: asyncio.Future[None] | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout for the handshake."""
        # uvloop's transports implement `asyncio.Transport` without inheriting from it.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        self.start_deadline(HANDSHAKE_TIMEOUT_S, self.abort)
        self._host.handle_connect(self)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; plain text frames take the fast path."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        if self.phase is Phase.OPEN:
            self._read_frames(data)
        elif self.phase is Phase.HANDSHAKE:
            self._read_request(data)
        else:
            self._feed(data)

    def _read_request(self, data: bytes) -> None:
        end = data.find(b"\r\n\r\n") + 4
        if end >= 4:
            self._feed(data[:end])
            if self.phase is Phase.OPEN:
                self._read_frames(data[end:])
        elif len(data) > REQUEST_BYTES_MAX:
            self._refuse_request()
        else:
            self._buffer = data

    def _refuse_request(self) -> None:
        assert self._transport is not None
        self._transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
            b"Connection: close\r\nContent-Length: 0\r\n\r\n"
        )
        self._transport.close()

    def _read_frames(self, data: bytes) -> None:
        offset, size = 0, len(data)
        limit = self._host.settings.frame_bytes_max
        while offset < size:
            try:
                start, end = find_frame_end(data, offset)
            except NeedMore:
                break
            if end - start > limit:
                self._feed(data[offset:])  # `websockets` refuses the frame because of its length.
                return
            if end > size:
                break
            if self._fragments is None and is_plain_text(data, offset) and not self._is_packed:
                self._handle_message(unmask(data, start, end))
            else:
                self._feed(data[offset:end])
            offset = end
            if self.phase is not Phase.OPEN:
                self._feed(data[offset:])
                return
        self._buffer = data[offset:]

    def eof_received(self) -> None:
        """Pass the end of the stream to `websockets`."""
        self._ws.receive_eof()
        self._after_receive()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the receiver and the host exactly once that the connection has ended."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.cancel_deadline()
        self._cancel_slow_timer()
        self._transport = None
        self._out.clear()
        self._host.slow.discard(self)
        self._wake_waiter()
        if self._receiver is not None:
            self._receiver.handle_disconnect()
            self._receiver = None
        self._host.remove_connection(self)

    def pause_writing(self) -> None:
        """Queue frames while the socket buffer is full, for at most `SLOW_TIMEOUT_S`."""
        self._is_paused = True
        self._host.slow.add(self)
        timeout_s = SLOW_TIMEOUT_S
        self._slow_timer = self.loop.call_later(timeout_s, self._drop_slow)

    def resume_writing(self) -> None:
        """Flush the queue once the socket buffer has room."""
        self._is_paused = False
        self._host.slow.discard(self)
        self._cancel_slow_timer()
        self.flush()
        self._wake_waiter()

    def _cancel_slow_timer(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    # receiving

    def _feed(self, data: bytes) -> None:
        if data:
            self._ws.receive_data(data)
        self._after_receive()

    def _after_receive(self) -> None:
        for event in self._ws.events_received():
            if isinstance(event, Request):
                self._handle_handshake(event)
            elif isinstance(event, Frame):
                self._handle_frame(event)
        self._write_protocol_data()
        if self._ws.parser_exc is not None and self.phase is Phase.OPEN:
            self._start_closing()
        if self.phase is Phase.HANDSHAKE and self._ws.close_expected():
            self._start_closing()
        if self._ws.state is WebSocketState.CLOSED and self._transport is not None:
            self._transport.close()

    def _handle_handshake(self, request: Request) -> None:
        ws = self._ws
        self.peer = self._host.get_address(self.peer, request)
        if not self._host.respond_http(request, ws, self.peer):
            response = ws.accept(request)
            response.headers[GATEWAY_HEADER] = self._host.gateway
            ws.send_response(response)
        if ws.state is WebSocketState.OPEN:
            self.phase = Phase.OPEN
            self.cancel_deadline()
            self._write_protocol_data()
            if ws.subprotocol is None:
                self.close(
                    Close.BAD_PROTOCOL, f"the client must offer the subprotocol {SUBPROTOCOL}"
                )
            else:
                self._is_packed = ws.subprotocol == PACKED_SUBPROTOCOL
                self._receiver = self._host.create_receiver(self)
            request.headers.clear()  # frees memory: `websockets` keeps a reference to the request

    def _handle_frame(self, frame: Frame) -> None:
        opcode = frame.opcode
        if opcode is Opcode.PONG or opcode is Opcode.PING:
            if opcode is Opcode.PONG:
                self.pinged_at = None
            self._count_control()
        elif opcode is Opcode.CLOSE:
            received = self._ws.close_rcvd
            if received is not None and self.phase is Phase.OPEN:
                self.close_code = received.code
            self._start_closing()
        elif self.phase is Phase.OPEN:
            self._handle_data_frame(frame)

    def _count_control(self) -> None:
        """Close the connection if the peer exceeds the rate limit for pings and pongs."""
        now = self.loop.time()
        share_s = 1 / CONTROL_FRAMES_PER_S
        self._control_due = max(self._control_due, now) + share_s
        if self._control_due - now > CONTROL_BURST_S + share_s / 2:
            self.close(POLICY, "too many pings")

    def _handle_data_frame(self, frame: Frame) -> None:
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
            self._fragments = []
            if not frame.fin:
                self._fragments_decoder = _new_utf8_decoder() if self._is_text else None
                self.start_deadline(MESSAGE_TIMEOUT_S, self._close_late_message)
        assert self._fragments is not None
        self._fragments.append(bytes(frame.data))
        if len(self._fragments) > FRAGMENTS_MAX:
            self.close(POLICY, "too many fragments")
        elif frame.fin:
            self.cancel_deadline()
            payload, self._fragments = b"".join(self._fragments), None
            self._fragments_decoder = None
            if self._is_text is self._is_packed:
                wanted = "binary" if self._is_packed else "text"
                self.close(Close.BAD_PROTOCOL, f"{self._ws.subprotocol} requires {wanted} frames")
            elif self._is_packed:
                self._handle_packed_message(payload)
            else:
                self._handle_message(payload)
        elif self._fragments_decoder is not None:
            try:
                self._fragments_decoder.decode(frame.data)
            except UnicodeDecodeError as exc:  # fail now: the rest of the message may never arrive
                self.close(INVALID_DATA, exc.reason)

    def _handle_packed_message(self, payload: bytes) -> None:
        try:
            self._handle_message(msgpack.to_json(payload))
        except msgpack.NotPacked as exc:
            self.close(Close.BAD_PROTOCOL, exc.public_message)

    def _close_late_message(self) -> None:
        self.close(POLICY, "a fragmented message took too long")

    def _handle_message(self, payload: bytes) -> None:
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError as exc:
                self.close(INVALID_DATA, f"{exc.reason} at position {exc.start}")
                return
        if self._receiver is not None and self.phase is Phase.OPEN:
            self._receiver.handle_message(payload)

    # sending

    @property
    def receiver(self) -> Receiver | None:
        """The receiver of messages; None before the handshake and after the connection ends."""
        return self._receiver

    @property
    def queued_bytes(self) -> int:
        """The number of bytes queued here and in the transport's buffer."""
        transport = self._transport
        return self._out_bytes + (0 if transport is None else transport.get_write_buffer_size())

    @property
    def is_slow(self) -> bool:
        """True while data written in earlier ticks is still in the transport's buffer."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def send_text(self, payload: bytes) -> None:
        """Send a text message at the end of this tick, with the guarantees of `send_frame`."""
        self.send_frame(encode_text_frame(payload))

    def send_frame(self, frame: bytes) -> None:
        """Send encoded frame bytes at the end of this tick, in order.

        Guarantees:
            Bound: if the queue exceeds `send_queue_bytes_max`, the connection is closed with
                `slow`.
        """
        if self.phase is not Phase.OPEN:
            return
        if not self._out:
            self._host.flush_soon(self)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._is_paused and self.queued_bytes > self._host.settings.send_queue_bytes_max:
            self._drop_slow()

    def send_parts(self, parts: tuple[bytes, ...], size: int) -> None:
        """Send a frame of `size` bytes, given in `parts`, with the guarantees of `send_frame`."""
        if self.phase is not Phase.OPEN:
            return
        out = self._out
        if not out:
            self._host.flush_soon(self)
        out += parts
        self._out_bytes += size
        if self._is_paused and self.queued_bytes > self._host.settings.send_queue_bytes_max:
            self._drop_slow()

    def flush(self) -> int:
        """Write all queued frames in one call; return the number of bytes written."""
        return 0 if self._is_paused else self._write_out()

    def _write_out(self) -> int:
        if not self._out or self._transport is None:
            return 0
        out, self._out, self._out_bytes = self._out, [], 0
        joined = out[0] if len(out) == 1 else b"".join(out)
        if self._is_packed:
            joined = repack(joined)
        self._transport.write(joined)
        return len(joined)

    async def wait_for_room(self) -> None:
        """Wait until the send queue has room.

        Cancellation: safe.
        """
        while self.phase is Phase.OPEN and self._is_paused:
            if self.room_waiter is None:
                self.room_waiter = self.loop.create_future()
            await asyncio.shield(self.room_waiter)

    def _wake_waiter(self) -> None:
        waiter, self.room_waiter = self.room_waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def ping(self) -> None:
        """Send a ping; `pinged_at` is set until the pong arrives."""
        if self.phase is Phase.OPEN:
            if self.pinged_at is None:
                self.pinged_at = self.loop.time()
            self._ws.send_ping(b"")
            self._write_protocol_data()

    def _write_protocol_data(self) -> None:
        for data in self._ws.data_to_send():
            if self._transport is None:
                return
            if data:
                self.flush()
                self._transport.write(data)
            elif self._transport.can_write_eof():
                # Half-close: a full close could reset the connection before the peer has read the
                # close frame.
                self._clear_queue()  # queued data must not follow the close frame
                self._transport.write_eof()
            else:
                self._transport.close()

    # closing

    def close(self, code: int, reason: str) -> None:
        """Send the queued frames, then close with a code; abort after `CLOSE_TIMEOUT_S`."""
        if self.phase is not Phase.OPEN:
            return
        self.close_code = code
        self._write_out()  # The queued frames must precede the close frame.
        if self._ws.state is WebSocketState.OPEN:
            if code in (INVALID_DATA, MESSAGE_TOO_BIG, POLICY):
                self._ws.fail(code, reason[:100])
            else:
                self._ws.send_close(code, reason[:100])
        self._start_closing()
        self._write_protocol_data()

    def _start_closing(self) -> None:
        if self.phase in (Phase.OPEN, Phase.HANDSHAKE):
            if self.close_code == 1006 and self._ws.close_sent is not None:
                self.close_code = self._ws.close_sent.code
            self.phase = Phase.CLOSING
            self.start_deadline(CLOSE_TIMEOUT_S, self.abort)
            self._wake_waiter()

    def _drop_slow(self) -> None:
        """Drop the queue of a peer that does not read, and close the connection as slow."""
        if self._receiver is not None and self.phase is Phase.OPEN:
            self._receiver.record_slow_close(self.queued_bytes)
        self._clear_queue()
        self.close(Close.SLOW, "slow")

    def _clear_queue(self) -> None:
        self._out.clear()
        self._out_bytes = 0

    def abort(self) -> None:
        """Close the socket immediately, without a close frame."""
        if self._transport is not None:
            self._transport.abort()

    # deadlines: one at a time

    def start_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` after `seconds`, unless `cancel_deadline` is called first."""
        self.cancel_deadline()
        self._timer = self.loop.call_later(seconds, action)

    def cancel_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
