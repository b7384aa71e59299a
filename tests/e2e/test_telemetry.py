"""Traces and metrics of real processes, which must not contain message texts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from chatserver.telemetry.trace_ids import get_trace_ids
from tests.support.rawchat import Failed
from tests.support.servers.processes import eventually, free_port
from tests.support.stack import open_stack, read_metric

BODY = "nobody-but-bob-may-read-this"
MEASURED = (
    "ready",
    "connections",
    'acks_total{durability="hot"}',
    "push_bytes_total",
    "delivery_seconds_count",
    "send_seconds_count",
    "commit_batch_messages_count",
    "fan_out_recipients_sum",
    "gateway_stream_lag_seconds_count",
    'trace_spans_total{result="exported"}',
)
WANTED = {"send", "commit", "deliver", "persist", "write"}


class Collector:
    """An OTLP/HTTP receiver that stores the requests, as bytes and decoded."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                collector.raw.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def spans_of(self, trace: int) -> list[tuple[str, Any]]:
        found = []
        for raw in list(self.raw):
            for some in ExportTraceServiceRequest.FromString(raw).resource_spans:
                about = {each.key: each.value.string_value for each in some.resource.attributes}
                for scope in some.scope_spans:
                    for span in scope.spans:
                        if int.from_bytes(span.trace_id) == trace:
                            found.append((about["chatserver.process"], span))
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


async def test_message_is_recorded_in_one_trace_and_in_metrics(
    tmp_path: Path, collector: Collector
) -> None:
    """The trace has the spans for send, commit, deliver, persist and write, without message text.

    The processes also count the message, and the backlog age increases while DynamoDB is down.
    """
    env = {
        "CHAT_TELEMETRY_TRACES": "otlp",
        "CHAT_TELEMETRY_TRACES_ENDPOINT": collector.endpoint,
        "CHAT_TELEMETRY_TRACES_SAMPLE": "1",
        "CHAT_GATEWAY_RPC_TIMEOUT_S": "30",
    }
    ports = {name: free_port() for name in ("worker", "gateway")}

    async def is_counted(name: str, process: str = "gateway") -> bool:
        return await read_metric(ports[process], name) > 0

    with open_stack(tmp_path, gateways=0, workers=(), fsync="no", env=env) as stack:
        stack.start_worker(
            "persist", "repair", "rpc", CHAT_TELEMETRY_METRICS_PORT=str(ports["worker"])
        )
        stack.start_gateway(
            CHAT_TELEMETRY_METRICS_PORT=str(ports["gateway"]),
            CHAT_LIMITS_SENDS="0.001/s burst 5",
        )
        async with stack.chat_of("alice") as alice, stack.chat_of("bob"):
            chat = await alice.open_direct("bob")
            ack = await alice.send(chat, BODY)
            ids = get_trace_ids(ack["mid"])

            async def has_all_spans() -> bool:
                return {span.name for _, span in collector.spans_of(ids.trace)} >= WANTED

            await eventually(has_all_spans, deadline_s=60, what="all spans are exported")
            # A gateway measures the first event of a tick. That of the first message may be the
            # event of the new chat.
            await alice.send(chat, BODY)
            for name in MEASURED:
                await eventually(lambda name=name: is_counted(name), deadline_s=60, what=name)
            stack.dynamodb.kill()
            await alice.send(chat, BODY)
            age = 'backlog_age_seconds{partition="0"}'
            await eventually(lambda: is_counted(age, "worker"), deadline_s=60, what=age)
            with pytest.raises(Failed, match="too many sends"):
                for _ in range(5):
                    await alice.send(chat, BODY)
            refused = 'rate_limited_total{limit="sends"}'
            await eventually(lambda: is_counted(refused), deadline_s=60, what=refused)

    spans = {span.name: (process, span) for process, span in collector.spans_of(ids.trace)}
    assert {name: spans[name][0] for name in WANTED} == {
        "send": "gateway",
        "commit": "gateway",
        "deliver": "gateway",
        "persist": "worker",
        "write": "worker",
    }
    root = spans["send"][1]
    assert int.from_bytes(root.span_id) == ids.root and root.parent_span_id == b""
    for name, (_, span) in spans.items():
        if name != "send":
            assert span.parent_span_id == root.span_id and span.span_id != root.span_id
        attributes = {each.key: each.value for each in span.attributes}
        assert attributes["chatserver.mid"].string_value == ack["mid"]
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    commit, write = spans["commit"][1], spans["write"][1]
    assert root.start_time_unix_nano <= commit.start_time_unix_nano
    assert commit.end_time_unix_nano <= write.end_time_unix_nano
    assert not any(BODY.encode() in raw for raw in collector.raw)
