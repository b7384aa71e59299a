"""One HTTP connection: uvicorn's h11 protocol with deadlines and connection limits.

Middleware runs only after the head of a request is complete, so incomplete requests, as in slow
HTTP attacks, are handled here. A connection is always in one of these stages, derived from h11's
state machine::

    accepted ─► HEAD ─► BODY ─► BUSY ─► (WRITE) ─► IDLE ─► HEAD …

======  ======================  ===============================================
stage   deadline                on expiry
======  ======================  ===============================================
HEAD    ``HEAD_TIMEOUT_S``      408, or a plain close if no byte was received
BODY    ``BODY_TIMEOUT_S``      408, or a plain close if the response has begun
WRITE   ``WRITE_TIMEOUT_S``     reset: the peer does not read, so send no error
IDLE    ``idle_timeout_s``      close
BUSY    none                    (the application has its own deadlines)
======  ======================  ===============================================

A deadline applies to the whole stage: received bytes do not extend it. After rejecting a
request, the server closes its side of the connection and discards received bytes for `LINGER_S`.
Otherwise, the peer could get a reset instead of the response.

`chatserver.domain.connection_table` selects the connection to close if there are too many.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import itertools
import sys
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import h11
from litestar.enums import ScopeType
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from chatserver import config
from chatserver.api.problems import MEDIA_TYPE, encode_problem
from chatserver.domain.client_addresses import Network, get_subject, is_in, resolve_client_address
from chatserver.domain.connection_table import ConnectionStage, ConnectionTable
from chatserver.errors import BadRequest
from chatserver.telemetry import metrics

# Maximum connections per client address. For a client behind a trusted proxy: maximum requests in
# progress.
CONNECTIONS_PER_ADDRESS_MAX = 200

# Timeout for a request's head. It starts at the connect, or at the first byte of a later request.
HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 30.0  # timeout for a request's body; starts at the end of the head
WRITE_TIMEOUT_S = 30.0  # maximum time that writing is paused because the client does not read

# Health probes: the limits on concurrent requests do not apply to these paths.
PROBES: Final = {"/healthz", "/readyz"}
LINGER_S: Final = 2.0
RETRY_S: Final = 1
# Maximum connections ended per event loop iteration; each takes 0.1 to 0.2 ms.
EXPIRED_IN_TICK_MAX: Final = 8
_DISCONNECT: Final = "http.disconnect"


class HttpLimits:
    """State shared by all connections of a process."""

    def __init__(self, settings: config.Api, trusted: Sequence[Network]) -> None:
        self.settings = settings
        self.trusted = trusted
        self.table: ConnectionTable[HttpConnection] = ConnectionTable(
            settings.connections_max, CONNECTIONS_PER_ADDRESS_MAX
        )
        # Requests in progress per client, counted only for clients behind a trusted proxy.
        self.forwarded: collections.Counter[str] = collections.Counter()
        self.deadlines: dict[ConnectionStage, float] = {
            ConnectionStage.HEAD: HEAD_TIMEOUT_S,
            ConnectionStage.BODY: BODY_TIMEOUT_S,
            ConnectionStage.WRITE: WRITE_TIMEOUT_S,
            ConnectionStage.IDLE: settings.idle_timeout_s,
        }
        for stage in ConnectionStage:
            gauge = metrics.HTTP_CONNECTIONS.labels(stage.name.lower())
            gauge.set_function(functools.partial(self.table.count, stage))
        self._expired: dict[HttpConnection, None] = {}

    def add_expired(self, connection: HttpConnection) -> None:
        """Schedule the end of a connection whose deadline has passed.

        Each event loop iteration ends only `EXPIRED_IN_TICK_MAX` connections. Ending thousands
        would block the process for hundreds of milliseconds.
        """
        if not self._expired:
            asyncio.get_running_loop().call_soon(self._end_expired)
        self._expired[connection] = None

    def remove_expired(self, connection: HttpConnection) -> None:
        """Unschedule a connection that has ended, or to which another deadline now applies."""
        self._expired.pop(connection, None)

    def _end_expired(self) -> None:
        try:
            for connection in list(itertools.islice(self._expired, EXPIRED_IN_TICK_MAX)):
                del self._expired[connection]
                connection.expire()
        finally:
            if self._expired:
                asyncio.get_running_loop().call_soon(self._end_expired)


class HttpConnection(H11Protocol):
    """One client connection; see the module docstring."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: HttpLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._inner: ASGIApp = self.app
        self.app = self._serve
        self._peer = ""
        self._stage = ConnectionStage.HEAD
        self._staged_cycle: RequestResponseCycle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_new = True  # True until the first byte has been received
        self._is_lingering = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection; close another connection if there are too many."""
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        is_proxy = is_in(self._peer, self._limits.trusted)
        address = None if is_proxy else get_subject(self._peer)
        displaced = self._limits.table.put(self, address, ConnectionStage.HEAD)
        self._enter(ConnectionStage.HEAD, HEAD_TIMEOUT_S)
        if displaced is not None:
            displaced.close_for_new_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.table.remove(self)
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; discard them if a request was rejected."""
        if self._is_lingering:
            return
        self._is_new = False
        super().data_received(data)
        self._update_stage()

    def pause_writing(self) -> None:
        """Pause writing and start the write deadline."""
        super().pause_writing()
        self._update_stage()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_stage()

    # uvicorn

    def on_response_complete(self) -> None:
        """Wait for the next request, which may already be buffered."""
        super().on_response_complete()
        self._unset_keepalive_if_required()  # the IDLE deadline replaces uvicorn's keep-alive timer
        self._update_stage()

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP with the status that h11 suggests."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(status, "request: not valid HTTP/1.1")

    # stages

    def _update_stage(self) -> None:
        if self._is_lingering:
            return
        stage = self._find_stage()
        if (stage, self.cycle) != (self._stage, self._staged_cycle):
            self._enter(stage, self._limits.deadlines.get(stage))

    def _find_stage(self) -> ConnectionStage:
        if self.flow.write_paused or self.transport.is_closing():
            return ConnectionStage.WRITE
        if self.conn.their_state is h11.SEND_BODY:
            return ConnectionStage.BODY
        if self.cycle is not None and not self.cycle.response_complete:
            return ConnectionStage.BUSY
        has_begun = self.cycle is None or bool(self.conn.trailing_data[0])
        return ConnectionStage.HEAD if has_begun else ConnectionStage.IDLE

    def _enter(self, stage: ConnectionStage, seconds: float | None) -> None:
        self._cancel_deadline()
        self._stage, self._staged_cycle = stage, self.cycle
        self._limits.table.move(self, stage)
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self._limits.add_expired, self)

    def _cancel_deadline(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._limits.remove_expired(self)

    def expire(self) -> None:
        """Respond with 408 or close, because a deadline has passed; see the module docstring."""
        if not self._is_lingering:
            _count_closed(f"{self._stage.name.lower()}_timeout")
        if self._stage is ConnectionStage.HEAD and not self._is_new:
            self._refuse(408, "request: the headers did not arrive in time")
        elif self._stage is ConnectionStage.BODY:
            self._refuse(408, "body: did not arrive in time")
        else:
            self._close()

    def close_for_new_connection(self) -> None:
        """Close immediately, to make room for a new connection."""
        _count_closed("displaced")
        self._limits.table.remove(self)
        if self._stage is ConnectionStage.IDLE:
            self._close()
        else:
            self.transport.abort()

    def _close(self) -> None:
        if self.transport.get_write_buffer_size():  # the peer has not read all of the response
            self.transport.abort()
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Send an error and close; if the application has begun its response, only close."""
        is_early = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # the application's task ends without a response
            self.cycle.message_event.set()
        if not is_early:
            self._close()
            return
        self.transport.write(_encode_response(status, detail))
        self._is_lingering = True
        self._enter(ConnectionStage.WRITE, LINGER_S)
        self.flow.resume_reading()
        self.transport.write_eof()

    # the application

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"] in PROBES:
            await self._inner(scope, receive, send)
            return
        limits, client = self._limits, self._find_forwarded_client(scope)
        if limits.table.is_full:
            response = _make_busy_response(503, "overloaded", "too many concurrent requests")
            await response(scope, receive, send)
        elif self._is_share_used_up(client):
            metrics.RATE_LIMITED.labels("http_connections").inc()
            reason = "too many concurrent requests from this address"
            response = _make_busy_response(429, "rate_limited", reason)
            await response(scope, receive, send)
        else:
            await self._run(client, scope, receive, send)

    def _find_forwarded_client(self, scope: Scope) -> str | None:
        """Return the client's address behind a trusted proxy; None if the peer is not a proxy."""
        trusted = self._limits.trusted
        if not is_in(self._peer, trusted):
            return None
        values = [v.decode("latin-1") for n, v in scope["headers"] if n == b"x-forwarded-for"]
        return get_subject(resolve_client_address(self._peer, values, trusted))

    def _is_share_used_up(self, forwarded: str | None) -> bool:
        limits = self._limits
        if forwarded is None:
            return limits.table.is_share_used_up(get_subject(self._peer))
        return limits.forwarded[forwarded] >= CONNECTIONS_PER_ADDRESS_MAX

    async def _run(self, forwarded: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        in_progress = self._limits.forwarded
        if forwarded is None:
            await self._inner(scope, _check_body(receive), send)
            return
        in_progress[forwarded] += 1
        try:
            await self._inner(scope, _check_body(receive), send)
        finally:
            in_progress[forwarded] -= 1
            if not in_progress[forwarded]:
                del in_progress[forwarded]


def _check_body(receive: Receive) -> Receive:
    """Wrap `receive` to reject truncated bodies; the framework would respond with 500."""
    is_whole = False

    async def receive_checked() -> Any:
        nonlocal is_whole
        message = await receive()
        if message["type"] != _DISCONNECT:
            is_whole = not message.get("more_body", False)
        elif not is_whole:
            raise BadRequest("body: the connection closed before the body was complete")
        return message

    return receive_checked


def _make_busy_response(status: int, code: str, detail: str) -> ASGIResponse:
    return ASGIResponse(
        body=encode_problem(status, code, detail, RETRY_S * 1000),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={"retry-after": str(RETRY_S), "connection": "close", "cache-control": "no-store"},
    )


def _encode_response(status: int, detail: str) -> bytes:
    body = encode_problem(status, "bad_request", detail)
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _count_closed(reason: str) -> None:
    metrics.HTTP_CLOSED.labels(reason).inc()
