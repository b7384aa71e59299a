"""Time, randomness and logs under control of the simulation.

The product reads the modules `time`, `random`, `secrets` and `os.urandom`, so their functions are
replaced for the duration of a run. A run has its own operating system process, so nothing has to be
restored.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

from chatserver.domain import aligned_sleep
from chatserver.features.privacy.worker import job_worker
from chatserver.features.push.worker import push_worker
from chatserver.gateway.session.session_auth import SessionAuth
from chatserver.gateway.transport.connection import Connection
from chatserver.hot.bus.gateway_stream import _Flush
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import PROCESS, WORLD, get_process
from workers.archive import ttl_stream_reader

START_S = 1_800_000_000.0  # wall clock at the start of a run


def get_wall_time(loop: SimulatedLoop) -> float:
    """Return the wall clock of the current process."""
    return START_S + loop.now + PROCESS.get(WORLD).skew_s


def install(loop: SimulatedLoop, seed: int) -> None:
    """Replace time, randomness and logs for the rest of this operating system process."""
    _install_time(loop)
    _install_randomness(seed)
    _install_hashes(Connection, SessionAuth, _Flush)
    _install_logs(loop)
    # Collections would run at times that depend on memory, and finalize what a killed process left.
    gc.disable()
    gc.collect = lambda generation=2: 0
    gc.freeze = lambda: None
    gc.enable = lambda: None
    sys.unraisablehook = lambda _: None


def _install_time(loop: SimulatedLoop) -> None:
    def monotonic() -> float:
        return loop.time()

    def wall() -> float:
        return get_wall_time(loop)

    time.time = wall
    time.time_ns = lambda: int(wall() * 1_000_000) * 1000
    time.monotonic = monotonic
    time.monotonic_ns = lambda: int(monotonic() * 1e9)
    time.perf_counter = monotonic
    time.perf_counter_ns = lambda: int(monotonic() * 1e9)
    time.process_time = monotonic
    time.thread_time = monotonic


def _install_randomness(seed: int) -> None:
    source = random.Random(f"bytes {seed}")
    os.urandom = source.randbytes
    random._urandom = source.randbytes  # type: ignore[attr-defined]  # of SystemRandom and secrets
    random.seed(f"product {seed}")
    random.Random = _make_seeded_random(source)  # type: ignore[assignment, misc]
    # Processes have the same id and host; their names also have a random part.
    os.getpid = lambda: 1
    socket.gethostname = lambda: "simulated"
    # What another worker does after a crash must happen within a run.
    job_worker.POLL_S = 0.5  # type: ignore[misc]
    ttl_stream_reader.STREAM_POLL_S = 0.5  # type: ignore[misc]
    push_worker.CHAT_S_MAX, push_worker.CLAIM_S = 3.0, 4.0
    aligned_sleep._PHASE_S = random.random() * 60  # type: ignore[misc]  # drawn when it was imported


def _make_seeded_random(source: random.Random) -> type[random.Random]:
    class SeededRandom(random.Random):
        """A generator whose seed is drawn from the run's seed if the caller gives none."""

        def __init__(self, seed: Any = None) -> None:
            super().__init__(source.getrandbits(64) if seed is None else seed)

    return SeededRandom


def _install_hashes(*classes: type[Any]) -> None:
    """Hash objects by number, so that sets of them have the same order in each run."""
    known: dict[int, tuple[object, int]] = {}  # also keeps the objects, so no id is used twice

    def get_number(self: object) -> int:
        entry = known.get(id(self))
        if entry is None:
            entry = known[id(self)] = (self, len(known))
        return entry[1]

    for kind in classes:
        kind.__hash__ = get_number  # type: ignore[method-assign]


def _install_logs(loop: SimulatedLoop) -> None:
    trace = loop.trace

    def record(_: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        name = event.pop("event")
        exception = sys.exc_info()[1] if event.pop("exc_info", None) else None
        fields = " ".join(f"{key}={value}" for key, value in event.items())
        problem = f" {exception!r}" if exception is not None else ""
        trace.add(f"{loop.now - 1000:.4f} {get_process().name}: {method} {name} {fields}{problem}")
        if exception is not None:
            where = "".join(traceback.format_exception(exception)[-4:])
            loop.failures.append((get_process(), f"{name} {fields} {exception!r}\n{where}"))
        raise structlog.DropEvent

    structlog.configure(
        processors=[record],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    logging.disable(logging.CRITICAL)
