"""Prometheus metrics of all processes.

Labels are bounded: values come from the server (an error code, a partition number), never ids or
client input. A hot path binds its child once: ``ok = SENDS.labels("ok")``.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from chatserver.telemetry.fast_histogram import TalliedHistogram

# gateway

CONNECTIONS = Gauge("chatserver_connections", "Open WebSocket connections, with or without hello")
SESSIONS = Gauge("chatserver_sessions", "Connections that said hello")
CLOSES = Counter(
    "chatserver_closes", "Closed connections by close code; see `close_label`", ["code"]
)
SENDS = Counter("chatserver_sends", "Sends by result: ok, dup, or an error code", ["result"])
ACKS = Counter("chatserver_acks", "Acks of sends: hot or stored", ["durability"])
PUSHES = Counter("chatserver_pushes", "Event frames written to sockets")
PUSH_BYTES = Counter("chatserver_push_bytes", "Bytes of frames written to sockets")
SEND_LATENCY = TalliedHistogram(
    "chatserver_send_seconds",
    "From a queued send to its ack: of the oldest send of each commit script call",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
DELIVERY_LATENCY = TalliedHistogram(
    "chatserver_delivery_seconds",
    "From the commit of an entry to its being written to the sockets that are here: of each entry "
    "that came while they were open",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
SLOW_CONNECTIONS = Gauge(
    "chatserver_slow_connections", "Connections whose peer does not take what is written to it"
)
SEND_QUEUE_BYTES = Gauge(
    "chatserver_send_queue_bytes", "Bytes that wait for peers of slow connections"
)
MAILBOX_LAG = TalliedHistogram(
    "chatserver_mailbox_lag_seconds",
    "From the posting of mail to a gateway to its being read: of the oldest of each read",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
RATE_LIMITED = Counter(
    "chatserver_rate_limited",
    "What was refused because a limit was reached: sends, requests (of a user), sends_in_flight, "
    "requests_in_flight, held (frames), connections, failures, calls, "
    "http_connections, unauthenticated (of an address), logins, entries, slow_mode, "
    "chat_backlog, tokens, turns, attachments, exports",
    ["limit"],
)

# hot tier

COMMIT_BATCH = TalliedHistogram(
    "chatserver_commit_batch_messages",
    "Messages in one commit script call",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
FAN_OUT = TalliedHistogram(
    "chatserver_fan_out_recipients",
    "Members whose inboxes a message goes to: of the first chat of each commit script call",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096, 16_384, 65_536, 131_072),
)
BACKLOG_LENGTH = Gauge(
    "chatserver_backlog_entries", "Committed and not yet persisted", ["partition"]
)
BACKLOG_AGE = Gauge(
    "chatserver_backlog_age_seconds",
    "How long the oldest entry has been waiting to be persisted; 0: none waits",
    ["partition"],
)
UNDELIVERED = Gauge("chatserver_undelivered_chats", "Chats with unfinished fan-out", ["partition"])

# warm tier

DYNAMODB_READ_UNITS = Counter(
    "chatserver_dynamodb_read_units",
    "Read capacity units, as DynamoDB counts",
    ["feature", "table"],
)
DYNAMODB_WRITE_UNITS = Counter(
    "chatserver_dynamodb_write_units",
    "Write capacity units of a table and its indexes, as DynamoDB counts",
    ["feature", "table"],
)
DYNAMODB_UNITS = {"read": DYNAMODB_READ_UNITS, "write": DYNAMODB_WRITE_UNITS}
DYNAMODB_CALLS = Counter(
    "chatserver_dynamodb_calls",
    "Calls, each try by itself: ok, partial (a batch, not done as a whole), condition, throttled, "
    "refused, failed",
    ["feature", "operation", "result"],
)
DYNAMODB_RETRIES = Counter(
    "chatserver_dynamodb_retries", "Calls that were made once more", ["feature"]
)

# workers

PERSISTED = Counter("chatserver_persisted_messages", "Messages written to the warm tier")
DEAD_LETTERS = Counter("chatserver_dead_letters", "Backlog entries that could not be persisted")
SLOW_CHATS = Gauge(
    "chatserver_persist_slow_chats", "Chats whose writes fail while others go on", ["partition"]
)
LONG_BODIES = Counter(
    "chatserver_long_bodies",
    "Bodies that are objects: stored, removed, swept; inline: the bucket was away, the item has it",
    ["what"],
)
PERSIST_LAG = Histogram(
    "chatserver_persist_lag_seconds",
    "From the commit of a message to its being in the warm tier",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
REPAIRED = Counter("chatserver_repaired_chats", "Fan-outs that the repair worker finished")
EVICTED = Counter("chatserver_evicted_chats", "Idle chats that left the hot tier")
CHAT_SHARDS = Gauge(
    "chatserver_chat_shards",
    "Chats that ever were spread, by over how many shards they are now",
    ["shards"],
)
SHARD_MOVES = Counter(
    "chatserver_shard_moves",
    "What came of wanting a chat on more or fewer shards: moved, waiting, raced, full, failed",
    ["outcome"],
)
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
STREAM_REMOVALS = Counter(
    "chatserver_stream_removals",
    "Items that TTL removed, by what was found: archived, expired, returned (put back, because the "
    "archive has it not, or not as it was), refused (cannot be judged)",
    ["found"],
)
STREAM_LAG = Gauge(
    "chatserver_stream_lag_seconds",
    "Age of the oldest record of the Stream that is not handled yet, over all its shards; after 24 "
    "hours it is gone",
)
STREAM_LOOK = Gauge(
    "chatserver_stream_look_time_seconds",
    "When a reader of the Stream last looked what there is to read, since 1970",
)
STREAM_LOST = Counter(
    "chatserver_stream_lost", "Times that records may have left the Stream before they were read"
)
SEGMENT_READS = Counter("chatserver_segment_reads", "Segments read: cache or s3", ["source"])
HISTORY_GAPS = Counter(
    "chatserver_history_gaps",
    "Reads that met a place which no tier explains: page (of history), cold (in the archive), "
    "archive (the worker cannot go on), body (the object of a long one)",
    ["where"],
)
AUDIT_FINDINGS = {
    "missing": Counter("chat_audit_missing", "Entries that no tier has, found by the audit"),
    "duplicate": Counter("chat_audit_duplicate", "Entries of one seq more than once, by the audit"),
    "mismatch": Counter("chat_audit_mismatch", "Entries that are not what was written, or differ"),
    "orphan": Counter("chat_audit_orphan", "Objects of the archive that no row names"),
}
AUDIT_FAILED = Counter(
    "chat_audit_failed_chats", "Chats that the audit could not read: a tier did not answer"
)
AUDIT_ROUND = Gauge(
    "chat_audit_round_time_seconds",
    "When the audit last came to the end of a round over all chats, since 1970",
    ["partition"],
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
TURNS = Counter(
    "chatserver_assistant_turns",
    "Answers of companions by how they ended: done, length, refused, stopped, broken, late, "
    "failed, again (begun anew later), none (there was nothing to answer)",
    ["end"],
)
TURNS_RUNNING = Gauge("chatserver_assistant_turns_running", "Answers being made by this process")
TURN_TOKENS = Counter(
    "chatserver_assistant_tokens", "Tokens of models, counted or estimated: in, out", ["way"]
)
FIRST_DELTA = Histogram(
    "chatserver_assistant_first_delta_seconds",
    "From the beginning of an answer to the first delta of its model",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
SUMMARIES = Counter(
    "chatserver_assistant_summaries", "Summaries of sessions: written, dropped, failed", ["what"]
)
LIKES_COUNTED = Counter("chatserver_likes_counted", "Likes and ends of likes that were counted")
LIKE_WRITES = Counter("chatserver_like_count_writes", "Writes to counts of likes")
COUNTERS_LAG = Gauge(
    "chatserver_counters_lag_seconds",
    "How long the oldest like has been waiting to be counted",
    ["partition"],
)
TIMELINE_LINES = Counter("chatserver_timeline_lines", "Rows written into timelines")
TIMELINE_LAG = Histogram(
    "chatserver_timeline_lag_seconds",
    "From a post to the end of its way to timelines",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
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
BEFORE_SEND_VERDICTS = Counter(
    "chatserver_before_send",
    "Messages shown to before_send: accept, change, refuse, failed, passed_over",
    ["result"],
)
HOOK_EVENTS = Counter(
    "chatserver_webhook_events", "Events of webhooks: sent, failed, dead", ["result"]
)
READY = Gauge("chatserver_ready", "Whether /readyz says that the process is: 1 or 0")
SPANS = Counter(
    "chatserver_trace_spans", "Spans of traces: exported, failed or dropped", ["result"]
)
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
HTTP_CLOSED = Counter(
    "chatserver_http_connections_closed",
    "HTTP connections closed by the server: idle_timeout, head_timeout, body_timeout, "
    "write_timeout, displaced (by a newcomer, at a limit of connections)",
    ["reason"],
)

# `increase()` ignores a series' first sample. Series that alert on their first increment are
# therefore created in advance.
for _counter, _words in (
    (HISTORY_GAPS, ("page", "cold", "archive", "body")),
    (STREAM_REMOVALS, ("returned", "refused")),
    (LONG_BODIES, ("inline",)),
    (SHARD_MOVES, ("full", "failed")),
    (HOOK_EVENTS, ("dead",)),
):
    for _word in _words:
        _counter.labels(_word)


def close_label(code: int) -> str:
    """Return the close code as a label if RFC 6455 or this server defines it, else ``other``."""
    is_known = 1000 <= code <= 1015 or 3000 <= code < 3050 or 3500 <= code < 3550
    return str(code) if is_known else "other"
