"""Supervisor of several gateway processes on one port.

::

    chatserver gateway --processes 3
      ├─ process 0 ┐
      ├─ process 1 ├─ one port (SO_REUSEPORT): the kernel spreads new connections
      └─ process 2 ┘

The supervisor serves no clients. It reserves the port, and starts and stops the processes. A
process that exits is restarted with exponential backoff. SIGHUP replaces all processes one by one:
the new process is ready before the old one starts to drain. SIGTERM and SIGINT drain all processes
together. If the supervisor is killed, the kernel kills the processes (Linux).

Process n serves metrics on ``telemetry.metrics_port + n``. During a replacement, that port serves
the old process's metrics until the old process exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

import structlog

from chatserver.config import Settings, Telemetry
from chatserver.errors import ConfigError, Unavailable
from chatserver.gateway.process.child_process import GatewayChild, StartFailed
from chatserver.gateway.transport.listener import reserve_port

log = structlog.get_logger()

READY_S = 60.0  # timeout for the start of a process; long enough on a fully loaded machine
KILL_AFTER_S = 5.0  # a stopping process is killed this long after `gateway.drain_s`
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0
STABLE_S = 30.0  # a process that has run this long resets the backoff
TRIES_MAX = 3


class Slot:
    """Supervises gateway process `number`: restarts it when it exits, and replaces it."""

    def __init__(self, fleet: GatewayProcesses, number: int) -> None:
        self.number = number
        self.first_ready = asyncio.Event()
        self._fleet = fleet
        self._process: GatewayChild | None = None
        self._start_lock = asyncio.Lock()
        self._replaced = asyncio.Event()

    @property
    def is_serving(self) -> bool:
        return self._process is not None and self._process.is_serving

    async def run(self) -> None:
        """Keep the process running until cancelled; restart it if it exits.

        Raises:
            Unavailable: processes repeatedly fail to start, and no other process is serving.
        """
        backoff_s, tries = BACKOFF_FIRST_S, 0
        while True:
            try:
                async with self._start_lock:
                    if not self.is_serving:
                        self._process = await self._fleet.start_process(self.number)
            except StartFailed as exc:
                tries += 1
                log.error("gateways.start_failed", number=self.number, error=str(exc), tries=tries)
                is_permanent = tries >= TRIES_MAX or exc.is_wrong_setting
                if is_permanent and not self._fleet.is_serving:
                    raise Unavailable(
                        f"gateway process {self.number} {exc} (attempt {tries}); see its log"
                    ) from exc
            else:
                tries = 0
                self.first_ready.set()
                if await self._watch() > STABLE_S:
                    backoff_s = BACKOFF_FIRST_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _watch(self) -> float:
        """Wait until the process exits. Return how many seconds it ran.

        If the process is replaced, the wait continues with its replacement.
        """
        loop = asyncio.get_running_loop()
        while True:
            process = self._process
            assert process is not None
            self._replaced.clear()
            replaced = loop.create_task(self._replaced.wait())
            try:
                await asyncio.wait({process.ended, replaced}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                replaced.cancel()
            if process is self._process:
                code = process.ended.result()
                log.error("gateways.process_ended", number=self.number, pid=process.pid, code=code)
                return loop.time() - process.started_at

    async def replace(self) -> None:
        """Replace the serving process with a new one, and wait until the old one has drained.

        Raises:
            StartFailed: the new process failed to start; the old one keeps serving.
        """
        async with self._start_lock:
            old = self._process
            if old is None or old.ended.done():
                return  # no process to replace: `run` starts a new one
            self._process = await self._fleet.start_process(self.number)
            self._replaced.set()
        old.send(signal.SIGUSR1)
        await self._fleet.wait_drained(old)


class GatewayProcesses:
    """All processes on one port."""

    def __init__(self, settings: Settings, count: int, port: int) -> None:
        self._settings = settings
        self._port = port
        self._alive: set[GatewayChild] = set()
        self._slots = [Slot(self, number) for number in range(count)]
        self._is_replacement_requested = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def is_serving(self) -> bool:
        """True while at least one process is serving."""
        return any(process.is_serving for process in self._alive)

    def stop(self) -> None:
        """Request a graceful stop; a second call kills all processes."""
        if self._stop.is_set():
            for process in self._alive:
                process.send(signal.SIGKILL)
        self._stop.set()

    def request_replacement(self) -> None:
        """Request a replacement of all processes. A request during a replacement is queued."""
        self._is_replacement_requested.set()

    async def run(self) -> None:
        """Keep all processes running until `stop`, then drain them.

        Raises:
            Unavailable: no process could be started.
        """
        loop = asyncio.get_running_loop()
        stopped = loop.create_task(self._stop.wait(), name="stop")
        tasks = {
            stopped,
            loop.create_task(self._replace_when_requested(), name="replacements"),
            *(loop.create_task(slot.run(), name=f"slot-{slot.number}") for slot in self._slots),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop_all()

    async def _replace_when_requested(self) -> None:
        await asyncio.gather(*(slot.first_ready.wait() for slot in self._slots))
        log.info("gateways.ready", port=self._port, processes=len(self._slots))
        while True:
            await self._is_replacement_requested.wait()
            self._is_replacement_requested.clear()
            log.info("gateways.restarting")
            try:
                for slot in self._slots:
                    await slot.replace()
            except StartFailed as exc:
                log.error("gateways.restart_given_up", number=slot.number, error=str(exc))
            else:
                log.info("gateways.restarted")

    async def start_process(self, number: int) -> GatewayChild:
        """Start a process and return it once it is ready.

        Raises:
            StartFailed: the process did not become ready.
        """
        argv = [sys.executable, "-m", "chatserver.cli.main", "gateway"]
        env = {**os.environ, "CHAT_GATEWAY_PORT": str(self._port)}
        base = self._settings.telemetry.metrics_port
        if base is not None:
            env["CHAT_TELEMETRY_METRICS_PORT"] = str(base + number)
        process = await GatewayChild.start(argv, env)
        self._alive.add(process)
        process.ended.add_done_callback(lambda _: self._alive.discard(process))
        await process.wait_ready(READY_S)
        log.info("gateways.process_ready", number=number, pid=process.pid)
        return process

    async def wait_drained(self, process: GatewayChild) -> None:
        """Wait until a draining process exits; kill it after the drain timeout."""
        if not await process.wait_ended(self._settings.gateway.drain_s + KILL_AFTER_S):
            log.error("gateways.process_killed", pid=process.pid, reason="drain_timeout")

    async def _stop_all(self) -> None:
        for process in self._alive:
            process.send(signal.SIGTERM)
        await asyncio.gather(*(self.wait_drained(process) for process in list(self._alive)))
        log.info("gateways.stopped")


async def run_gateways(settings: Settings, count: int) -> None:
    """Run `count` gateway processes until SIGTERM or SIGINT; SIGHUP replaces them.

    Raises:
        ConfigError: a port is in use.
        Unavailable: no process could be started.
    """
    _check_metrics_ports(settings.telemetry, count)
    sock = reserve_port(settings.gateway.host, settings.gateway.port)
    with contextlib.closing(sock):
        fleet = GatewayProcesses(settings, count, sock.getsockname()[1])
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, fleet.stop)
        loop.add_signal_handler(signal.SIGHUP, fleet.request_replacement)
        await fleet.run()


def _check_metrics_ports(settings: Telemetry, count: int) -> None:
    """Check that every process's metrics port is free.

    Raises:
        ConfigError: a metrics port is in use or out of range.
    """
    base = settings.metrics_port
    for port in range(base, base + count) if base is not None else ():
        try:
            with socket.create_server((settings.metrics_host, port)):
                pass
        except (OSError, OverflowError) as exc:
            raise ConfigError(f"telemetry.metrics_port: cannot listen on {port} ({exc})") from exc
