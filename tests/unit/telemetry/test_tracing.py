"""Message traces: ids and sampling derived from the mid, bounded memory, off by default."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from chatserver.config import Telemetry
from chatserver.domain.ids import MidSource
from chatserver.errors import ConfigError
from chatserver.telemetry import tracing
from chatserver.telemetry.metrics import SPANS
from chatserver.telemetry.trace_ids import get_trace_ids, is_sampled
from chatserver.telemetry.tracing import SpanSender, Tracer, open_tracing, tracer
from tests.support.servers.processes import eventually


def make_span(ids: Any, own: int, name: str, mid: str, from_ns: int, to_ns: int, more: Any) -> Any:
    """Return a span as a tuple."""
    return ids.trace, own == ids.root, name, mid, from_ns, to_ns, more


def count_of(result: str) -> float:
    return float(SPANS.labels(result)._value.get())


def test_trace_ids_of_a_message_are_equal_in_every_process() -> None:
    """Ids are part of the format: spans of two releases belong to one trace."""
    ids = get_trace_ids("01M81GG31P47XKGK1Y1N109H00")

    assert f"{ids.trace:032x}" == "012fa7269543d456f9ce91d4942d7dbf"
    assert ids == get_trace_ids("01M81GG31P47XKGK1Y1N109H00")
    assert 0 < ids.root < 2**64 and ids.root != get_trace_ids("01M81GG31P47XKGK1Y1N109H01").root


def test_sampling_of_mids_with_a_common_prefix_matches_the_ratio() -> None:
    """Mids of a burst differ only in two characters, but are sampled independently."""
    source = MidSource()
    mids = [source.next() for _ in range(10_000)]

    sampled = {
        ratio: [is_sampled(get_trace_ids(mid), ratio) for mid in mids] for ratio in (0, 0.1, 1)
    }

    assert sum(sampled[0]) == 0 and sum(sampled[1]) == len(mids)
    assert 700 < sum(sampled[0.1]) < 1_300  # ten standard deviations
    assert any(sampled[0.1][:1024]) and not all(sampled[0.1][:1024])


def test_tracer_records_a_send_once_and_drops_unfinished_sends() -> None:
    """The send is the root span; the number of unfinished sends is bounded."""
    spans: list[Any] = []
    full_tracer = Tracer(1.0, make_span, spans.append)
    for number in range(tracing.STARTED_MAX + 1):
        full_tracer.begin(f"M{number}", number)

    full_tracer.end("M0", 5)  # was dropped as the oldest
    full_tracer.end("M7", 9, seq=3)
    full_tracer.end("M7", 10)
    full_tracer.record_span("M7", "write", 20, 10)

    assert [(span[1], span[2], span[4], span[5]) for span in spans] == [
        (True, "send", 7, 9),
        (False, "write", 20, 20),
    ]
    assert spans[0][0] == spans[1][0] == get_trace_ids("M7").trace


async def test_spans_are_dropped_and_counted_when_the_collector_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue is bounded, and recording a span never waits. Failed batches are counted."""
    monkeypatch.setattr(tracing, "FLUSH_S", 0.01)
    exporting, proceed = threading.Event(), threading.Event()

    def export(batch: Sequence[Any]) -> bool:
        exporting.set()
        assert proceed.wait(30)
        return False

    dropped, failed = count_of("dropped"), count_of("failed")
    sender = SpanSender(export)
    sender.put("first")
    assert exporting.wait(30)

    for _ in range(tracing.QUEUE_MAX + 3):
        sender.put("more")
    proceed.set()
    sender.close()

    assert count_of("dropped") - dropped == 3
    wanted = failed + tracing.QUEUE_MAX + 1
    await eventually(lambda: count_of("failed") == wanted, deadline_s=30)


def test_tracing_is_off_by_default_and_after_close() -> None:
    """There is a tracer only while tracing is configured and open."""
    settings = Telemetry(traces="otlp", traces_endpoint="http://127.0.0.1:9/v1/traces")

    with open_tracing(Telemetry(), "test"):
        assert tracer() is None
    with open_tracing(settings, "test"):
        assert tracer() is not None
    assert tracer() is None


def test_tracing_without_the_extra_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting and the extra to install."""
    monkeypatch.delitem(sys.modules, "chatserver.telemetry.otlp", raising=False)
    for name in ["opentelemetry", *sys.modules]:
        if name.partition(".")[0] == "opentelemetry":
            monkeypatch.setitem(sys.modules, name, None)

    with (
        pytest.raises(ConfigError, match=r"telemetry\.traces.*pip install '\.\[otel\]'"),
        open_tracing(Telemetry(traces="otlp"), "test"),
    ):
        pass
