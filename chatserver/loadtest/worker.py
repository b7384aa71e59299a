"""Worker process of the load tool: reads its plan from standard input and reports results.

Input and output are lines of JSON. Input: the plan; ``{"begin_in_s": S}`` to start the load after
S seconds; ``{"stop": S}`` to end the load early and wait up to S seconds for
pending actions; ``{"close": true}``, or the end of the input. Output: ``{"ready": {…}}`` or
``{"failed": "…"}``; each second ``{"second": N, "counts": …, "histograms": …}``; at the end
``{"result": {…}}``.

    python -m chatserver.loadtest.worker
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from chatserver import process_runtime
from chatserver.auth.access_tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.loadtest.arrival_schedule import Pacer, iter_arrivals
from chatserver.loadtest.load_users import LoadUsers, SetupFailed
from chatserver.loadtest.plan import LoadPlan
from chatserver.loadtest.script_loader import ScriptError, load_script
from chatserver.loadtest.script_runner import ScriptRunner
from chatserver.loadtest.wire import parse_address
from chatserver.loadtest.worker_state import WorkerState, get_now_us

LAG_S: Final = 0.05
LINE_BYTES_MAX: Final = 65_536

ReportSecond = Callable[[dict[str, Any]], None]


class LoadWorker:
    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        auth = Auth(
            secret=SecretStr(plan.secret),
            audience=plan.audience,
            issuer=plan.issuer,
            lifetime_s_max=plan.token_s,
        )
        tokens = Tokens(auth, SystemClock())
        self.state = WorkerState(
            run=plan.run,
            address=parse_address(plan.url),
            mint=lambda user: tokens.issue(UserId(user), plan.token_s),
            body_bytes=plan.body_bytes,
        )
        self.users = LoadUsers(plan, self.state)
        self._stopping = asyncio.Event()
        self._pacer: Pacer | None = None
        self._script: ScriptRunner | None = None
        self._patience_s = plan.settle_s
        self._expected_before = 0
        self._begin = 0.0
        self._second = 0

    async def set_up(self) -> dict[str, Any]:
        """Set up the users; return the number of chats of each kind. Raises SetupFailed."""
        file = self.plan.script
        try:
            script = None if file is None else load_script(Path(file.path), file.sha256)
        except ScriptError as exc:
            raise SetupFailed(str(exc)) from exc
        await self.users.set_up()
        if script is not None and not self.plan.window:
            self._script = ScriptRunner(script, self.plan, self.users, self.state)
        self.state.meters.pop_all()
        self._expected_before = self.users.count_expected()
        gc.collect()
        gc.freeze()  # exclude all existing objects from later garbage collections
        return {"chats": {kind: len(chats) for kind, chats in self.users.chats.items()}}

    async def run_load(self, begin: float, on_second: ReportSecond) -> dict[str, Any]:
        """Start the load at `begin`, wait for pending deliveries at its end, and return the result.

        `on_second` is called with the measurements of each second.
        """
        self._begin = begin
        tasks = [
            asyncio.create_task(self._report_seconds(on_second), name="seconds"),
            asyncio.create_task(self._measure_lag(), name="loop lag"),
        ]
        if self.plan.storm_s:
            tasks.append(asyncio.create_task(self._run_storms(), name="storms"))
        cpu_before = _get_cpu_s()
        try:
            took_s = await self._run_actions()
            cpu_s = _get_cpu_s() - cpu_before
            for task in tasks[2:]:
                task.cancel()
            await self.users.wait_for_deliveries(self._patience_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        unfinished = self.users.finish()
        on_second(self._build_report())
        state = self.state
        return {
            "took_s": took_s,
            "cpu_s": round(cpu_s, 3),
            "findings": dict(state.findings.counts),
            "examples": state.findings.examples,
            "refusals": state.refusals,
            "last_failure": state.last_failure,
            "fatal": state.fatal,
            "first_error": "" if self._script is None else self._script.first_error,
            **unfinished,
        }

    def stop(self, patience_s: float) -> None:
        """End the load early, and wait up to `patience_s` seconds for pending actions."""
        self._patience_s = min(self._patience_s, patience_s)
        self._stopping.set()
        if self._pacer is not None:
            self._pacer.stop()

    async def _run_actions(self) -> float:
        """Run the load and return how many seconds it took."""
        if self.plan.window:
            return await self._run_closed_loop()
        if self._script is None:
            return await self._run_open_loop()
        await asyncio.sleep(self._begin - time.monotonic())
        await self._script.run(self._stopping, self.plan.duration_s)
        took_s = max(0.001, time.monotonic() - self._begin)
        await self._script.finish(self._patience_s)
        return took_s

    async def _run_open_loop(self) -> float:
        seed = f"times-{self.plan.seed}-{self.plan.first_user}"
        chance = random.Random(seed)  # noqa: S311  schedule of simulated users, not a secret
        due = iter_arrivals(self.plan.rate, self.plan.duration_s, chance)
        time_late = self.state.meters.record_latency
        self._pacer = Pacer(
            due,
            self._begin,
            lambda _, time_s: self.users.run_action(round(time_s * 1e6)),
            on_late=lambda late_s: time_late("sent_late", int(late_s * 1e6)),
        )
        await self._pacer.finished
        return min(self.plan.duration_s, max(0.001, time.monotonic() - self._begin))

    async def _run_closed_loop(self) -> float:
        """Keep `window` actions pending, to measure the load tool itself."""
        await asyncio.sleep(self._begin - time.monotonic())
        self.state.on_done = lambda: self.users.run_action(get_now_us())
        for _ in range(self.plan.window):
            self.users.run_action(get_now_us())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), self.plan.duration_s)
        self.state.on_done = lambda: None
        return time.monotonic() - self._begin

    async def _run_storms(self) -> None:
        await asyncio.sleep(self._begin - time.monotonic())
        while True:
            await asyncio.sleep(self.plan.storm_s)
            self.users.reconnect_all()

    async def _measure_lag(self) -> None:
        while True:
            due = time.monotonic() + LAG_S
            await asyncio.sleep(LAG_S)
            self.state.meters.record_latency("loop_lag", int((time.monotonic() - due) * 1e6))

    async def _report_seconds(self, on_second: ReportSecond) -> None:
        while True:
            await asyncio.sleep(self._begin + self._second + 1 - time.monotonic())
            on_second(self._build_report())

    def _build_report(self) -> dict[str, Any]:
        second, self._second = self._second, self._second + 1
        expected = self.users.count_expected() - self._expected_before
        return {"second": second, "expected": expected, **self.state.meters.pop_all()}


def _get_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _open_reports() -> ReportSecond:
    """Return a function that writes a line to the coordinator.

    What a script prints goes to the standard error output instead.
    """
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def write_line(line: dict[str, Any]) -> None:
        reports.write(msgspec.json.encode(line) + b"\n")
        reports.flush()

    return write_line


async def _open_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def run(write_line: ReportSecond) -> None:
    orders = await _open_input()
    worker = LoadWorker(msgspec.json.decode(await orders.readline(), type=LoadPlan))
    try:
        ready = await worker.set_up()
    except SetupFailed as exc:
        write_line({"failed": str(exc)})
        return
    write_line({"ready": ready})
    order = msgspec.json.decode(await orders.readline() or b"{}")
    if "begin_in_s" in order:
        begin = time.monotonic() + order["begin_in_s"]
        load = asyncio.create_task(worker.run_load(begin, write_line), name="load")
        next_order = asyncio.create_task(orders.readline(), name="orders")
        await asyncio.wait([load, next_order], return_when=asyncio.FIRST_COMPLETED)
        if not load.done():
            order = msgspec.json.decode(next_order.result() or b'{"stop": 0}')
            worker.stop(order.get("stop", 0))
            next_order = asyncio.create_task(orders.readline(), name="orders")
        write_line({"result": await load})
        await next_order
    worker.users.close()


def main() -> None:
    """Run a worker process; the coordinator handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_runtime.stop_with_parent()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process_runtime.run(run(_open_reports()))


if __name__ == "__main__":
    main()
