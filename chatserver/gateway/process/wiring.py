"""Wiring of a gateway process: builds the components that serve connections. Contains no logic.

This is the part of the container that belongs to the gateway's layer, which
`chatserver.container` cannot import. Each component gets all that it uses from its constructor. It
is created on first use, so the order follows from the dependencies.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import cached_property

from chatserver.config import Settings, check_secret
from chatserver.container.gateway import GatewayContainer
from chatserver.domain.client_addresses import parse_networks
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import GatewayId, new_id
from chatserver.gateway.delivery.end_of_tick_writes import TickWrites
from chatserver.gateway.delivery.event_dispatcher import EventDispatcher
from chatserver.gateway.delivery.gateway_stream_echo import GatewayStreamEcho
from chatserver.gateway.delivery.large_chat_delivery import LargeChatDelivery
from chatserver.gateway.delivery.stream_record_handler import StreamRecordHandler
from chatserver.gateway.process.server import GatewayServer
from chatserver.gateway.session.local_sessions import LocalSessions
from chatserver.gateway.session.request_dispatcher import RequestDispatcher
from chatserver.gateway.session.session_auth import TokenExpiry
from chatserver.gateway.session.session_refresher import SessionRefresher
from chatserver.gateway.session.session_registration import SessionRegistration
from chatserver.gateway.session.shared_session_context import (
    HotPathCounters,
    SessionContext,
    SessionTasks,
)
from chatserver.gateway.transport.admission_control import Admission
from chatserver.gateway.transport.connection import Connection
from chatserver.gateway.transport.slow_client_stats import SlowClients
from chatserver.hot.redis.factory import open_hot
from chatserver.service.messaging.stored_waits import STORED_TIMEOUT_S, StoredWaits
from chatserver.telemetry.tracing import tracer


class GatewayProcess(GatewayContainer):
    """All components of a gateway process."""

    @cached_property
    def local_sessions(self) -> LocalSessions:
        return LocalSessions()

    @cached_property
    def session_tasks(self) -> SessionTasks:
        return SessionTasks()

    @cached_property
    def counters(self) -> HotPathCounters:
        return HotPathCounters()

    @cached_property
    def slow_connections(self) -> set[Connection]:
        return set()

    @cached_property
    def stored_waits(self) -> StoredWaits:
        return StoredWaits(STORED_TIMEOUT_S)

    @cached_property
    def large_chat_delivery(self) -> LargeChatDelivery:
        return LargeChatDelivery(
            subscriptions=self.large_chat_subscriptions,
            chat_log=self.large_chat_log,
            open_chat=self.audiences.get,
            list_sessions=self.local_sessions.list_sessions,
            spawn=self.session_tasks.spawn,
            device_epoch=lambda: self.hot.whole_epoch,
            record_new_event=self.counters.record_new_event,
        )

    @cached_property
    def device_delivery(self) -> EventDispatcher:
        return EventDispatcher(
            gateway=self.gateway,
            registry=self.local_sessions,
            gateway_stream_writer=self.gateway_stream_writer,
            channels=self.large_chat_delivery,
            counters=self.counters,
        )

    @cached_property
    def session_registration(self) -> SessionRegistration:
        return SessionRegistration(self.gateway, self.local_sessions, self)

    @cached_property
    def session_refresher(self) -> SessionRefresher:
        return SessionRefresher(
            container=self,
            registry=self.local_sessions,
            directory=self.session_registration,
            channels=self.large_chat_delivery,
            tasks=self.session_tasks,
            interval_s=self.settings.gateway.online_ttl_s / 3,
        )

    @cached_property
    def gateway_stream_echo(self) -> GatewayStreamEcho:
        return GatewayStreamEcho(self.gateway_stream, self.clock)

    @cached_property
    def stream_record_handler(self) -> StreamRecordHandler:
        return StreamRecordHandler(
            dispatcher=self.device_delivery,
            channels=self.large_chat_delivery,
            registry=self.local_sessions,
            gateway_stream_writer=self.gateway_stream_writer,
            stored_waits=self.stored_waits,
            warm=self.warm,
            on_presence=self.presence_subscriptions.handle_change,
            on_replaced=self.session_registration.close_replaced,
            on_revoked=self.session_registration.apply_revocation,
            on_echo=self.gateway_stream_echo.record_arrival,
        )

    @cached_property
    def admission(self) -> Admission:
        return Admission(self.limits, parse_networks(self.settings.gateway.trusted_proxies))

    @cached_property
    def session_context(self) -> SessionContext:
        return SessionContext(
            settings=self.settings.gateway,
            all_settings=self.settings,
            container=self,
            requests=RequestDispatcher(self),
            channels=self.large_chat_delivery,
            counters=self.counters,
            slow_clients=SlowClients(self.slow_connections, self.clock),
            stored_waits=self.stored_waits,
            token_expiry=TokenExpiry(),
            tasks=self.session_tasks,
        )

    @cached_property
    def server(self) -> GatewayServer:
        writes = TickWrites(self.counters, self.clock, self.gateway, tracer())
        return GatewayServer(
            container=self,
            context=self.session_context,
            registry=self.local_sessions,
            directory=self.session_registration,
            refresher=self.session_refresher,
            records=self.stream_record_handler,
            echo=self.gateway_stream_echo,
            admission=self.admission,
            slow=self.slow_connections,
            flush_soon=writes.flush_soon,
        )

    def register_callbacks(self) -> None:
        """Register the callbacks for changes in Redis."""
        self.gateway_stream_writer.on_dead_gateway.append(self.session_refresher.prune_soon)
        self.hot.on_reload.append(self.session_refresher.refresh_soon)
        self.hot.on_blocked.append(self.server.close_blocked)
        for callback in (
            self.stored_waits.expire_all,
            self.device_delivery.handle_epoch_change,
            self.large_chat_delivery.handle_epoch_change,
        ):
            self.hot.on_epoch.append(callback)


@contextlib.asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[GatewayServer]:
    """Connect to Redis and yield the server of a new gateway.

    Raises:
        ConfigError: a setting prevents startup.
        Unavailable: Redis is unavailable.
    """
    check_secret(settings)
    async with open_hot(settings.redis) as hot:
        process = GatewayProcess(
            settings=settings, clock=SystemClock(), hot=hot, gateway=GatewayId(new_id().lower())
        )
        process.create_all()
        process.register_callbacks()
        yield process.server
