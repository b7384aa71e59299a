"""Traces of messages: ids and sampling follow from the mid; off they cost nothing; bounded."""

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
from chatserver.telemetry.trace_ids import is_sampled, trace_ids_of
from chatserver.telemetry.tracing import SpanSender, Tracer, open_tracing, tracer
from tests.support.servers.processes import eventually


def make(ids: Any, own: int, name: str, mid: str, from_ns: int, to_ns: int, more: Any) -> Any:
    """A span as a tuple."""
    return ids.trace, own == ids.root, name, mid, from_ns, to_ns, more


def count_of(result: str) -> float:
    return float(SPANS.labels(result)._value.get())


def test_trace_of_a_message_is_the_same_in_every_process() -> None:
    """A constant of the format: spans of two builds are of one trace."""
    ids = trace_ids_of("01M81GG31P47XKGK1Y1N109H00")

    assert f"{ids.trace:032x}" == "012fa7269543d456f9ce91d4942d7dbf"
    assert ids == trace_ids_of("01M81GG31P47XKGK1Y1N109H00")
    assert 0 < ids.root < 2**64 and ids.root != trace_ids_of("01M81GG31P47XKGK1Y1N109H01").root


def test_sampling_takes_its_share_of_mids_that_share_a_stem() -> None:
    """Mids of a burst differ in two characters; nevertheless each is judged by itself."""
    source = MidSource()
    mids = [source.next() for _ in range(10_000)]

    taken = {ratio: [is_sampled(trace_ids_of(mid), ratio) for mid in mids] for ratio in (0, 0.1, 1)}

    assert sum(taken[0]) == 0 and sum(taken[1]) == len(mids)
    assert 700 < sum(taken[0.1]) < 1_300  # ten standard deviations
    assert any(taken[0.1][:1024]) and not all(taken[0.1][:1024])


def test_tracer_tells_a_send_once_and_forgets_what_never_ended() -> None:
    """The first span is the one that all others hang from; memory is bounded."""
    told: list[Any] = []
    made = Tracer(1.0, make, told.append)
    for number in range(tracing.BEGUN_MAX + 1):
        made.begin(f"M{number}", number)

    made.end("M0", 5)  # the oldest gave way
    made.end("M7", 9, seq=3)
    made.end("M7", 10)
    made.record_span("M7", "write", 20, 10)

    assert [(span[1], span[2], span[4], span[5]) for span in told] == [
        (True, "send", 7, 9),
        (False, "write", 20, 20),
    ]
    assert told[0][0] == told[1][0] == trace_ids_of("M7").trace


async def test_spans_are_dropped_and_counted_when_the_collector_hangs() -> None:
    """The queue is bounded; recording a span never waits. Failed batches are counted, too."""
    asked, go_on = threading.Event(), threading.Event()

    def export(batch: Sequence[Any]) -> bool:
        asked.set()
        assert go_on.wait(30)
        return False

    dropped, failed = count_of("dropped"), count_of("failed")
    sender = SpanSender(export)
    sender.put("first")
    assert asked.wait(30)

    for _ in range(tracing.QUEUE_MAX + 3):
        sender.put("more")
    go_on.set()
    sender.close()

    assert count_of("dropped") - dropped == 3
    wanted = failed + tracing.QUEUE_MAX + 1
    await eventually(lambda: count_of("failed") == wanted, deadline_s=30)


def test_tracing_is_off_unless_asked_for_and_over_when_closed() -> None:
    """Off there is no tracer; on there is one for as long as it is open."""
    settings = Telemetry(traces="otlp", traces_endpoint="http://127.0.0.1:9/v1/traces")

    with open_tracing(Telemetry(), "test"):
        assert tracer() is None
    with open_tracing(settings, "test"):
        assert tracer() is not None
    assert tracer() is None


def test_tracing_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence that names the setting and the extra."""
    monkeypatch.setitem(sys.modules, "chatserver.telemetry.otlp", None)

    with (
        pytest.raises(ConfigError, match=r"telemetry\.traces.*tierchat\[otel\]"),
        open_tracing(Telemetry(traces="otlp"), "test"),
    ):
        pass
