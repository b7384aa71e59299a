"""The HTTP application: which routes there are, and how it is served."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from litestar import Litestar, Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from chatserver.api.accounts import accounts_routes
from chatserver.api.admin_chats import admin_chats_routes
from chatserver.api.admin_users import admin_users_routes
from chatserver.api.attachments import attachments_routes
from chatserver.api.bodies import fill_empty_body
from chatserver.api.chats import chats_routes
from chatserver.api.client_config import client_config_route
from chatserver.api.companions import companions_routes
from chatserver.api.companionsessions import companion_sessions_routes
from chatserver.api.demo_login import demo_login_route
from chatserver.api.devices import devices_routes
from chatserver.api.document import document_config, document_route
from chatserver.api.headers import CommonHeaders
from chatserver.api.health import health_routes
from chatserver.api.http_connection import HttpConnection, HttpLimits
from chatserver.api.idempotency import Idempotency, StoreAnswers
from chatserver.api.keeping import keeping_routes
from chatserver.api.me import me_routes
from chatserver.api.message_lists import message_lists_routes
from chatserver.api.messages import messages_routes
from chatserver.api.moderation import moderation_routes
from chatserver.api.operations import operations_routes
from chatserver.api.pages import WEB_FOLDER, page_routes, read_page_files
from chatserver.api.parts import ApiParts, open_api_parts
from chatserver.api.presence import presence_routes
from chatserver.api.privacy import privacy_routes
from chatserver.api.problems import EXCEPTION_HANDLERS
from chatserver.api.push import push_routes
from chatserver.api.queries import check_query
from chatserver.api.security import Guard, check_rules, dependencies
from chatserver.api.social_people import social_people_routes
from chatserver.api.social_posts import social_posts_routes
from chatserver.api.users import users_routes
from chatserver.config import Api, Settings
from chatserver.domain.addresses import parse_networks
from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import ChatError, ConfigError
from chatserver.hot.figures import BacklogLook, FigureLog
from chatserver.processes import raise_file_limit, tune_garbage_collector
from chatserver.service.fair_slots import FairSlots
from chatserver.service.figures import Publisher, Who
from chatserver.telemetry.looplag import watch_loop_lag
from chatserver.telemetry.probes import serve_probes
from chatserver.telemetry.tracing import open_tracing

REQUESTS_MAX = 512  # of users, answered at once
REQUESTS_OF_USER_MAX = 8
WAITING_OF_USER_MAX = 64
DRAIN_S = 5
FILES_RESERVED = 256  # for the stores, and for connections that are being closed

# One module per noun: each makes its routes from the parts.
NOUNS: Sequence[Callable[[ApiParts], list[HTTPRouteHandler]]] = (
    accounts_routes,
    admin_chats_routes,
    admin_users_routes,
    devices_routes,
    keeping_routes,
    me_routes,
    attachments_routes,
    chats_routes,
    companions_routes,
    companion_sessions_routes,
    messages_routes,
    message_lists_routes,
    moderation_routes,
    operations_routes,
    presence_routes,
    privacy_routes,
    push_routes,
    social_people_routes,
    social_posts_routes,
    users_routes,
)

log = structlog.get_logger()


def create_app(
    settings: Settings, clock: Clock, parts: ApiParts, web_folder: Path = WEB_FOLDER
) -> ASGIApp:
    """Return the application of these settings.

    Raises:
        ConfigError: a route does not say whom it is for.
    """
    app = create_litestar(settings, clock, parts, web_folder)
    return CommonHeaders(StoreAnswers(app, parts.answers), settings.api, settings.cold.client_urls)


def create_litestar(
    settings: Settings, clock: Clock, parts: ApiParts, web_folder: Path = WEB_FOLDER
) -> Litestar:
    """Return the routes and what is common to them; see `create_app`."""
    routes = [
        *health_routes(parts),
        *page_routes(read_page_files(web_folder)),
        document_route(),
        client_config_route(settings),
        *(route for make in NOUNS for route in make(parts)),
    ]
    if settings.api.demo_users:
        routes.append(demo_login_route(settings.api, parts.tokens))
    check_rules(routes)
    trusted = parse_networks(settings.api.trusted_proxies)
    idempotency = Idempotency(parts.answers)
    slots = FairSlots(REQUESTS_MAX, REQUESTS_OF_USER_MAX, WAITING_OF_USER_MAX, "requests")

    async def before(request: Request[Any, Any, Any]) -> Response[bytes] | None:
        check_query(request)
        await fill_empty_body(request)
        return await idempotency.before(request)

    return Litestar(
        routes,
        guards=[Guard(parts.authenticator, parts.limits, trusted)],
        before_request=before,
        dependencies=dependencies(parts.arrivals, slots),
        exception_handlers=EXCEPTION_HANDLERS,
        logging_config=None,
        openapi_config=document_config(),
        request_max_body_size=settings.chats.request_bytes_max,
    )


class _Server(uvicorn.Server):
    """Ends on SIGTERM and SIGINT with a return; uvicorn's own handlers raise the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def run_api(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then let requests in flight end.

    Raises:
        ConfigError: the address cannot be listened on, or there is no secret.
        Unavailable: there is no Redis.
    """
    clock = SystemClock()
    with open_tracing(settings.telemetry, "api"):
        await _run_api(settings, clock)
    log.info("api.stopped")


async def _run_api(settings: Settings, clock: Clock) -> None:
    api = settings.api
    async with open_api_parts(settings, clock) as parts:
        app = create_app(settings, clock, parts)
        serve_probes(settings.telemetry.metrics_host, settings.telemetry.metrics_port)
        with listen(api.host, api.port) as listener:
            tune_garbage_collector()
            log.info("api.ready", address=f"{api.host}:{listener.getsockname()[1]}")
            warn_of_open_registration(settings)
            look = BacklogLook(parts.hot, clock)

            async def find_backlog() -> dict[str, Any]:
                return {"backlog": await look.look()}

            figures = Publisher(Who("api"), FigureLog(parts.hot), clock, find_backlog)
            helpers = [
                asyncio.create_task(figures.run(), name="figures"),
                asyncio.create_task(watch_loop_lag(clock), name="loop-lag"),
                asyncio.create_task(parts.limits.run(), name="limits"),
                asyncio.create_task(parts.stored.watch(parts.log), name="stored"),
            ]
            try:
                await _Server(_uvicorn_config(app, api)).serve(sockets=[listener])
                await finish(parts)
            finally:
                for helper in helpers:
                    helper.cancel()


def warn_of_open_registration(settings: Settings) -> None:
    """Say at each start that strangers may come in; a development server is alone with its user."""
    auth = settings.auth
    if auth.local_accounts and auth.registration == "open" and not settings.api.demo_users:
        log.warning(
            "api.registration_is_open",
            meaning="whoever reaches this address can make an account",
            mend="CHAT_AUTH_REGISTRATION=closed, if that is not meant",
        )


async def finish(parts: ApiParts) -> None:
    """Deliver what was taken, and put back what limits lent; what is not done is done by others."""
    with contextlib.suppress(TimeoutError, ChatError):
        async with asyncio.timeout(DRAIN_S):
            await parts.messaging.drain()
            await parts.limits.close()


def fit_connections(settings: Api, files: int) -> Api:
    """Return settings with no more connections than there are files for."""
    room = max(16, (files - FILES_RESERVED) * 8 // 9)  # the table takes an eighth more
    if room >= settings.connections_max:
        return settings
    log.warning("api.connections_reduced", connections_max=room, open_files=files)
    return settings.model_copy(update={"connections_max": room})


def _uvicorn_config(app: ASGIApp, settings: Api) -> uvicorn.Config:
    limits = HttpLimits(
        fit_connections(settings, raise_file_limit()), parse_networks(settings.trusted_proxies)
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
        ConfigError: the port is taken or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as exc:
        listener.close()
        raise ConfigError([f"api: cannot listen on {host}:{port}: {exc.strerror}"]) from exc
    return listener
