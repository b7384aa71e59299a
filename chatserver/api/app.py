"""HTTP application: assembly of the routes, and the server process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import structlog
import uvicorn
from litestar import Litestar, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from chatserver.api.authentication import make_authentication
from chatserver.api.authorization import Guard, ReleaseSlots, check_rules, dependencies
from chatserver.api.blocked_tenant import BlockedTenant
from chatserver.api.declared_routes import build_declared_routes
from chatserver.api.http_connection import HttpConnection, HttpLimits
from chatserver.api.idempotency import Idempotency, StoreResponses
from chatserver.api.openapi import document_config, document_route, prepare_document
from chatserver.api.paging import make_page_provider
from chatserver.api.problems import EXCEPTION_HANDLERS
from chatserver.api.query_parameters import check_query
from chatserver.api.request_bodies import fill_empty_body
from chatserver.api.request_forms import RequestForms
from chatserver.api.request_limits import REQUESTS_MAX, REQUESTS_OF_USER_MAX, WAITING_OF_USER_MAX
from chatserver.api.response_headers import CommonHeaders
from chatserver.api.routes.admin_chats import build_admin_chats_routes
from chatserver.api.routes.admin_users import build_admin_users_routes
from chatserver.api.routes.chats import build_chats_routes
from chatserver.api.routes.client_config import build_client_config_route
from chatserver.api.routes.health import build_health_routes
from chatserver.api.routes.message_lists import build_message_lists_routes
from chatserver.api.routes.messages import build_messages_routes
from chatserver.api.routes.moderation import build_moderation_routes
from chatserver.api.routes.presence import build_presence_routes
from chatserver.api.routes.retention_and_legal_holds import build_retention_routes
from chatserver.api.routes.static_files import (
    build_client_routes,
    build_not_found_routes,
    build_reference_routes,
)
from chatserver.config import Api, Settings
from chatserver.connection_acceptor import Acceptor
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.domain.client_addresses import parse_networks
from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import ChatError, ConfigError
from chatserver.features.registry import list_features, load
from chatserver.operations.overview.hot import BacklogStats, ProcessStatsLog
from chatserver.operations.overview.publisher import Publisher
from chatserver.operations.overview.routes import build_operations_routes
from chatserver.process_runtime import raise_file_limit, tune_garbage_collector
from chatserver.requests.registry import list_operations
from chatserver.service.fair_semaphore import FairSemaphore
from chatserver.telemetry.exposure_warnings import warn_of_public_metrics, warn_of_trusted_proxies
from chatserver.telemetry.loop_lag import watch_loop_lag
from chatserver.telemetry.probes import serve_probes
from chatserver.telemetry.tracing import open_tracing

DRAIN_S = 5
FILES_RESERVED = 256  # file descriptors left for data stores and for connections being closed

RoutesBuilder = Callable[[StorageContainer], list[HTTPRouteHandler]]

CORE_ROUTES: Sequence[RoutesBuilder] = (
    build_admin_chats_routes,
    build_admin_users_routes,
    build_retention_routes,
    build_chats_routes,
    build_messages_routes,
    build_message_lists_routes,
    build_moderation_routes,
    build_operations_routes,
    build_presence_routes,
)

log = structlog.get_logger()


def create_app(settings: Settings, clock: Clock, container: StorageContainer) -> ASGIApp:
    """Return the ASGI application for these settings.

    Raises:
        ConfigError: a route has no authorization rule.
    """
    list_operations()  # import all declarations before the first request
    litestar = create_litestar(settings, clock, container)
    app: ASGIApp = StoreResponses(ReleaseSlots(litestar), container.idempotent_answers)
    for feature in list_features():
        if feature.middleware:
            app = load(feature.middleware)(app, container)
    app = BlockedTenant(app, container.hot)
    return RequestForms(CommonHeaders(app, settings.api, settings.cold.client_urls))


def create_litestar(settings: Settings, clock: Clock, container: StorageContainer) -> Litestar:
    """Return the Litestar application, without the middleware that `create_app` adds."""
    routes = [
        *build_health_routes(container),
        *build_client_routes(),
        *build_reference_routes(),
        *build_not_found_routes(),
        document_route(),
        build_client_config_route(settings),
        *build_declared_routes(container),
        *(route for build in _list_route_builders() for route in build(container)),
    ]
    check_rules(routes)
    trusted = parse_networks(settings.api.trusted_proxies)
    idempotency = Idempotency(container.idempotent_answers)
    slots = FairSemaphore(
        total_max=REQUESTS_MAX,
        user_max=REQUESTS_OF_USER_MAX,
        waiting_max=WAITING_OF_USER_MAX,
        requests="requests",
    )

    async def before(request: Request[Any, Any, Any]) -> Response[bytes] | None:
        check_query(request)
        await fill_empty_body(request)
        return await idempotency.before(request)

    return Litestar(
        routes,
        guards=[Guard(make_authentication(container), container.limits, trusted)],
        before_request=before,
        dependencies={
            **dependencies(container.user_loader, slots),
            "page": make_page_provider(container.cursors),
        },
        exception_handlers=EXCEPTION_HANDLERS,
        logging_config=None,
        on_startup=[prepare_document],
        openapi_config=document_config(),
        request_max_body_size=settings.chats.request_bytes_max,
    )


def _list_route_builders() -> list[RoutesBuilder]:
    added = [load(path) for feature in list_features() for path in feature.routes]
    return [*CORE_ROUTES, *added]


class _Server(uvicorn.Server):
    """Uvicorn server that returns after SIGTERM or SIGINT instead of raising the signal again."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._exit = asyncio.Event()
        self._listener = listener
        self._acceptor = Acceptor(listener, self._make_connection)

    def _make_connection(self) -> asyncio.Protocol:
        # uvicorn declares this attribute as a class, but here it is a `functools.partial`.
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._acceptor.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._acceptor.close()
        await super().shutdown([self._listener])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def main_loop(self) -> None:
        """Update the ``date`` header once per second; uvicorn's loop runs ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._exit.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._exit.set()


async def run_api(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in flight.

    Raises:
        ConfigError: the server cannot listen on the address, or `auth.secret` is missing.
        Unavailable: Redis is not available.
    """
    clock = SystemClock()
    with open_tracing(settings.telemetry, "api"):
        await _run_api(settings, clock)
    log.info("api.stopped")


