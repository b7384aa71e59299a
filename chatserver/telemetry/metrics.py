"""Every metric of the product, in one place.

Labels are bounded: a label holds a word of ours (an error code, a partition number), never an id
or anything a client chose. A hot path binds its child once: ``ok = SENDS.labels("ok")``.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, start_http_server

from chatserver.errors import ConfigError

# gateway

CONNECTIONS = Gauge("chatserver_connections", "Open WebSocket connections, with or without hello")
SESSIONS = Gauge("chatserver_sessions", "Connections that said hello")
CLOSES = Counter(
    "chatserver_closes", "Closed connections by close code; see `close_label`", ["code"]
)
SENDS = Counter("chatserver_sends", "Sends by result: ok, dup, or an error code", ["result"])
PUSHES = Counter("chatserver_pushes", "Event frames written to sockets")
PUSH_BYTES = Counter("chatserver_push_bytes", "Bytes written to sockets")
SEND_LATENCY = Histogram(
    "chatserver_send_seconds",
    "From the decoded send to its ack",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)

# hot tier

COMMIT_BATCH = Histogram(
    "chatserver_commit_batch_messages",
    "Messages in one commit script call",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
BACKLOG_LENGTH = Gauge(
    "chatserver_backlog_entries", "Committed and not yet persisted", ["partition"]
)
UNDELIVERED = Gauge("chatserver_undelivered_chats", "Chats with unfinished fan-out", ["partition"])

# workers

PERSISTED = Counter("chatserver_persisted_messages", "Messages written to the warm tier")
DEAD_LETTERS = Counter("chatserver_dead_letters", "Backlog entries that could not be persisted")
PERSIST_LAG = Histogram(
    "chatserver_persist_lag_seconds",
    "From the commit of a message to its being in the warm tier",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
REPAIRED = Counter("chatserver_repaired_chats", "Fan-outs that the repair worker finished")
EVICTED = Counter("chatserver_evicted_chats", "Idle chats that left the hot tier")
ARCHIVED = Counter("chatserver_archived_messages", "Entries moved from the warm tier to the cold")
SEGMENTS = Counter(
    "chatserver_archive_segments",
    "Segments by what happened: written, filled (a small one, with what follows), rewritten",
    ["what"],
)
SEGMENT_BYTES = Counter("chatserver_archive_bytes", "Bytes of segments written to S3")
ARCHIVE_LAG = Gauge(
    "chatserver_archive_lag_seconds",
    "By how much the oldest message that the archive could not take is older than it may be",
    ["partition"],
)
ARCHIVE_PASS = Gauge(
    "chatserver_archive_pass_time_seconds",
    "When the archive worker last came to the end of a pass, since 1970",
    ["partition"],
)
SEGMENT_READS = Counter("chatserver_segment_reads", "Segments read: cache or s3", ["source"])
HISTORY_GAPS = Counter(
    "chatserver_history_gaps",
    "Reads that met a place which no tier explains: page (of history), cold (in the archive), "
    "archive (the worker cannot go on)",
    ["where"],
)
PUSH_NOTICES = Counter(
    "chatserver_push_notices",
    "Pushes to devices: sent, gone, refused, unknown, not_wanted, given_up or dropped",
    ["outcome"],
)
PUSH_REFUSALS = Counter(
    "chatserver_push_refusals",
    "What a push service had against a push, in its own words: of APNs",
    ["kind", "reason"],
)
WORKER_RESTARTS = Counter(
    "chatserver_worker_restarts", "Workers that failed and ran again", ["name"]
)

# every process

LOOP_LAG = Histogram(
    "chatserver_loop_lag_seconds",
    "How late the event loop woke a task",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)
SCREENED = Counter(
    "chatserver_before_send",
    "Messages shown to before_send: accept, change, refuse, failed, passed_over",
    ["result"],
)
HOOK_EVENTS = Counter(
    "chatserver_webhook_events", "Events of webhooks: sent, failed, dead", ["result"]
)
LOG_LINES_DROPPED = Counter("chatserver_log_lines_dropped", "Log lines that could not be written")
HTTP_REQUESTS = Counter(
    "chatserver_http_requests", "HTTP requests by route pattern and status", ["route", "status"]
)


def close_label(code: int) -> str:
    """Return the label of a close code: itself, if it is of RFC 6455 or of ours, else ``other``."""
    is_known = 1000 <= code <= 1015 or 3000 <= code < 3050 or 3500 <= code < 3550
    return str(code) if is_known else "other"


def serve_metrics(port: int | None) -> None:
    """Serve ``/metrics`` on loopback, from a thread: never on a port that clients reach.

    Raises:
        ConfigError: the port is taken.
    """
    if port is None:
        return
    try:
        start_http_server(port, addr="127.0.0.1")
    except OSError as exc:
        raise ConfigError([f"telemetry.metrics_port: cannot listen on {port} ({exc})"]) from exc
