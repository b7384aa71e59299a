"""HTTP/2 client connection (RFC 9113) with concurrent requests.

It wraps the Sans-I/O library `h2`. A failed request raises `NotReached` if the server certainly did
not process it:

- the request was not sent completely
- the server refused the stream (section 8.7)
- the server's GOAWAY reports that it did not process the stream (section 6.8)

After GOAWAY, a connection accepts no more requests, and closes after the last response.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Final, cast

from h2 import events
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes, Settings

from chatserver.errors import SERVER_DOWN, Unavailable
from chatserver.outbound.http_client import Answer, NotReached

STREAMS_MAX: Final = 100  # maximum concurrent requests per connection
FRAME_BYTES_MAX: Final = 16_384  # maximum size of a received frame; the default in RFC 9113
HEADER_BYTES_MAX: Final = 16_384
# Maximum unsent bytes; above it, the server is assumed not to read.
UNSENT_BYTES_MAX: Final = 1_048_576
PING_S: Final = 5.0
REASON_CHARS_MAX: Final = 200
_HEAD_BYTES: Final = 9  # size of a frame header; its first three bytes are the payload length
_PING: Final = b"chatserv"


@dataclasses.dataclass(slots=True, eq=False)
class _Exchange:
    """A request in progress, and the response received so far."""

    answered: asyncio.Future[None]
    body_bytes_max: int
    is_sent: bool = False  # whether the request was sent completely
    is_closed: bool = False  # whether the stream is closed in both directions
    status: int = 0
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    body: bytearray = dataclasses.field(default_factory=bytearray)

    def fail(self, failure: Unavailable) -> None:
        if not self.answered.done():
            self.answered.set_exception(failure)
            # Retrieve the error: asyncio logs errors that are never retrieved.
            self.answered.exception()


class Http2Connection(asyncio.Protocol):
    """An HTTP/2 connection. It is usable after `wait_until_open`."""

    def __init__(self, host: str, ping_after_s: float) -> None:
        self._host = host
        self._ping_after_s = ping_after_s
        self._loop = asyncio.get_running_loop()
        self._core = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._core.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_BYTES_MAX,
            },
        )
        self._transport: asyncio.Transport | None = None
        self._incoming = bytearray()
        self._exchanges: dict[int, _Exchange] = {}
        self._changed = asyncio.Event()
        self._is_open = False
        self._end_reason = ""  # why the connection accepts no more requests, or empty
        self._is_lost = False
        self._received_at = 0.0
        self._is_silent = False  # True if a response did not arrive in time

    @property
    def is_usable(self) -> bool:
        return self._is_open and not self._end_reason

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    async def wait_until_open(self) -> None:
        """Wait for the server's settings, which include the limit on concurrent requests.

        Raises:
            NotReached: the connection ended before the settings arrived.
        """
        await self._wait_until(lambda: self._is_open or bool(self._end_reason))
        self._require_usable()

    async def is_alive(self) -> bool:
        """Return whether the server responds; ping it if nothing has been received recently."""
        pinged_at = self._loop.time()
        if not self.is_usable:
            return False
        if not self._is_silent and pinged_at - self._received_at < self._ping_after_s:
            return True
        self._core.ping(_PING)
        self._flush()
        try:
            async with asyncio.timeout(PING_S):
                await self._wait_until(lambda: self._received_at > pinged_at or not self.is_usable)
        except TimeoutError:
            self._abort("the server does not respond")
        return self.is_usable

    async def request(
        self,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        *,
        deadline: float,
        response_bytes_max: int,
    ) -> Answer:
        """Send a request and return the response; `deadline` is in the event loop's time.

        Guarantees:
            At most once: there are no retries. After `Unavailable`, the request may have arrived.
            Bounded: buffers at most `response_bytes_max` of a response; at most `STREAMS_MAX`
            requests run concurrently.
            Cancellation: safe; the stream is reset.

        Raises:
            NotReached: the server has certainly not processed the request.
            Unavailable: the response did not arrive in time, or was too long or invalid.
        """
        exchange = _Exchange(self._loop.create_future(), response_bytes_max)
        try:
            async with asyncio.timeout_at(deadline):
                await self._exchange(exchange, headers, body)
        except TimeoutError as exc:
            self._is_silent = True
            kind = Unavailable if exchange.is_sent else NotReached
            raise kind(f"{self._host} did not respond in time") from exc
        except H2Error as exc:
            kind = Unavailable if exchange.is_sent else NotReached
            raise kind(f"the request to {self._host} failed: {type(exc).__name__}") from exc
        return Answer(exchange.status, exchange.headers, bytes(exchange.body))

    def close(self) -> None:
        """Send GOAWAY and close the connection; pending requests fail."""
        if not self._is_lost and self._transport is not None:
            self._core.close_connection()
            self._flush()
            self._transport.close()
        self._end("the connection was closed")

    # requests

    async def _exchange(
        self, exchange: _Exchange, headers: Sequence[tuple[str, str]], body: bytes
    ) -> None:
        await self._wait_until(lambda: not self.is_usable or self._has_room())
        self._require_usable()
        stream = self._core.get_next_available_stream_id()
        self._core.send_headers(stream, headers)
        self._exchanges[stream] = exchange
        try:
            await self._send_body(stream, exchange, body)
            await exchange.answered
        finally:
            del self._exchanges[stream]
            self._release_stream(stream, exchange)

    def _has_room(self) -> bool:
        room = min(STREAMS_MAX, self._core.remote_settings.max_concurrent_streams)
        return len(self._exchanges) < room

    async def _send_body(self, stream: int, exchange: _Exchange, body: bytes) -> None:
        offset = 0
        while not exchange.answered.done():
            window = self._core.local_flow_control_window(stream)
            size = min(window, self._core.max_outbound_frame_size, len(body) - offset)
            if size > 0 or offset == len(body):
                offset += size
                is_end = offset == len(body)
                self._core.send_data(stream, body[offset - size : offset], end_stream=is_end)
                exchange.is_sent = is_end
                self._flush()
                if is_end:
                    return
            else:
                # Wait until the flow-control window grows or the server responds early.
                await self._changed.wait()

    def _release_stream(self, stream: int, exchange: _Exchange) -> None:
        """Reset the stream unless it is closed, and let waiting requests continue."""
        if not exchange.is_closed and not self._is_lost:
            with contextlib.suppress(H2Error):  # `h2` has already closed the stream
                self._core.reset_stream(stream, ErrorCodes.CANCEL)
            self._flush()
        if self._end_reason and not self._exchanges and self._transport is not None:
            self._transport.close()
        self._notify_changed()

    # event loop callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._core.initiate_connection()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        self._is_silent = False
        self._incoming += data
        try:
            # Decode frame by frame: otherwise, an error in a later frame would discard the events
            # from earlier frames.
            while (frame := self._next_frame()) is not None:
                for event in self._core.receive_data(frame):
                    self._handle_event(event)
        except H2Error as exc:
            self._flush()  # send the GOAWAY frame that `h2` has queued
            self._abort(f"HTTP/2 protocol error: {type(exc).__name__}")
            return
        self._flush()
        self._notify_changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._end("the server closed the connection" if exc is None else "the connection was lost")

    # server events

    def _next_frame(self) -> bytes | None:
        if len(self._incoming) < _HEAD_BYTES:
            return None
        size = int.from_bytes(self._incoming[:3])
        if size > FRAME_BYTES_MAX:
            raise ProtocolError("a frame is too long")
        if len(self._incoming) < _HEAD_BYTES + size:
            return None
        frame = bytes(self._incoming[: _HEAD_BYTES + size])
        del self._incoming[: _HEAD_BYTES + size]
        return frame

    def _handle_event(self, event: events.Event) -> None:
        match event:
            case events.RemoteSettingsChanged():
                self._is_open = True
            case events.ConnectionTerminated():
                self._handle_goaway(event)
            case events.ResponseReceived() if exchange := self._exchanges.get(event.stream_id):
                for name, value in event.headers:
                    text = value.decode("latin-1")
                    if name == b":status":
                        exchange.status = int(text) if re.fullmatch(r"[1-5]\d\d", text) else 0
                    elif not name.startswith(b":"):
                        exchange.headers[name.decode("latin-1").lower()] = text
            case events.DataReceived():
                self._handle_data(event)
            case events.StreamEnded() if exchange := self._exchanges.get(event.stream_id):
                exchange.is_closed = exchange.is_sent
                if exchange.status == 0:
                    exchange.fail(
                        Unavailable(f"{self._host}: the response has no status", public=SERVER_DOWN)
                    )
                elif not exchange.answered.done():
                    exchange.answered.set_result(None)
            case events.StreamReset() if exchange := self._exchanges.get(event.stream_id):
                exchange.is_closed = True
                is_refused = event.error_code == ErrorCodes.REFUSED_STREAM
                kind = NotReached if is_refused or not exchange.is_sent else Unavailable
                exchange.fail(
                    kind(f"{self._host} reset the stream: {_format_code(event.error_code)}")
                )
            case _:
                pass

    def _handle_data(self, event: events.DataReceived) -> None:
        if event.flow_controlled_length:
            self._core.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None or exchange.answered.done():
            return
        exchange.body += event.data
        if len(exchange.body) > exchange.body_bytes_max:
            limit = exchange.body_bytes_max
            exchange.fail(Unavailable(f"the response is longer than {limit} bytes"))

    def _handle_goaway(self, event: events.ConnectionTerminated) -> None:
        # `h2` rejects all frames after a GOAWAY, but according to RFC 9113, the server still
        # completes earlier streams.
        self._core.state_machine.state = ConnectionState.CLIENT_OPEN
        reason = (event.additional_data or b"")[:REASON_CHARS_MAX].decode("ascii", "replace")
        printable_reason = "".join(char if char.isprintable() else "?" for char in reason)
        self._end_reason = f"GOAWAY: {_format_code(event.error_code)} {printable_reason}".rstrip()
        for stream, exchange in self._exchanges.items():
            if stream > (event.last_stream_id or 0):
                exchange.is_closed = True
                exchange.fail(NotReached(f"{self._host}: {self._end_reason}", public=SERVER_DOWN))
        if not self._exchanges and self._transport is not None:
            self._transport.close()

    # closing and waiting

    def _require_usable(self) -> None:
        if not self.is_usable:
            raise NotReached(f"{self._host}: {self._end_reason}", public=SERVER_DOWN)

    def _abort(self, reason: str) -> None:
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason
        for exchange in self._exchanges.values():
            kind = Unavailable if exchange.is_sent else NotReached
            exchange.fail(kind(f"{self._host}: {self._end_reason}", public=SERVER_DOWN))
        self._notify_changed()

    def _flush(self) -> None:
        data = self._core.data_to_send()
        if not data or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._abort("the server does not read the requests")

    def _notify_changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()


def _format_code(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else f"error {code}"
