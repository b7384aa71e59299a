"""Gateway server: listener, sessions, periodic tasks and shutdown.

- Start: connect to Redis, create the gateway's stream, listen.
- Run: a heartbeat wheel pings each connection once per interval. A periodic refresh renews presence
  and compares each device's position with the inbox to detect lost events. Records from other
  processes arrive in the gateway's stream.
- Stop (SIGTERM, SIGINT): refuse new connections, complete accepted requests, and send every session
  a `bye` with its own reconnect delay. The process exits within about `drain_s`. SIGUSR1 does the
  same, but first releases the port to the sibling processes
  (`chatserver.gateway.process.supervisor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Callable, Coroutine
from http import HTTPStatus

import structlog
from websockets.http11 import Request
from websockets.server import ServerProtocol

from chatserver import compiled
from chatserver.container.gateway import GatewayContainer
from chatserver.domain.client_addresses import get_subject
from chatserver.domain.connection_table import ConnectionStage, ConnectionTable
from chatserver.errors import ChatError
from chatserver.gateway.delivery.gateway_stream_echo import GatewayStreamEcho
from chatserver.gateway.delivery.stream_record_handler import StreamRecordHandler
from chatserver.gateway.process.draining import (
    DRAIN_RECONNECTS_PER_S,
    FAN_OUTS_S,
    REASON,
    REFUSALS_S,
    StopRequest,
    poll_until,
    send_byes,
)
from chatserver.gateway.session.command_handler import CommandHandler
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.session_refresher import SessionRefresher
from chatserver.gateway.session.session_registration import SessionRegistration
from chatserver.gateway.session.shared_session_context import SessionContext
from chatserver.gateway.transport.admission_control import (
    UNAUTHENTICATED_MAX,
    UNAUTHENTICATED_PER_ADDRESS_MAX,
    Admission,
)
from chatserver.gateway.transport.connection import GATEWAY_HEADER, Connection, Phase
from chatserver.gateway.transport.handshake import is_host_valid, is_origin_allowed
from chatserver.gateway.transport.heartbeat import HeartbeatWheel
from chatserver.gateway.transport.listener import Listener
from chatserver.operations.overview.hot import ProcessStatsLog
from chatserver.operations.overview.publisher import Publisher
from chatserver.protocol.error_codes import Close
from chatserver.request_targets import to_origin_form
from chatserver.telemetry import metrics
from chatserver.telemetry.loop_lag import watch_loop_lag

log = structlog.get_logger()

CANCEL_ATTEMPTS_MAX = 6
ORIGIN_LOG_S = 10.0  # shortest time between two log lines about refused origins


class GatewayServer:
    """The gateway's server: the `Host` of its connections, and the life cycle of the process."""

    def __init__(
        self,
        *,
        container: GatewayContainer,
        context: SessionContext,
        registry: LocalSessions,
        directory: SessionRegistration,
        refresher: SessionRefresher,
        records: StreamRecordHandler,
        echo: GatewayStreamEcho,
        admission: Admission,
        slow: set[Connection],
        flush_soon: Callable[[Connection], None],
    ) -> None:
        self.settings = context.settings
        self.gateway = container.gateway
        self.slow = slow
        self.flush_soon = flush_soon
        self._container = container
        self._context = context
        self._registry = registry
        self._directory = directory
        self._refresher = refresher
        self._records = records
        self._echo = echo
        self._admission = admission
        self._wheel = HeartbeatWheel(self.settings.ping_interval_s, self.settings.pong_timeout_s)
        self._connections: set[Connection] = set()
        # Connections without an accepted hello. At the limit, a new one displaces the oldest.
        self._unauthenticated: ConnectionTable[Connection] = ConnectionTable(
            UNAUTHENTICATED_MAX, UNAUTHENTICATED_PER_ADDRESS_MAX
        )
        self._is_draining = False
        self._refused_origins = 0  # since the last log line
        self._next_origin_log_s = 0.0

    # Host

    def get_address(self, peer: str, request: Request) -> str:
        return self._admission.get_address(peer, request)

    def respond_http(self, request: Request, protocol: ServerProtocol, address: str) -> bool:
        problem = self._check_request(request, address)
        if problem is None:
            return False
        response = protocol.reject(*problem)
        response.headers[GATEWAY_HEADER] = self.gateway
        if problem[0] == HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "1"
        elif problem[0] == HTTPStatus.TOO_MANY_REQUESTS:
            response.headers["Retry-After"] = str(self._admission.wait_s(address))
        protocol.send_response(response)
        return True

    def _check_request(self, request: Request, address: str) -> tuple[HTTPStatus, str] | None:
        """Return `(status, text)` for a health check or refusal; None for an allowed handshake."""
        if not is_host_valid(request):
            return HTTPStatus.BAD_REQUEST, "send one valid Host header\n"
        path = to_origin_form(request.path).partition("?")[0]
        if path == "/healthz":
            return HTTPStatus.OK, "ok\n"
        if path == "/readyz":
            if problem := self.find_problem():
                return HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n"
            return HTTPStatus.OK, "ok\n"
        if self._container.hot.blocked:
            return HTTPStatus.FORBIDDEN, f"{self._container.hot.blocked}\n"
        if self._is_draining or len(self._connections) > self.settings.connections_max:
            return HTTPStatus.SERVICE_UNAVAILABLE, "full or draining; try another gateway\n"
        if not is_origin_allowed(request, self.settings.origins):
            self._log_refused_origin(request)
            return HTTPStatus.FORBIDDEN, "this origin is not allowed\n"
        if self._admission.wait_s(address):
            metrics.RATE_LIMITED.labels("connections").inc()
            return HTTPStatus.TOO_MANY_REQUESTS, "too many connections from this address\n"
        return None

    def find_problem(self) -> str:
        """Return why this gateway is not ready, or an empty string if it is ready."""
        if self._is_draining:
            return "draining"
        if self._container.hot.blocked:
            return self._container.hot.blocked
        if not self._container.hot.is_up:
            return "Redis is unavailable"
        if self._container.hot.health.refusal:
            return self._container.hot.health.refusal
        return self._echo.find_problem()

    def _log_refused_origin(self, request: Request) -> None:
        """Log a refused origin, at most once in `ORIGIN_LOG_S`: browsers retry without end."""
        self._refused_origins += 1
        now_s = time.monotonic()
        if now_s < self._next_origin_log_s:
            return
        log.warning(
            "handshake.origin_refused",
            origin=", ".join(request.headers.get_all("Origin"))[:200],
            allowed=self.settings.origins,
            refused=self._refused_origins,
            fix="CHAT_GATEWAY_ORIGINS",
        )
        self._next_origin_log_s, self._refused_origins = now_s + ORIGIN_LOG_S, 0

    def accept(self) -> Connection:
        connection = Connection(self)
        self._connections.add(connection)
        return connection

    def handle_connect(self, connection: Connection) -> None:
        """Count the unauthenticated socket, in total and per address (except trusted proxies)."""
        peer = connection.peer
        address = None if self._admission.is_trusted(peer) else get_subject(peer)
        self._count_unauthenticated(connection, address, ConnectionStage.HEAD)

    def _count_unauthenticated(
        self, connection: Connection, address: str | None, stage: ConnectionStage
    ) -> None:
        displaced = self._unauthenticated.put(connection, address, stage)
        if displaced is not None:
            self._unauthenticated.remove(displaced)
            metrics.RATE_LIMITED.labels("unauthenticated").inc()
            displaced.abort()

    def create_receiver(self, connection: Connection) -> CommandHandler:
        """Create the session for a connection whose handshake is complete."""
        self._count_unauthenticated(connection, get_subject(connection.peer), ConnectionStage.BODY)
        self._wheel.add(connection)
        handler = CommandHandler(
            context=self._context,
            connection=connection,
            directory=self._directory,
            admission=self._admission,
            on_authenticated=self._unauthenticated.remove,
            on_end=self._handle_end,
        )
        self._admission.charge(connection.peer, handler.session.close)
        return handler

    def remove_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._unauthenticated.remove(connection)
        self._wheel.remove(connection)
        metrics.CLOSES.labels(metrics.close_label(connection.close_code)).inc()

    # sessions

    def _handle_end(self, session: Session) -> None:
        if self._directory.unregister(session):
            self._refresher.remove_presence_soon(session.user)

    def close_blocked(self, reason: str) -> None:
        """Close all connections of a blocked tenant; do nothing if `reason` is empty."""
        if not reason:
            return
        for session in list(self._registry):
            session.close(Close.BLOCKED, reason)
        for connection in list(self._connections):
            if connection.phase is Phase.OPEN:
                connection.close(Close.BLOCKED, reason)

    # lifecycle

    async def run(
        self,
        sock: socket.socket,
        stop: StopRequest,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until `stop` is set, then drain."""
        container, context = self._container, self._context
        await container.gateway_stream.renew()
        await container.presence_states.extend_expiry()
        listener = Listener(sock, self.accept)
        listener.open()
        stats = Publisher(
            kind="gateway",
            stats_log=ProcessStatsLog(container.hot),
            clock=container.clock,
            find_more=context.slow_clients.drain_stats,
        )
        coroutines: dict[str, Coroutine[object, object, None]] = {
            "process-stats": stats.run(),
            "heartbeat": self._run_heartbeat(),
            "gateway-stream-echo": self._echo.run(),
            "refresh": self._refresher.run(),
            "gateway-stream": self._read_stream(),
            "attendance": container.user_presence.run(self._directory.publish_presence),
            "limits": container.limits.run(),
            "host-keys": container.host_keys.run(),
            "stored": context.stored_waits.run(container.chat_log),
            "loop-lag": watch_loop_lag(container.clock),
        }
        periodic = [asyncio.create_task(work, name=name) for name, work in coroutines.items()]
        log.info(
            "gateway.ready",
            gateway=self.gateway,
            port=listener.port,
            pid=os.getpid(),
            build=compiled.describe(),
        )
        on_ready()
        try:
            await stop.wait()
            log.info("gateway.draining", sessions=self._registry.count)
            self._is_draining = True
            await self._drain(listener, is_port_released=stop.releases_port)
        finally:
            await cancel_all({*periodic, *context.tasks.running})
            await listener.close()
            log.info("gateway.stopped", gateway=self.gateway)

    async def _run_heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._wheel.tick_s)
            self._publish_counters()
            self._context.token_expiry.close_expired(self._container.clock.time())
            due, overdue = self._wheel.advance()
            for connection in overdue:
                log.info("connection.pong_missed", peer=connection.peer)
                connection.close(Close.NO_PONG, "no pong received in time")
            for connection in due:
                connection.ping()

    async def _read_stream(self) -> None:
        stream = self._container.gateway_stream
        async with contextlib.aclosing(stream.iter_records()) as batches:
            async for records in batches:
                if records is None:
                    await self._refresher.refresh()
                    continue
                for record in records:
                    self._records.handle(record)

    def _publish_counters(self) -> None:
        counters = self._context.counters
        metrics.CONNECTIONS.set(len(self._connections))
        metrics.SESSIONS.set(self._registry.count)
        metrics.SLOW_CONNECTIONS.set(len(self.slow))
        metrics.SEND_QUEUE_BYTES.set(sum(connection.queued_bytes for connection in self.slow))
        metrics.PUSHES.inc(counters.pushed)
        metrics.PUSH_BYTES.inc(counters.written_bytes)
        metrics.ACKS.labels("hot").inc(counters.acked - counters.stored)
        metrics.ACKS.labels("stored").inc(counters.stored)
        metrics.SENDS.labels("ok").inc(counters.acked - counters.dups)
        metrics.SENDS.labels("dup").inc(counters.dups)
        for code, count in counters.refused.items():
            metrics.SENDS.labels(code).inc(count)
        counters.reset()

    # shutdown

    async def _drain(self, listener: Listener, *, is_port_released: bool) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings
        deadline = loop.time() + settings.drain_s
        if is_port_released:
            await listener.close()
        rng = random.Random()  # noqa: S311  # for jitter, not for security
        await send_byes(self._registry, settings.drain_s / 2, DRAIN_RECONNECTS_PER_S, rng)
        await poll_until(self._has_closed_all, deadline - loop.time())
        await listener.close()
        # Wait until the last accepted connections have received their refusal.
        await poll_until(lambda: not self._connections, REFUSALS_S)
        for connection in list(self._connections):
            connection.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(FAN_OUTS_S, deadline - loop.time())):
                await self._container.messaging.drain()
        with contextlib.suppress(ChatError):
            await self._container.presence.set_offline(self._registry.list_users())
            grace_s = self._context.all_settings.presence.offline_grace_s
            await self._container.presence_states.leave(grace_s)
            await self._container.limits.close()
            await self._container.gateway_stream.remove()

    def _has_closed_all(self) -> bool:
        """Close connections that opened during the drain; return True once all are closed."""
        phases = {connection.phase for connection in self._connections}
        if Phase.OPEN in phases:
            for connection in list(self._connections):
                if connection.phase is Phase.OPEN:
                    connection.close(Close.SHUTDOWN, REASON)
        return not phases & {Phase.OPEN, Phase.CLOSING}


async def cancel_all(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks until they end. A library may suppress the first cancellation."""
    for _ in range(CANCEL_ATTEMPTS_MAX):
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=0.5)
