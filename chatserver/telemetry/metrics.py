"""Prometheus metrics of all processes.

The number of label values is bounded: they come from the server (an error code, a partition
number), and are never ids or client input. Code that runs often should call ``SENDS.labels("ok")``
only once.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from chatserver.telemetry.fast_histogram import FastHistogram

# gateway

CONNECTIONS = Gauge(
    "chatserver_connections", "Open WebSocket connections, including those before hello"
)
SESSIONS = Gauge("chatserver_sessions", "Connections after hello")
CLOSES = Counter(
    "chatserver_closes", "Closed connections by close code; unknown codes are `other`", ["code"]
)
SENDS = Counter("chatserver_sends", "Sends by result: ok, dup, or an error code", ["result"])
ACKS = Counter("chatserver_acks", "Acks for sends: hot or stored", ["durability"])
PUSHES = Counter("chatserver_pushes", "Event frames written to sockets")
PUSH_BYTES = Counter("chatserver_push_bytes", "Bytes of frames written to sockets")
SEND_LATENCY = FastHistogram(
    "chatserver_send_seconds",
    "From queueing a send to its ack, for the oldest send in each commit script call",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
DELIVERY_LATENCY = FastHistogram(
    "chatserver_delivery_seconds",
    "From an entry's commit to its write to this process's sockets, per entry",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
SLOW_CONNECTIONS = Gauge("chatserver_slow_connections", "Connections whose peer reads too slowly")
SEND_QUEUE_BYTES = Gauge("chatserver_send_queue_bytes", "Bytes queued for slow connections")
GATEWAY_STREAM_LAG = FastHistogram(
    "chatserver_gateway_stream_lag_seconds",
    "From sending a record to a gateway until it is read, for the oldest record in each read",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
RATE_LIMITED = Counter(
    "chatserver_rate_limited",
    "Refusals at a limit: sends, requests (per user), sends_in_flight, "
    "requests_in_flight, held (frames), connections, failures, calls, "
    "http_connections, unauthenticated (per address), logins, entries, slow_mode, "
    "chat_backlog, tokens, turns, attachments, exports",
    ["limit"],
)

# hot tier

COMMIT_BATCH = FastHistogram(
    "chatserver_commit_batch_messages",
    "Messages in one commit script call",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
FAN_OUT = FastHistogram(
    "chatserver_fan_out_recipients",
    "Inboxes to which a message is written, for the first chat in each commit script call",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16_384, 65_536, 131_072),
)
BACKLOG_LENGTH = Gauge(
    "chatserver_backlog_entries",
    "Entries that have been committed but not yet persisted",
    ["partition"],
)
BACKLOG_AGE = Gauge(
    "chatserver_backlog_age_seconds",
    "Age of the oldest entry that has not been persisted; 0: none",
    ["partition"],
)
UNDELIVERED = Gauge("chatserver_undelivered_chats", "Chats with unfinished fan-out", ["partition"])

# warm tier

DYNAMODB_READ_UNITS = Counter(
    "chatserver_dynamodb_read_units",
    "Read capacity units, as reported by DynamoDB",
    ["feature", "table"],
)
DYNAMODB_WRITE_UNITS = Counter(
    "chatserver_dynamodb_write_units",
    "Write capacity units of a table and its indexes, as reported by DynamoDB",
    ["feature", "table"],
)
DYNAMODB_UNITS = {"read": DYNAMODB_READ_UNITS, "write": DYNAMODB_WRITE_UNITS}
DYNAMODB_CALLS = Counter(
    "chatserver_dynamodb_calls",
    "DynamoDB call attempts: ok, partial (incomplete batch), condition, throttled, refused, failed",
    ["feature", "operation", "result"],
)
DYNAMODB_RETRIES = Counter("chatserver_dynamodb_retries", "Retried DynamoDB calls", ["feature"])

# workers

PERSISTED = Counter("chatserver_persisted_messages", "Messages written to the warm tier")
DEAD_LETTERS = Counter("chatserver_dead_letters", "Backlog entries that could not be persisted")
SLOW_CHATS = Gauge(
    "chatserver_persist_slow_chats",
    "Chats whose writes fail while writes of other chats succeed",
    ["partition"],
)
LONG_BODIES = Counter(
    "chatserver_long_bodies",
    "Message bodies in S3: stored, removed, swept; inline: kept in the item because S3 was down",
    ["what"],
)
ENCRYPTION_KEY_LOADS = Counter(
    "chatserver_encryption_key_loads",
    "Data keys of client-side encryption: loaded, deleted, or failed (KMS or DynamoDB is down)",
    ["outcome"],
)
ENCRYPTION_REFUSED = Counter(
    "chatserver_encryption_refused",
    "Encrypted values that do not match their item or key: changed or moved by another writer",
)
PERSIST_LAG = Histogram(
    "chatserver_persist_lag_seconds",
    "From a message's commit to its write to the warm tier",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
REPAIRED = Counter("chatserver_repaired_chats", "Fan-outs that the repair worker finished")
EVICTED = Counter("chatserver_evicted_chats", "Idle chats that left the hot tier")
CHAT_SHARDS = Gauge(
    "chatserver_chat_shards",
    "Chats that have ever been sharded, by their current number of shards",
    ["shards"],
)
SHARD_MOVES = Counter(
    "chatserver_shard_moves",
    "Attempts to change a chat's number of shards: moved, waiting, raced, full, failed",
    ["outcome"],
)
ARCHIVED = Counter("chatserver_archived_messages", "Entries moved from the warm tier to the cold")
SEGMENTS = Counter(
    "chatserver_archive_segments",
    "Archive segments: written, filled (a small one was extended), rewritten",
    ["what"],
)
SEGMENT_BYTES = Counter("chatserver_archive_bytes", "Bytes of segments written to S3")
ARCHIVE_LAG = Gauge(
    "chatserver_archive_lag_seconds",
    "How long the archiving of the oldest pending message is overdue",
    ["partition"],
)
ARCHIVE_PASS = Gauge(
    "chatserver_archive_pass_time_seconds",
    "Unix time of the last complete pass of the archive worker",
    ["partition"],
)
ANALYTICS_ROWS = Counter("chatserver_analytics_rows", "Exported rows, including unchanged ones")
ANALYTICS_FILES = Counter(
    "chatserver_analytics_files", "Parquet files put: written (new), rewritten, compacted", ["what"]
)
ANALYTICS_POSTPONED = Counter(
    "chatserver_analytics_postponed",
    "Exports postponed to the next pass: the data changed during the export, or the export failed",
)
ANALYTICS_PASS = Gauge(
    "chatserver_analytics_pass_time_seconds", "Unix time of the last complete analytics pass"
)
SEARCH_LAG = Gauge(
    "chatserver_search_lag_seconds",
    "Age of the oldest message that the search index lacks, by index partition; 0: none",
    ["partition"],
)
SEARCH_DOCUMENTS = Gauge(
    "chatserver_search_documents", "Messages in the search index, by index partition", ["partition"]
)
SEARCH_BYTES = Gauge(
    "chatserver_search_bytes", "Size of the search index, by index partition", ["partition"]
)
SEARCH_CHANGES = Counter("chatserver_search_changes", "Changes written to the search index")
SEARCH_LATENCY = Histogram(
    "chatserver_search_seconds",
    "Search time: index (engine only), request (including the result checks)",
    ["what"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
SEARCH_STALE = Counter(
    "chatserver_search_stale",
    "Search hits that were discarded: changed, deleted or not readable by the caller",
)
STREAM_REMOVALS = Counter(
    "chatserver_stream_removals",
    "Items that TTL deleted: archived, expired, returned (restored, because the archive has no "
    "identical copy), refused (not readable)",
    ["found"],
)
STREAM_LAG = Gauge(
    "chatserver_stream_lag_seconds",
    "Age of the oldest unprocessed record in the Stream, across all shards; records expire "
    "after 24 h",
)
STREAM_LIST_TIME = Gauge(
    "chatserver_stream_list_time_seconds",
    "Unix time at which a reader last listed the Stream's shards",
)
STREAM_LOST = Counter(
    "chatserver_stream_lost", "How often records may have expired before they were read"
)
SEGMENT_READS = Counter("chatserver_segment_reads", "Segments read: cache or s3", ["source"])
HISTORY_GAPS = Counter(
    "chatserver_history_gaps",
    "Reads of a message that no tier has: page (history), cold (archive), archive (the worker is "
    "blocked), body (object of a long message)",
    ["where"],
)
AUDIT_FINDINGS = {
    "missing": Counter("chat_audit_missing", "Entries that no tier has, found by the audit"),
    "duplicate": Counter("chat_audit_duplicate", "Duplicate entries for a seq, found by the audit"),
    "mismatch": Counter(
        "chat_audit_mismatch", "Entries that differ from what was written, found by the audit"
    ),
    "orphan": Counter("chat_audit_orphan", "Archive objects without a row, found by the audit"),
}
AUDIT_FAILED = Counter(
    "chat_audit_failed_chats", "Chats that the audit could not read because a tier did not respond"
)
AUDIT_ROUND = Gauge(
    "chat_audit_round_time_seconds",
    "Unix time of the last complete audit of all chats",
    ["partition"],
)
PUSH_NOTICES = Counter(
    "chatserver_push_notices",
    "Pushes to devices: sent, gone, refused, unknown, not_wanted, given_up or dropped",
    ["outcome"],
)
PUSH_REFUSALS = Counter(
    "chatserver_push_refusals",
    "Pushes refused by a push service (APNs), by the reason that it gave",
    ["kind", "reason"],
)
RESPONSES = Counter(
    "chatserver_assistant_responses",
    "AI responses by outcome: done, length, refused, stopped, broken, late, failed, again "
    "(rescheduled), none (nothing to respond to)",
    ["end"],
)
RESPONSES_RUNNING = Gauge(
    "chatserver_assistant_responses_running", "AI responses running in this process"
)
RESPONSE_TOKENS = Counter(
    "chatserver_assistant_tokens", "Model tokens, counted or estimated: in, out", ["way"]
)
FIRST_DELTA = Histogram(
    "chatserver_assistant_first_delta_seconds",
    "From the start of an AI response to its first delta",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
SUMMARIES = Counter(
    "chatserver_assistant_summaries", "Session summaries: written, dropped, failed", ["what"]
)
TOOL_CALLS = Counter(
    "chatserver_assistant_tool_calls", "Tool calls by companions: done, failed", ["outcome"]
)
MEMORY_EXTRACTIONS = Counter(
    "chatserver_assistant_memory_extractions",
    "Model calls that extract a companion's memory: done, failed",
    ["outcome"],
)
COUNTERS_CHANGES = Counter(
    "chatserver_counters_changes", "Counted likes and follows, and their removals"
)
COUNTERS_WRITES = Counter(
    "chatserver_counters_writes", "Writes of like, follower and following counts"
)
COUNTERS_LAG = Gauge(
    "chatserver_counters_lag_seconds",
    "Age of the oldest uncounted like or follow",
    ["partition"],
)
TIMELINE_ROWS = Counter("chatserver_timeline_rows", "Rows written into timelines")
TIMELINE_LAG = Histogram(
    "chatserver_timeline_lag_seconds",
    "From a post to its last timeline write",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
WORKER_RESTARTS = Counter("chatserver_worker_restarts", "Restarts of failed workers", ["name"])

# every process

LOOP_LAG = Histogram(
    "chatserver_loop_lag_seconds",
    "Delay of an event loop timer",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)
BEFORE_SEND_VERDICTS = Counter(
    "chatserver_before_send",
    "Messages sent to the before_send webhook: accept, change, refuse, failed, passed_over",
    ["result"],
)
HOOK_EVENTS = Counter("chatserver_webhook_events", "Webhook events: sent, failed, dead", ["result"])
READY = Gauge("chatserver_ready", "1 if /readyz reports the process as ready, else 0")
SPANS = Counter("chatserver_trace_spans", "Trace spans: exported, failed or dropped", ["result"])
LOG_LINES_DROPPED = Counter("chatserver_log_lines_dropped", "Log lines that could not be written")
HTTP_REQUESTS = Counter(
    "chatserver_http_requests", "HTTP requests by route pattern and status", ["route", "status"]
)
HTTP_CONNECTIONS = Gauge(
    "chatserver_http_connections",
    "HTTP connections by stage: idle, head, body (waiting for the client's request), write "
    "(waiting for the client to read), busy (working for the client)",
    ["stage"],
)
SLOTS = Gauge(
    "chatserver_slots",
    "Slots for concurrent work, by kind (requests, searches, uploads, link previews) and state "
    "(held, waiting). If an idle process has held slots, they have leaked: restart it",
    ["kind", "state"],
)
HTTP_CLOSED = Counter(
    "chatserver_http_connections_closed",
    "HTTP connections closed by the server: idle_timeout, head_timeout, body_timeout, "
    "write_timeout, displaced (closed for a new connection at a connection limit)",
    ["reason"],
)

# `increase()` ignores a series' first sample. Series that alert on their first increment are
# therefore created in advance.
for _counter, _words in (
    (HISTORY_GAPS, ("page", "cold", "archive", "body")),
    (STREAM_REMOVALS, ("returned", "refused")),
    (LONG_BODIES, ("inline",)),
    (ENCRYPTION_KEY_LOADS, ("failed",)),
    (SHARD_MOVES, ("full", "failed")),
    (HOOK_EVENTS, ("dead",)),
):
    for _word in _words:
        _counter.labels(_word)


def close_label(code: int) -> str:
    """Return the label for a close code: ``other`` unless RFC 6455 or this server defines it."""
    is_known = 1000 <= code <= 1015 or 3000 <= code < 3050 or 3500 <= code < 3550
    return str(code) if is_known else "other"
