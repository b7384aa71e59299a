"""Runs workers in one process: starts them, restarts failed ones, and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from chatserver.config import Settings
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.cpu_priority import lower_process_priority
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import new_id
from chatserver.domain.jitter import add_jitter
from chatserver.errors import ChatError, ConfigError, Unavailable
from chatserver.features.registry import load
from chatserver.operations.overview.hot import ProcessStatsLog
from chatserver.operations.overview.publisher import Publisher
from chatserver.process_runtime import tune_garbage_collector
from chatserver.telemetry import metrics
from chatserver.telemetry.exposure_warnings import warn_of_public_metrics
from chatserver.telemetry.failpoints import arm_failpoint
from chatserver.telemetry.loop_lag import watch_loop_lag
from chatserver.telemetry.probes import serve_probes
from chatserver.telemetry.tracing import open_tracing
from workers.readiness import Readiness
from workers.registry import list_workers

log = structlog.get_logger()

RESTART_S_MAX = 1.0
STOP_S = 8.0

Runner = Callable[[StorageContainer, str], Awaitable[None]]


async def run_workers(settings: Settings, names: list[str]) -> None:
    """Run the named workers until SIGTERM or SIGINT.

    Raises:
        ConfigError: a setting is invalid, a worker is unknown, or credentials or tables are
            missing.
        Unavailable: Redis is unavailable at startup.
    """
    workers = list_workers()
    unknown = [name for name in names if name not in workers]
    if unknown:
        raise ConfigError(
            *(f"worker {name}: does not exist; see `chatserver worker --help`" for name in unknown)
        )
    lower_process_priority(min(workers[name].nice for name in names))
    for name in names:
        if check := workers[name].check:
            load(check)(settings)
    arm_failpoint()
    readiness, telemetry = Readiness(), settings.telemetry
    serve_probes(telemetry.metrics_host, telemetry.metrics_port, readiness.find_problem)
    warn_of_public_metrics(telemetry.metrics_host, telemetry.metrics_port)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with open_tracing(telemetry, "worker"):
        await serve_workers(settings, names, readiness, stop)


async def serve_workers(
    settings: Settings, names: list[str], readiness: Readiness, stop: asyncio.Event
) -> None:
    """Connect to the data stores and run the named workers until `stop` is set.

    Unlike `run_workers`, this uses nothing of the operating system process (the simulation runs
    many processes in one).
    """
    workers = list_workers()
    runners: dict[str, Runner] = {name: load(workers[name].run) for name in names}
    owner = f"{socket.gethostname()}-{os.getpid()}-{new_id()}"
    async with contextlib.AsyncExitStack() as stack:
        container = await stack.enter_async_context(
            open_storage_container(role="worker", settings=settings, clock=SystemClock())
        )
        with contextlib.suppress(Unavailable):  # DynamoDB may be down: the workers wait for it
            await container.check_tables()
        for name in names:
            if prepare := workers[name].prepare:
                await load(prepare)(container)
        tasks = [
            asyncio.create_task(
                _run_with_restarts(name, run, container, owner), name=f"worker-{name}"
            )
            for name, run in runners.items()
        ]
        tasks.append(asyncio.create_task(watch_loop_lag(container.clock), name="loop-lag"))
        tasks.append(asyncio.create_task(readiness.watch(container), name="readiness"))
        tasks.append(asyncio.create_task(_publish_stats(container, names), name="process-stats"))
        tune_garbage_collector()
        log.info("workers.ready", names=names)
        await stop.wait()
        log.info("workers.stopping")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=STOP_S)
    log.info("workers.stopped")


async def _publish_stats(container: StorageContainer, names: list[str]) -> None:
    async def find_chats() -> dict[str, Any]:
        return {"chats": container.busy_chats.drain()}

    has_most = len(names) > len(list_workers()) / 2 and "persist" in names
    await Publisher(
        kind="worker",
        does="all" if has_most else ", ".join(names),
        stats_log=ProcessStatsLog(container.hot),
        clock=container.clock,
        find_more=find_chats,
    ).run()


async def _run_with_restarts(
    name: str, run: Runner, container: StorageContainer, owner: str
) -> None:
    wait_s = 0.1
    while True:
        started = container.clock.monotonic()
        try:
            await run(container, owner)
        except ChatError as exc:
            log.warning("worker.failed", worker=name, error=exc.message)
        except Exception:
            log.exception("worker.crashed", worker=name)
        metrics.WORKER_RESTARTS.labels(name).inc()
        if container.clock.monotonic() - started > 30:
            wait_s = 0.1
        await asyncio.sleep(add_jitter(wait_s))
        wait_s = min(wait_s * 2, RESTART_S_MAX)
