"""Time, randomness and logs under control of the simulation.

The product reads the modules `time`, `random`, `secrets` and `os.urandom`, so their functions are
replaced for the duration of a run.
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


_originals: list[tuple[Any, str, Any]] = []  # owner, name and value of what was replaced


def _replace(owner: Any, name: str, value: Any) -> None:
    _originals.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def restore() -> None:
    """Restore what `install` has replaced, except logs, hashes and `sys.unraisablehook`."""
    while _originals:
        setattr(*_originals.pop())


def install(loop: SimulatedLoop, seed: int) -> None:
    """Replace time, randomness and logs until `restore`."""
    _install_time(loop)
    _install_randomness(seed)
    _install_hashes(Connection, SessionAuth, _Flush)
    _install_logs(loop)
    # Collections would run at times that depend on memory, and finalize what a killed process left.
    gc.disable()
    _replace(gc, "collect", lambda generation=2: 0)
    _replace(gc, "freeze", lambda: None)
    _replace(gc, "enable", lambda: None)
    sys.unraisablehook = lambda _: None


def _install_time(loop: SimulatedLoop) -> None:
    def monotonic() -> float:
        return loop.time()

    def wall() -> float:
        return get_wall_time(loop)

    _replace(time, "time", wall)
    _replace(time, "time_ns", lambda: int(wall() * 1_000_000) * 1000)
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        _replace(time, name, monotonic)
    for name in ("monotonic_ns", "perf_counter_ns"):
        _replace(time, name, lambda: int(monotonic() * 1e9))


def _install_randomness(seed: int) -> None:
    source = random.Random(f"bytes {seed}")
    _replace(os, "urandom", source.randbytes)
    _replace(random, "_urandom", source.randbytes)  # of SystemRandom and secrets
    random.seed(f"product {seed}")
    _replace(random, "Random", _make_seeded_random(source))
    # Processes have the same id and host; their names also have a random part.
    _replace(os, "getpid", lambda: 1)
    _replace(socket, "gethostname", lambda: "simulated")
    # What another worker does after a crash must happen within a run.
    _replace(job_worker, "POLL_S", 0.5)
    _replace(ttl_stream_reader, "STREAM_POLL_S", 0.5)
    _replace(push_worker, "CHAT_S_MAX", 3.0)
    _replace(push_worker, "CLAIM_S", 4.0)
    _replace(aligned_sleep, "_PHASE_S", random.random() * 60)  # drawn when it was imported


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