async def _run_api(settings: Settings, clock: Clock) -> None:
    api = settings.api
    async with open_storage_container(role="api", settings=settings, clock=clock) as container:
        app = create_app(settings, clock, container)
        serve_probes(settings.telemetry.metrics_host, settings.telemetry.metrics_port)
        with listen(api.host, api.port) as listener:
            tune_garbage_collector()
            log.info("api.ready", address=f"{api.host}:{listener.getsockname()[1]}")
            warn_of_open_registration(settings)
            warn_of_public_metrics(settings.telemetry.metrics_host, settings.telemetry.metrics_port)
            warn_of_trusted_proxies("API", api.trusted_proxies)
            backlog_stats = BacklogStats(container.hot, clock)

            async def find_backlog() -> dict[str, Any]:
                return {"backlog": await backlog_stats.measure()}

            stats = Publisher(
                kind="api",
                stats_log=ProcessStatsLog(container.hot),
                clock=clock,
                find_more=find_backlog,
            )
            tasks = [
                asyncio.create_task(stats.run(), name="stats"),
                asyncio.create_task(watch_loop_lag(clock), name="loop-lag"),
                asyncio.create_task(container.limits.run(), name="limits"),
                asyncio.create_task(container.stored_waits.run(container.chat_log), name="stored"),
            ]
            try:
                await _Server(_make_uvicorn_config(app, api), listener).serve()
                await finish(container)
            finally:
                for task in tasks:
                    task.cancel()


def warn_of_open_registration(settings: Settings) -> None:
    """Log a warning if anyone can register, except on a development server."""
    auth = settings.auth
    if auth.local_accounts and auth.registration == "open" and not settings.api.demo_users:
        log.warning("api.registration_open", fix="CHAT_AUTH_REGISTRATION=closed")


async def finish(container: StorageContainer) -> None:
    """Wait for fan-outs and return unused rate limit tokens to Redis, for at most `DRAIN_S`.

    Workers complete the fan-outs that have not finished by then.
    """
    with contextlib.suppress(TimeoutError, ChatError):
        async with asyncio.timeout(DRAIN_S):
            await container.messaging.drain()
            await container.limits.close()


def limit_connections(settings: Api, files: int) -> Api:
    """Return the settings, with `connections_max` lowered if there are too few file descriptors."""
    # The connection table can hold up to an eighth more connections than `connections_max`.
    room = max(16, (files - FILES_RESERVED) * 8 // 9)
    if room >= settings.connections_max:
        return settings
    log.warning("api.connections_reduced", connections_max=room, open_files=files)
    return settings.model_copy(update={"connections_max": room})


def _make_uvicorn_config(app: ASGIApp, settings: Api) -> uvicorn.Config:
    limits = HttpLimits(
        limit_connections(settings, raise_file_limit()), parse_networks(settings.trusted_proxies)
    )
    make_connection: Any = functools.partial(HttpConnection, limits=limits)
    return uvicorn.Config(
        app,
        http=make_connection,
        loop="none",
        lifespan="on",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=16_384,
        timeout_graceful_shutdown=DRAIN_S,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the port is in use, or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as exc:
        listener.close()
        raise ConfigError(f"api: cannot listen on {host}:{port}: {exc.strerror}") from exc
    return listener
