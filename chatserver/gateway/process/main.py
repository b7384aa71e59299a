"""Entry point of a gateway process: OS signals, port, metrics and server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Callable

from chatserver.config import Settings, Telemetry
from chatserver.errors import ConfigError
from chatserver.gateway.process.draining import StopRequest
from chatserver.gateway.process.server import GatewayServer, cancel_all
from chatserver.gateway.process.wiring import open_gateway
from chatserver.gateway.transport.listener import open_socket
from chatserver.process_runtime import raise_file_limit, tune_garbage_collector
from chatserver.telemetry.exposure_warnings import warn_of_public_metrics, warn_of_trusted_proxies
from chatserver.telemetry.failpoints import arm_failpoint
from chatserver.telemetry.probes import serve_probes
from chatserver.telemetry.tracing import open_tracing

PROBES_RETRY_S = 0.5


async def run_gateway(settings: Settings, ready_fd: int | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    `ready_fd` is the supervisor's readiness pipe. If it is set, this process shares the port with
    its siblings.

    Raises:
        ConfigError: a setting prevents the start.
        Unavailable: Redis is unavailable; the message contains its address and how to start it.
    """
    with open_tracing(settings.telemetry, "gateway"):
        await _run_gateway(settings, ready_fd)


async def _run_gateway(settings: Settings, ready_fd: int | None) -> None:
    arm_failpoint()
    stop = StopRequest()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    raise_file_limit()
    sock = open_socket(settings.gateway.host, settings.gateway.port, is_shared=ready_fd is not None)
    server: GatewayServer | None = None

    def find_problem() -> str:
        return "starting" if server is None else server.find_problem()

    def report_ready() -> None:
        if ready_fd is not None:
            os.write(ready_fd, b"1")
            os.close(ready_fd)

    tasks: set[asyncio.Task[None]] = set()
    if ready_fd is None:
        _serve_probes(settings.telemetry, find_problem)
    else:
        loop.add_signal_handler(signal.SIGUSR1, functools.partial(stop.set, releases_port=True))
        tasks.add(asyncio.create_task(_serve_probes_soon(settings.telemetry, find_problem)))
    with contextlib.closing(sock):
        async with open_gateway(settings) as server:
            tune_garbage_collector()
            warn_of_public_metrics(settings.telemetry.metrics_host, settings.telemetry.metrics_port)
            warn_of_trusted_proxies("GATEWAY", settings.gateway.trusted_proxies)
            await server.run(sock, stop, report_ready)
    await cancel_all(tasks)


def _serve_probes(settings: Telemetry, find_problem: Callable[[], str]) -> None:
    serve_probes(settings.metrics_host, settings.metrics_port, find_problem)


async def _serve_probes_soon(settings: Telemetry, find_problem: Callable[[], str]) -> None:
    """Serve health probes once the process that this one replaces has released the port."""
    while True:
        try:
            _serve_probes(settings, find_problem)
        except ConfigError:
            await asyncio.sleep(PROBES_RETRY_S)
        else:
            return
