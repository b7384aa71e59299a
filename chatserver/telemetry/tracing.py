"""Tracing of messages through gateway, Redis, worker, DynamoDB and S3. Off by default.

The trace id, the root span and the sampling decision are computed from a message's mid
(`chatserver.telemetry.trace_ids`), so spans from all processes belong to one trace. The gateway's
`send` is the parent of all other spans. Spans are recorded when they end.

Guarantees:
- Cost when off: one comparison per span; `tracer()` returns None.
- No user content is exported: attributes are ids, counts and constants.
- No caller waits for the collector: a thread sends spans from a bounded queue; spans that do not
  fit are dropped and counted (``chatserver_trace_spans``).
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import attrs

from chatserver.extras import explain_missing
from chatserver.telemetry.metrics import SPANS
from chatserver.telemetry.trace_ids import TraceIds, get_trace_ids, is_sampled

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

QUEUE_MAX: Final = 8_192
BATCH_MAX: Final = 512
FLUSH_S: Final = 1.0
EXPORT_S_MAX: Final = 5.0
CLOSE_S_MAX: Final = 1.0
STARTED_MAX: Final = 10_000  # maximum sampled sends in progress; one more drops the oldest

Id = str | int
Make = Callable[..., "ReadableSpan"]


class TracingSettings(Protocol):
    """Tracing settings, a subset of the settings section `telemetry`."""

    @property
    def traces(self) -> Literal["off", "otlp"]: ...
    @property
    def traces_endpoint(self) -> str: ...
    @property
    def traces_sample(self) -> float: ...


@attrs.define(eq=False, repr=False)
class Tracer:
    """Records spans of sampled messages. Use it only from the event loop's thread."""

    _ratio: float
    _make: Make
    _put: Callable[[ReadableSpan], None]
    # mid → start of its send, in Unix ns
    _started: dict[str, int] = attrs.field(factory=dict, init=False)

    def find(self, mid: str) -> TraceIds | None:
        """Return the ids of a message's trace; None if it is not sampled."""
        ids = get_trace_ids(mid)
        return ids if is_sampled(ids, self._ratio) else None

    def begin(self, mid: str, at_ns: int) -> None:
        """Record the start of a send; `end` records its span."""
        if self.find(mid) is not None:
            self._started[mid] = at_ns
            if len(self._started) > STARTED_MAX:  # drop the oldest: rejected sends never call `end`
                del self._started[next(iter(self._started))]

    def end(self, mid: str, at_ns: int, **attributes: Id) -> None:
        """Record the root span of a message's trace if its start was recorded."""
        began = self._started.pop(mid, None)
        if began is not None:
            ids = get_trace_ids(mid)
            self._put(self._make(ids, ids.root, "send", mid, began, at_ns, attributes))

    def record_span(self, mid: str, name: str, from_ns: int, to_ns: int, **attributes: Id) -> None:
        """Record another span of a message's trace if it is sampled."""
        ids = self.find(mid)
        if ids is not None:
            own = int.from_bytes(os.urandom(8)) or 1
            span = self._make(ids, own, name, mid, from_ns, max(from_ns, to_ns), attributes)
            self._put(span)


_tracer: Tracer | None = None


def tracer() -> Tracer | None:
    """Return the process's tracer; None if tracing is off."""
    return _tracer


@contextlib.contextmanager
def open_tracing(settings: TracingSettings, process: str) -> Iterator[None]:
    """Enable tracing as configured while the context is open.

    Objects call `tracer` when they are created, so create them inside this context.

    Raises:
        ConfigError: the extra `otel` is not installed.
    """
    global _tracer
    if settings.traces == "off":
        yield
        return
    with explain_missing("telemetry.traces"):
        from chatserver.telemetry.otlp import make_export, make_span_maker
    sender = SpanSender(make_export(settings.traces_endpoint, EXPORT_S_MAX))
    _tracer = Tracer(settings.traces_sample, make_span_maker(process, os.getpid()), sender.put)
    try:
        yield
    finally:
        _tracer = None
        sender.close()


class SpanSender:
    """Sends spans from a background thread. `export` returns whether a batch was accepted."""

    def __init__(self, export: Callable[[Sequence[Any]], bool]) -> None:
        self._export = export
        self._queue: collections.deque[Any] = collections.deque()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, span: Any) -> None:
        """Queue a span without blocking; drop it if the queue is full."""
        if len(self._queue) >= QUEUE_MAX:
            SPANS.labels("dropped").inc()
        else:
            self._queue.append(span)

    def close(self) -> None:
        """Send the queued spans within `CLOSE_S_MAX`, and stop."""
        self._is_closed.set()
        self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        while not self._is_closed.wait(FLUSH_S):
            self._send_all()
        self._send_all()

    def _send_all(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
            is_exported = self._export(batch)
            SPANS.labels("exported" if is_exported else "failed").inc(len(batch))
