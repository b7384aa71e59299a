"""A gateway process: its signals, its port, its metrics, and the server in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal

from chatserver.app import open_gateway_parts
from chatserver.config import Settings
from chatserver.domain.clock import SystemClock
from chatserver.errors import ConfigError
from chatserver.gateway.listener import open_socket
from chatserver.gateway.server import GatewayServer, end_all
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import arm_failpoint

METRICS_RETRY_S = 0.5


def calm_collector() -> None:
    """Let the garbage collector look less often: a message leaves no cycles, sessions live long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def run_gateway(settings: Settings, ready_fd: int | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    `ready_fd`: a supervisor's pipe, told when this process serves; it shares the port with others.

    Raises:
        ConfigError: a setting does not allow it to start.
        Unavailable: there is no Redis; the message names the address and how to start one.
    """
    arm_failpoint()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = GatewayServer(settings)
    sock = open_socket(settings.gateway.host, settings.gateway.port, is_shared=ready_fd is not None)

    def leave() -> None:
        server.leave_to_siblings()
        stop.set()

    def tell_ready() -> None:
        if ready_fd is not None:
            os.write(ready_fd, b"1")
            os.close(ready_fd)

    helpers: set[asyncio.Task[None]] = set()
    if ready_fd is None:
        metrics.serve_metrics(settings.telemetry.metrics_port)
    else:
        loop.add_signal_handler(signal.SIGUSR1, leave)
        helpers.add(asyncio.create_task(_serve_metrics_soon(settings.telemetry.metrics_port)))
    with contextlib.closing(sock):
        async with open_gateway_parts(
            settings, server.gateway, SystemClock(), server.make_router
        ) as parts:
            server.use(parts)
            calm_collector()
            await server.run(sock, stop, tell_ready)
    await end_all(helpers)


async def _serve_metrics_soon(port: int | None) -> None:
    """Serve metrics as soon as the process that this one replaces has left their port."""
    while True:
        try:
            metrics.serve_metrics(port)
        except ConfigError:
            await asyncio.sleep(METRICS_RETRY_S)
        else:
            return
