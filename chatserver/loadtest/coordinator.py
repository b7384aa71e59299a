"""Load test coordinator: starts the worker processes together and aggregates their reports."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from chatserver.loadtest.histogram import Histogram, to_ms
from chatserver.loadtest.load_users import SETUP_S
from chatserver.loadtest.plan import LoadPlan
from chatserver.loadtest.server_monitor import ServerMonitor, ServerSample
from chatserver.loadtest.worker_process import LocalWorker, WorkerProcess, start_process

BEGIN_S: Final = 0.3  # The load starts this long after the last worker is ready.
READY_S: Final = 30.0  # Workers keep `SETUP_S` themselves; this is added for those that are lost.
END_S: Final = 30.0  # The run fails if a worker takes longer than `duration_s` + `settle_s` + this.
STOP_S: Final = 15.0  # After Ctrl-C, pending actions may take this long.
PARTS_KEPT_S: Final = 30  # A worker's report about a second may arrive this late.
_SHARES: Final = (0.5, 0.99)
_CHARTED: Final = ("ack", "delivered", "page", "connect", "loop_lag")


class LoadFailed(Exception):
    """The load could not start, or a load tool process failed; the message states the cause."""


class Totals:
    """Aggregated worker reports, per second and in total."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.histograms: dict[str, Histogram] = {}
        self.seconds: dict[int, dict[str, Any]] = {}
        self.results: list[dict[str, Any]] = []
        # Histograms by second and name, for the newest seconds. `_percentiles` has the older
        # seconds.
        self._parts: dict[int, dict[str, Histogram]] = {}
        self._percentiles: dict[tuple[int, str, float], float] = {}
        self._expected: dict[int, int] = {}  # worker → its latest total

    def add_second(self, worker: int, report: dict[str, Any]) -> None:
        number = report["second"]
        row = self.seconds.setdefault(number, {"second": number})
        for name, count in report["counts"].items():
            self.counts[name] = self.counts.get(name, 0) + count
            row[name] = row.get(name, 0) + count
        parts = self._parts.setdefault(number, {})
        for name, fields in report["histograms"].items():
            histogram = Histogram.from_json(fields)
            self.histograms.setdefault(name, Histogram()).add(histogram)
            if name in _CHARTED:
                parts.setdefault(name, Histogram()).add(histogram)
        for old in [second for second in self._parts if second < number - PARTS_KEPT_S]:
            for name, histogram in self._parts.pop(old).items():
                values = zip(_SHARES, histogram.get_quantiles(_SHARES), strict=True)
                self._percentiles |= {(old, name, share): to_ms(us) for share, us in values}
        self._expected[worker] = report["expected"]
        row["missing"] = max(0, self.expected - self.counts.get("delivered", 0))

    def record_snapshot(self, number: int, snapshot: dict[str, Any]) -> None:
        self.seconds.setdefault(number, {"second": number}).update(snapshot)

    @property
    def expected(self) -> int:
        return sum(self._expected.values())

    def get_percentile_ms(self, number: int, name: str, share: float) -> float | None:
        """Return the median or the 99th percentile of one second's latencies."""
        histogram = self._parts.get(number, {}).get(name)
        value = None if histogram is None else histogram.get_quantile(share)
        cached = self._percentiles.get((number, name, share))
        return cached if value is None else to_ms(value)


