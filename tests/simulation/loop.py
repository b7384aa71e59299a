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
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tests.simulation.process import PROCESS, WORLD, Process
from tests.simulation.trace import Trace

TICK_S = 0.000_02  # virtual time of a tick
TICKS_MAX = 500_000  # of a run: several times those of the longest one
THREAD_S = 0.002  # longest virtual time of a call in a thread
_START_S = 1000.0

_numbers = itertools.count()


class _Future(asyncio.Future[Any]):
    """A future that is hashed by the number it gets when it is first hashed."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number: int = next(_numbers)
            return self._number


class _Task(asyncio.Task[Any]):
    """A task that is hashed by the number it gets when it is first hashed."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number: int = next(_numbers)
            return self._number


class _Handle(asyncio.TimerHandle):
    """A callback or timer, without what only the debug mode of asyncio needs."""

    __slots__ = ()
    _when: float
    _callback: Callable[..., object] | None
    _args: Sequence[Any]
    _context: contextvars.Context
    _cancelled: bool

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()


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
        self._timers: list[tuple[float, int, _Handle, Process]] = []
        self._timer_numbers = itertools.count()
        self._draw = self.rng.random
        self.set_exception_handler(_handle_exception)
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
        if context is None:
            context = contextvars.copy_context()
        handle = _Handle(0.0, callback, args, context)
        process = context.get(PROCESS, WORLD)
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
        when = self.now + delay if delay > 0.0 else self.now
        return self.add_timer(when, callback, args, context or contextvars.copy_context())

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        offset_s = PROCESS.get(WORLD).monotonic_s
        return self.add_timer(
            when - offset_s, callback, args, context or contextvars.copy_context()
        )

    def add_timer(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context,
    ) -> asyncio.TimerHandle:
        """Call a function at a virtual time, without the offset of a process."""
        process = context.get(PROCESS, WORLD)
        # `when` of the handle is in the process's time; the heap is in virtual time.
        timer = _Handle(when + process.monotonic_s, callback, args, context)
        if not process.is_dead:
            heapq.heappush(self._timers, (when, next(self._timer_numbers), timer, process))
        return timer

    def sleep(self, delay_s: float) -> asyncio.Future[None]:
        """Return a future that is done after a delay; faster than `asyncio.sleep`."""
        future = _Future(loop=self)
        context = contextvars.copy_context()
        self.add_timer(self.now + delay_s, _complete, (future,), context)
        return future

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        return _Task(coro, loop=self, **options)

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
                self._run_tick(self._choose())
        finally:
            self._thread_id = None
            events._set_running_loop(None)

    def stop(self) -> None:
        self._is_stopping = True

    def _run_tick(self, process: Process) -> None:
        ready = process.ready
        count = len(ready)
        self.ticks += 1
        if self.ticks > TICKS_MAX:
            raise AssertionError(f"{process.name} runs without end: {TICKS_MAX} ticks")
        self.now += TICK_S
        self.trace.tick(process.name, count)
        while count and not process.is_dead:
            handle = ready.popleft()
            count -= 1
            if not handle._cancelled:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as exc:
                    self._record_failure(process, f"{handle._callback}: {exc!r}")
            if process.handles_left is not None:
                process.handles_left -= 1
                if process.handles_left < 0:
                    self.kill(process)
        if ready and not process.is_paused:
            process.is_queued = True
            self._runnable.append(process)

    def _choose(self) -> Process:
        """Remove a process from the runnable ones and return it; advance time if there is none."""
        runnable, timers = self._runnable, self._timers
        while True:
            if not runnable:
                self._advance()
            elif timers and timers[0][0] <= self.now:
                self._collect_due()
            if len(runnable) > 1:
                at = int(self._draw() * len(runnable))
                process, runnable[at] = runnable[at], runnable[-1]
                runnable.pop()
            else:
                process = runnable.pop()
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
            if timer._cancelled or process.is_dead:
                continue
            process.ready.append(timer)
            if not process.is_queued and not process.is_paused:
                process.is_queued = True
                self._runnable.append(process)

    def _record_failure(self, process: Process, text: str) -> None:
        self.trace.add(f"failure in {process.name}: {text}")
        self.failures.append((process, text))

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


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    text = f"{context['message']}: {context.get('exception')!r}"
    loop._record_failure(PROCESS.get(WORLD), text)
