"""Runs workers in one process: starts them, starts them again when they fail, stops them all."""

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
from chatserver.domain.ids import new_id
from chatserver.domain.jitter import jittered
from chatserver.errors import ChatError, ConfigError, Unavailable
from chatserver.hot.figures import FigureLog
from chatserver.processes import tune_garbage_collector
from chatserver.push.providers import check_providers
from chatserver.service.figures import Publisher, Who
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import arm_failpoint
from chatserver.telemetry.looplag import watch_loop_lag
from chatserver.telemetry.probes import serve_probes
from chatserver.telemetry.tracing import open_tracing
from workers.archive import run_archive
from workers.assistant import run_assistant
from workers.audit import run_audit
from workers.counters import run_counters
from workers.erasures import run_erasures
from workers.exports import run_exports
from workers.holds import run_holds
from workers.media import run_media
from workers.notify import run_notify
from workers.parts import WorkerParts, open_worker_parts
from workers.persist import run_persist
from workers.readiness import Readiness
from workers.repair import run_repair
from workers.rpc import RpcWorker
from workers.sweep import run_sweep
from workers.timeline import run_timeline
from workers.webhooks import run_webhooks

log = structlog.get_logger()

RESTART_S_MAX = 1.0
STOP_S = 8.0

Runner = Callable[[WorkerParts, str], Awaitable[None]]


async def _run_rpc(parts: WorkerParts, owner: str) -> None:
    await RpcWorker(parts, owner).run()


WORKERS: dict[str, Runner] = {
    "persist": run_persist,
    "repair": run_repair,
    "rpc": _run_rpc,
    "archive": run_archive,
    "notify": run_notify,
    "assistant": run_assistant,
    "media": run_media,
    "sweep": run_sweep,
    "holds": run_holds,
    "webhooks": run_webhooks,
    "exports": run_exports,
    "erasures": run_erasures,
    "counters": run_counters,
    "timeline": run_timeline,
    "audit": run_audit,
}


async def run_workers(settings: Settings, names: list[str]) -> None:
    """Run the named workers until SIGTERM or SIGINT; then let each finish its step.

    Raises:
        ConfigError: a setting or a name is wrong, or credentials or tables are missing.
        Unavailable: there is no Redis to start with.
    """
    unknown = [name for name in names if name not in WORKERS]
    if unknown:
        raise ConfigError([f"worker {name}: there is no such worker" for name in unknown])
    if "notify" in names:
        check_providers(settings.notify)
    arm_failpoint()
    readiness, telemetry = Readiness(), settings.telemetry
    serve_probes(telemetry.metrics_host, telemetry.metrics_port, readiness.find_trouble)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    owner = f"{socket.gethostname()}-{os.getpid()}-{new_id()}"
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(open_tracing(telemetry, "worker"))
        parts = await stack.enter_async_context(open_worker_parts(settings))
        with contextlib.suppress(Unavailable):  # DynamoDB may be down: the workers wait for it
            await parts.check_tables()
        tasks = [
            asyncio.create_task(_keep_running(name, parts, owner), name=f"worker-{name}")
            for name in names
        ]
        tasks.append(asyncio.create_task(watch_loop_lag(parts.clock), name="loop-lag"))
        tasks.append(asyncio.create_task(readiness.watch(parts), name="readiness"))
        tasks.append(asyncio.create_task(_publish_figures(parts, names), name="figures"))
        tune_garbage_collector()
        log.info("workers.ready", names=names)
        await stop.wait()
        log.info("workers.stopping")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=STOP_S)
    log.info("workers.stopped")


async def _publish_figures(parts: WorkerParts, names: list[str]) -> None:
    async def find_chats() -> dict[str, Any]:
        return {"chats": parts.busy.take()}

    has_most = len(names) > len(WORKERS) / 2 and "persist" in names
    who = Who("worker", "all" if has_most else ", ".join(names))
    await Publisher(who, FigureLog(parts.hot), parts.clock, find_chats).run()


async def _keep_running(name: str, parts: WorkerParts, owner: str) -> None:
    wait_s = 0.1
    while True:
        started = parts.clock.monotonic()
        try:
            await WORKERS[name](parts, owner)
        except ChatError as exc:
            log.warning("worker.failed", worker=name, error=exc.message)
        except Exception:
            log.exception("worker.crashed", worker=name)
        metrics.WORKER_RESTARTS.labels(name).inc()
        if parts.clock.monotonic() - started > 30:
            wait_s = 0.1
        await asyncio.sleep(jittered(wait_s))
        wait_s = min(wait_s * 2, RESTART_S_MAX)
