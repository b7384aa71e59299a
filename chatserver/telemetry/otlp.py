"""OpenTelemetry span export through OTLP over HTTP. Needs the extra `otel`.

Imported only by `chatserver.telemetry.tracing`, when tracing is on. Headers for the collector come
from the standard environment variable ``OTEL_EXPORTER_OTLP_HEADERS``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from chatserver.telemetry.trace_ids import TraceIds

SERVICE = "chatserver"
_KINDS = {"send": SpanKind.SERVER, "commit": SpanKind.CLIENT, "write": SpanKind.CLIENT}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)

# If the collector is down, failed batches are counted in metrics, not logged.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


def make_export(endpoint: str, timeout_s: float) -> Callable[[Sequence[ReadableSpan]], bool]:
    """Return a function that exports spans within `timeout_s` and returns whether it succeeded."""
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=timeout_s)

    def export(spans: Sequence[ReadableSpan]) -> bool:
        return exporter.export(spans) is SpanExportResult.SUCCESS

    return export


def make_span_maker(process: str, pid: int) -> Callable[..., ReadableSpan]:
    """Return a span factory for this process. A span with attribute `error` is marked as failed."""
    resource = Resource.create(
        {"service.name": SERVICE, "chatserver.process": process, "process.pid": pid}
    )
    scope = InstrumentationScope(SERVICE)

    def make(
        ids: TraceIds,
        span_id: int,
        name: str,
        mid: str,
        from_ns: int,
        to_ns: int,
        attributes: Mapping[str, str | int],
    ) -> ReadableSpan:
        named = {f"chatserver.{key}": value for key, value in attributes.items()}
        is_root = span_id == ids.root
        return ReadableSpan(
            name=name,
            context=_make_context(ids.trace, span_id, is_remote=False),
            parent=None if is_root else _make_context(ids.trace, ids.root, is_remote=True),
            resource=resource,
            attributes={"chatserver.mid": mid, **named},
            kind=_KINDS.get(name, SpanKind.INTERNAL),
            status=Status(StatusCode.ERROR if "error" in attributes else StatusCode.UNSET),
            start_time=from_ns,
            end_time=to_ns,
            instrumentation_scope=scope,
        )

    return make


def _make_context(trace_id: int, span_id: int, *, is_remote: bool) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote, _SAMPLED)
