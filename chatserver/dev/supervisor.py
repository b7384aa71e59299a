"""Supervisor of `chatserver dev`: starts the processes, restarts them, stops them.

Redis, DynamoDB and S3 start together; the workers, the gateway and the API follow, also together.

If the gateway, the workers or the API end, they are restarted after a pause that doubles from 0.5
to 10 s. If Redis, DynamoDB or S3 ends, all processes are stopped. The process that compiles the
send path for the next start is started last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import attrs

from chatserver.dev.child import Child, ChildFailed
from chatserver.dev.console import Screen
from chatserver.dev.process_plan import ProcessPlan
from chatserver.dev.servers import Launch
from chatserver.task_groups import open_task_group

READY_S = 60.0  # timeout for the start of a process; long enough on a busy machine
PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 10.0
PAUSE_RESET_S = 30.0  # the pause is reset after a process has run this long
_QUIET = {"redis", "dynamodb", "limits", "s3"}


@attrs.define(eq=False, repr=False)
class Supervisor:
    """Runs all processes. `run` returns the exit code after all of them have ended."""

    _plan: ProcessPlan
    _screen: Screen
    _children: list[Child] = attrs.field(factory=list, init=False)
    _monitors: list[asyncio.Task[None]] = attrs.field(factory=list, init=False)
    _stop: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _failure: ChildFailed | None = attrs.field(default=None, init=False)

    async def run(self) -> int:
        """Start all processes, wait for `stop` or a failure, then stop all of them.

        Guarantees:
            Cancellation: all processes have ended before the cancellation propagates.
        """
        starting = asyncio.create_task(self._start_all(), name="start of all processes")
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not self._stop.is_set():
                self._failure = await _find_failure(starting)
                if self._failure is None:
                    self._screen.print_welcome(self._plan)
                    if build := self._plan.build():
                        await self._add(build).start()
                    await self._stop.wait()
        finally:
            starting.cancel()
            stopped.cancel()
            await asyncio.gather(starting, stopped, return_exceptions=True)
            await self._stop_all()
        if self._failure is not None:
            child = self._failure.child
            advice = self._describe_data(child.name)
            self._screen.report_failure(child.name, self._failure.why, list(child.tail), advice)
            return 1
        return 0

    def stop(self) -> None:
        """Request a stop; a second call kills all processes."""
        if self._stop.is_set():
            for child in self._children:
                child.kill()
        self._stop.set()

    def _describe_data(self, name: str) -> str:
        """Return what a failure of a server means for the data; empty for our own processes."""
        launch = next((each for each in self._plan.servers() if each.name == name), None)
        if launch is None:
            return ""
        if launch.keeps_data_in_a_crash:
            return f"the data in {self._plan.folder} is safe; run the command again"
        return f"{name} saves its data only when it stops normally; run the command again"

    async def _start_all(self) -> None:
        plan = self._plan
        await self._start_together(plan.servers())
        await self._run_once(plan.seed())
        await self._start_together([plan.worker(), plan.gateway(), plan.api()], is_restarted=True)

    async def _start_together(
        self, launches: Sequence[Launch], *, is_restarted: bool = False
    ) -> None:
        # Add all children before starting any: `_stop_all` stops them in reverse order.
        children = [self._add(launch) for launch in launches]
        async with open_task_group() as group:
            for child in children:
                start = self._start(child, is_restarted=is_restarted)
                group.create_task(start, name=f"start of {child.name}")

    async def _start(self, child: Child, *, is_restarted: bool) -> None:
        await child.start()
        await child.wait_ready(READY_S)
        took = time.monotonic() - child.started_at
        location = f" on {child.launch.address}" if child.launch.port else ""
        self._screen.log(f"{child.name} is ready{location}, process {child.pid} ({took:.1f} s)")
        monitor = self._monitor(child, is_restarted=is_restarted)
        self._monitors.append(asyncio.create_task(monitor, name=f"monitor of {child.name}"))

    async def _run_once(self, launch: Launch) -> None:
        child = self._add(launch)
        await child.start()
        try:
            code = await asyncio.wait_for(child.wait_ended(), READY_S)
        except TimeoutError:
            raise ChildFailed(child, f"did not finish within {READY_S:g} s") from None
        if code != 0:
            raise ChildFailed(child, f"ended with {code}")

    def _add(self, launch: Launch) -> Child:
        child = Child(launch, self._on_line)
        self._children.append(child)
        return child

    def _on_line(self, name: str, text: str) -> None:
        if name not in _QUIET or self._screen.is_verbose:
            self._screen.print_line(name, text)

    async def _monitor(self, child: Child, *, is_restarted: bool) -> None:
        pause_s = PAUSE_FIRST_S
        while True:
            code = await child.wait_ended()
            if self._stop.is_set():
                return
            if not is_restarted:
                self._failure = ChildFailed(child, f"ended with {code}")
                self._stop.set()
                return
            if time.monotonic() - child.started_at > PAUSE_RESET_S:
                pause_s = PAUSE_FIRST_S
            self._screen.log(f"{child.name} ended with {code}, restarting in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
            await child.start()
            self._screen.log(f"{child.name} restarted, process {child.pid}")

    async def _stop_all(self) -> None:
        """Stop the processes in reverse start order: gateways and API before Redis and DynamoDB."""
        for monitor in self._monitors:
            monitor.cancel()
        await asyncio.gather(*self._monitors, return_exceptions=True)
        if self._children:
            self._screen.log("stopping")
        for child in reversed(self._children):
            await child.stop()


async def _find_failure(starting: asyncio.Task[None]) -> ChildFailed | None:
    try:
        await starting
    except ChildFailed as failure:
        return failure
    return None
