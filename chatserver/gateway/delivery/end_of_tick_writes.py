"""End-of-tick writes: one write per connection and loop tick. Also records delivery metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from chatserver.domain.clock import Clock
from chatserver.domain.ids import GatewayId
from chatserver.gateway.session.shared_session_context import HotPathCounters
from chatserver.gateway.transport.connection import Connection
from chatserver.protocol import codec
from chatserver.telemetry import metrics
from chatserver.telemetry.tracing import Id, Tracer


class TickWrites:
    """Flushes connections at the end of the loop tick in which they queued frames."""

    def __init__(
        self,
        counters: HotPathCounters,
        clock: Clock,
        gateway: GatewayId,
        tracer: Tracer | None,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._gateway = gateway
        self._tracer = tracer
        self._unflushed: list[Connection] = []
        if tracer is not None:
            counters.traced = []

    def flush_soon(self, connection: Connection) -> None:
        """Flush the connection at the end of this tick. Call this once per connection and tick."""
        if not self._unflushed:
            connection.loop.call_soon(self._flush)
        self._unflushed.append(connection)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        written = 0
        for connection in unflushed:
            written += connection.flush()
        counters = self._counters
        counters.written_bytes += written
        if counters.first is not None:
            self._record_delivered(counters.first)
        counters.pushed_before = counters.pushed

    def _record_delivered(self, first: bytes) -> None:
        counters = self._counters
        if ts := codec.get_event_ts(first):
            latency_s = max(0.0, self._clock.time() - ts / 1e6)
            pushed = max(1, counters.pushed - counters.pushed_before)
            metrics.DELIVERY_LATENCY.observe(latency_s, pushed)
        counters.first = None
        if self._tracer is not None and counters.traced:
            self._record_spans(self._tracer, counters.traced)
            counters.traced.clear()

    def _record_spans(self, tracer: Tracer, events: Sequence[tuple[bytes, int]]) -> None:
        now_ns = time.time_ns()
        for body, devices in events:
            if mid := codec.get_event_mid(body):
                labels: dict[str, Id] = {"gateway": self._gateway, "devices": devices}
                tracer.record_span(
                    mid, "deliver", codec.get_event_ts(body) * 1000, now_ns, **labels
                )
