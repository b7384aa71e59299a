"""Event loop with virtual time: deterministic for a seed.

- Time advances only when no process has a ready callback, to the next timer.
- The ready callbacks of one process run in the order of `call_soon`, as asyncio promises and the
  product relies on. All that are ready at the start of a tick run in that tick. Which process has
  the next tick is drawn from the seed.
- Timers of different processes that are due at the same time run in a random order, too.
- Functions for threads run inline, after a random delay.
- Tasks and futures are hashed by number, so sets of them are iterated in the same order in each
  run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.process import PROCESS, WORLD, Process
from tests.simulation.trace import Trace

TICK_S = 0.000_02  # virtual time of a tick
THREAD_S = 0.002  # longest virtual time of a call in a thread
_START_S = 1000.0

_numbers = itertools.count()


class _Future(asyncio.Future[Any]):
    """A future that is hashed by its number."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(_numbers)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """A task that is hashed by its number."""

    def __init__(self, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = next(_numbers)
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class Deadlock(Exception):
    """No callback is ready and no timer is pending."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of all simulated processes."""

    def __init__(self, seed: int, trace: Trace) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.trace = trace
        self.now = _START_S  # virtual time, without the offset of a process
        self.ticks = 0
        self.failures: list[tuple[Process, str]] = []  # unhandled exceptions
        self._runnable: list[Process] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process]] = []
        self._timer_numbers = itertools.count()
        self.set_task_factory(_make_task)
        self.set_exception_handler(_record_failure)
        self.network: Any = None  # set by Network
        self._is_stopping = False

    # scheduling

    def time(self) -> float:
        """Return the monotonic time of the current process."""
        return self.now + PROCESS.get(WORLD).monotonic_s

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        process = handle._context.get(PROCESS, WORLD)  # type: ignore[attr-defined]
        if not process.is_dead:
            process.ready.append(handle)
            if not process.is_queued:
                process.is_queued = True
                self._runnable.append(process)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._add_timer(self.now + max(0.0, delay), callback, args, context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        offset_s = PROCESS.get(WORLD).monotonic_s
        return self._add_timer(when - offset_s, callback, args, context)

    def _add_timer(
        self,
        when: float,
        callback: Callable[..., object],
        args: Any,
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        process = timer._context.get(PROCESS, WORLD)  # type: ignore[attr-defined]
        if not process.is_dead:
            # `when` of the handle is in the process's time; the heap is in virtual time.
            timer._when = when + process.monotonic_s  # type: ignore[attr-defined]
            heapq.heappush(self._timers, (when, next(self._timer_numbers), timer, process))
        return timer

    def call_at_time(
        self, when: float, callback: Callable[..., object], context: contextvars.Context
    ) -> None:
        """Call a function at a virtual time, without the offset of a process."""
        self._add_timer(when, callback, (), context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # dropped when it is due

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except BaseException as exc:
                future.set_exception(exc)

        self.call_later(self.rng.uniform(0.0, THREAD_S), run)
        return future

    # processes

    def kill(self, process: Process) -> None:
        """Stop a process between two callbacks; it loses its memory."""
        if process.is_dead:
            return
        self.trace.add(f"kill {process.name}")
        process.is_dead = True
        process.remains.append(list(process.ready))
        process.ready.clear()
        for callback in process.on_death:
            callback()

    def pause(self, process: Process, *, is_paused: bool) -> None:
        """Stop or continue the callbacks and timers of a process."""
        self.trace.add(f"{'pause' if is_paused else 'continue'} {process.name}")
        process.is_paused = is_paused
        if not is_paused and process.ready and not process.is_queued:
            process.is_queued = True
            self._runnable.append(process)

    # running

    def run_forever(self) -> None:
        self._check_closed()  # type: ignore[attr-defined]
        self._thread_id = threading.get_ident()
        events._set_running_loop(self)
        self._is_stopping = False
        try:
            while not self._is_stopping:
                self._run_tick()
        finally:
            self._thread_id = None
            events._set_running_loop(None)

    def stop(self) -> None:
        self._is_stopping = True

    def _run_tick(self) -> None:
        process = self._choose()
        ready = process.ready
        count = len(ready)
        self.ticks += 1
        self.now += TICK_S
        self.trace.tick(process.name, count)
        while count and not process.is_dead:
            handle = ready.popleft()
            count -= 1
            if not handle._cancelled:  # type: ignore[attr-defined]
                handle._run()  # type: ignore[attr-defined]
            if process.handles_left is not None:
                process.handles_left -= 1
                if process.handles_left < 0:
                    self.kill(process)
        if ready and not process.is_paused:
            process.is_queued = True
            self._runnable.append(process)

    def _choose(self) -> Process:
        """Remove a process from the runnable ones and return it; advance time if there is none."""
        runnable = self._runnable
        while True:
            if not runnable:
                self._advance()
            elif self._timers and self._timers[0][0] <= self.now:
                self._collect_due()
            count = len(runnable)
            at = int(self.rng.random() * count) if count > 1 else 0
            process = runnable[at]
            runnable[at] = runnable[-1]
            runnable.pop()
            process.is_queued = False
            if process.ready and not process.is_paused and not process.is_dead:
                return process

    def _advance(self) -> None:
        while not self._runnable:
            if not self._timers:
                raise Deadlock
            self.now = max(self.now, self._timers[0][0])
            self._collect_due()

    def _collect_due(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            _, _, timer, process = heapq.heappop(timers)
            if timer._cancelled or process.is_dead:  # type: ignore[attr-defined]
                continue
            process.ready.append(timer)
            if not process.is_queued and not process.is_paused:
                process.is_queued = True
                self._runnable.append(process)

    # network

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return self.network.listen(protocol_factory, host, port)

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], sock: Any, **_: Any
    ) -> tuple[Any, Any]:
        return await self.network.attach(protocol_factory, sock)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        fd.add_reader(callback, args)

    def remove_reader(self, fd: Any) -> bool:  # type: ignore[override]
        return bool(fd.remove_reader())

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:  # type: ignore[override]
        return [(2, 1, 6, "", (host, port))]

    def add_signal_handler(self, *_: Any) -> None:  # type: ignore[override]
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass


def _make_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    return _Task(coro, loop=loop, **options)


def _record_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    process = PROCESS.get(WORLD)
    exception = context.get("exception")
    text = f"{context['message']}: {exception!r}"
    loop.trace.add(f"failure in {process.name}: {text}")
    loop.failures.append((process, text))