class Coordinator:
    """One load test run, with a worker process for each plan.

    The last plans are for the workers on other machines (`remotes`), if any.
    """

    def __init__(
        self,
        plans: Sequence[LoadPlan],
        server: ServerMonitor | None = None,
        remotes: Sequence[WorkerProcess] = (),
    ) -> None:
        self.plans = plans
        self.remotes = remotes
        self.totals = Totals()
        self.chats: dict[str, int] = {}
        self.before = self.after = ServerSample()
        self.ended = "done"
        self.why_broken = ""
        self.began_at = 0.0
        self._server = server
        self._workers: list[WorkerProcess] = []

    async def run(self, on_second: Callable[[int], None] = lambda _: None) -> None:
        """Set up the users, run the load, and wait for pending deliveries.

        `on_second(n)` is called shortly after second `n` of the load ends; the first is 0.

        Raises:
            LoadFailed: the load could not start.
        """
        async with self._open_workers():
            try:
                await asyncio.gather(*(self._get_ready(worker) for worker in self._workers))
            except LoadFailed:
                if self.ended != "interrupted":
                    raise
                raise LoadFailed("stopped before the load started") from None
            if self._server is not None:
                self.before = await self._server.sample(is_whole=True)
            begin = time.monotonic() + BEGIN_S
            self.began_at = time.time()
            self._send_command({"begin_in_s": BEGIN_S})
            watching = asyncio.create_task(self._monitor(begin, on_second), name="watch")
            plan = self.plans[0]
            try:
                async with asyncio.timeout(plan.duration_s + plan.settle_s + END_S):
                    await asyncio.gather(*map(self._read_reports, range(len(self._workers))))
            except (LoadFailed, TimeoutError) as exc:
                self.ended = "broken"
                self.why_broken = str(exc) or "a load tool process did not finish"
            try:
                if self._server is not None:
                    await self._wait_until_persisted(plan.settle_s)
                    self.after = await self._server.sample(is_whole=True)
            finally:
                watching.cancel()
            self._send_command({"close": True})

    def stop(self) -> None:
        """End the load early and wait for pending actions; a second call kills the workers instead.

        If the load has not started, `run` raises LoadFailed.
        """
        if self.ended == "interrupted" or not self.began_at:
            self.ended = "interrupted"
            for worker in self._workers:
                worker.kill()
            return
        self.ended = "interrupted"
        self._send_command({"stop": STOP_S})

    @contextlib.asynccontextmanager
    async def _open_workers(self) -> AsyncIterator[None]:
        try:
            remotes = list(self.remotes)
            for number, plan in enumerate(self.plans):
                is_local = number < len(self.plans) - len(self.remotes)
                worker = await start_process("worker") if is_local else remotes.pop(0)
                self._workers.append(worker)
                worker.send_plan(plan)
            yield
        finally:
            await asyncio.gather(*(worker.end() for worker in self._workers))

    async def _get_ready(self, worker: WorkerProcess) -> None:
        try:
            async with asyncio.timeout(SETUP_S + READY_S):
                report = await _read_report(worker)
        except TimeoutError:
            raise LoadFailed(
                f"a load tool process was not ready within {SETUP_S + READY_S:g} s; its machine "
                "may be lost, or the script blocks its event loop"
            ) from None
        if "failed" in report:
            raise LoadFailed(report["failed"])
        for kind, count in report["ready"]["chats"].items():
            self.chats[kind] = self.chats.get(kind, 0) + count

    async def _read_reports(self, number: int) -> None:
        while True:
            report = await _read_report(self._workers[number])
            if "result" in report:
                self.totals.results.append(report["result"])
                return
            self.totals.add_second(number, report)

    async def _monitor(self, begin: float, on_second: Callable[[int], None]) -> None:
        number = 0
        while True:
            await asyncio.sleep(max(0.0, begin + number + 1.2 - time.monotonic()))
            if self._server is not None:
                sample = await self._server.sample()
                row = {"cpu_s": sample.cpu_s, "rss": sample.rss, "backlog": sample.backlog}
                self.totals.record_snapshot(number, row)
            on_second(number)
            number += 1

    async def _wait_until_persisted(self, patience_s: float) -> None:
        """Wait until the backlog is empty, so that the result includes all persist work."""
        assert self._server is not None
        until = time.monotonic() + patience_s
        while (await self._server.sample()).backlog:
            if time.monotonic() > until:
                return
            await asyncio.sleep(0.2)

    def _send_command(self, command: dict[str, Any]) -> None:
        for worker in self._workers:
            worker.write(msgspec.json.encode(command))


async def _read_report(worker: WorkerProcess) -> dict[str, Any]:
    line = await worker.read()
    if not line:
        raise LoadFailed(f"a load tool process ended early: {await worker.describe_end()}")
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError as exc:
        raise LoadFailed(f"a load tool process sent an invalid report: {exc}") from exc


@contextlib.asynccontextmanager
async def open_stubs(count: int) -> AsyncIterator[list[str]]:
    stubs: list[LocalWorker] = []
    try:
        stubs.extend([await start_process("stub_server") for _ in range(count)])
        ports = [int(await stub.read()) for stub in stubs]
        yield [f"ws://127.0.0.1:{port}/" for port in ports]
    finally:
        await asyncio.gather(*(stub.end() for stub in stubs))
