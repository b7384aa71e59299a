"""Capacity model of `chatserver plan`: resources and cost as named formulas.

Each row has a label and its formula. Names in formulas are inputs
(`chatserver.operations.capacity.plan_inputs.PlanInputs`), measured constants
(chatserver/operations/capacity/constants.json, docs/capacity.md), prices
(chatserver/operations/cost/prices.toml) and earlier rows. Rates are per second; costs are in US
dollars per month. Machines are sized for peak rates; usage-based costs use mean rates.

Invariants: no value is negative, and load-dependent values increase with the number of users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chatserver.operations.capacity.formula_evaluation import Row

LOAD = (
    Row("connections", "connections", "users * concurrent * devices"),
    Row("messages_per_s", "messages, mean", "users * messages_per_user_day / 86400", "/s"),
    Row("peak_messages_per_s", "messages, peak", "messages_per_s * peak", "/s"),
    Row(
        "active_chats",
        "chats in use",
        "users * chats_per_user * ((1 - group_share) / 2 + group_share / group_size)",
    ),
    Row(
        "messages_per_chat_day",
        "messages per chat and day",
        "users * messages_per_user_day / active_chats",
    ),
    Row(
        "entries_per_message",
        "inbox entries per message",
        "2 * (1 - group_share) + upto(group_size, fanout_members_max) * group_share",
    ),
    Row(
        "frames_per_message",
        "frames to sockets per message",
        "devices * ((1 - group_share) * (1 + concurrent)"
        " + group_share * (1 + (group_size - 1) * concurrent))",
    ),
    Row("is_archived", "1 if messages move to S3", "min(1, ceil(max(0, keep - retention)))"),
    Row(
        "segments_per_message",
        "segments written per message, at most",
        "min(1, max(archive_moves_per_day / messages_per_chat_day, 1 / segment_entries_min))",
    ),
)

GATEWAYS = (
    Row(
        "gateway_us",
        "CPU per message",
        "max(gateway_cpu_us_per_message + gateway_cpu_us_per_further_delivery"
        " * (frames_per_message - deliveries_per_message),"
        " gateway_cpu_us_per_further_delivery * frames_per_message)",
        "µs",
    ),
    Row(
        "gateway_cores",
        "cores for messages",
        "peak_messages_per_s * gateway_us / 1000000 / utilization",
    ),
    Row(
        "gateways",
        "gateway processes, one core each",
        "ceil(max(2, gateway_cores, connections / connections_per_gateway))",
    ),
    Row(
        "gateway_bytes",
        "memory",
        "gateways * process_bytes + connections * gateway_bytes_per_idle_session",
        "B",
    ),
    Row(
        "gateway_usd",
        "gateways",
        "(gateways * core_per_hour_usd + gateway_bytes / 1073741824 * memory_per_gb_hour_usd)"
        " * 730",
        "USD",
    ),
)

REDIS = (
    Row(
        "redis_us",
        "CPU per message",
        "max(redis_cpu_us_per_message + redis_cpu_us_per_further_entry"
        " * (entries_per_message - 2), redis_cpu_us_per_further_entry)",
        "µs",
    ),
    Row("redis_cores", "cores", "peak_messages_per_s * redis_us / 1000000 / utilization"),
    Row(
        "log_entry_bytes",
        "one log entry",
        "redis_bytes_per_log_entry + redis_bytes_per_body_byte * message_bytes",
        "B",
    ),
    Row(
        "logs_bytes",
        "logs of chats",
        "active_chats * max(redis_bytes_per_stream,"
        " min(log_max, messages_per_chat_day * chat_days) * log_entry_bytes)",
        "B",
    ),
    Row(
        "inboxes_bytes",
        "inboxes of users",
        "users * max(redis_bytes_per_stream, min(inbox_max,"
        " messages_per_user_day * entries_per_message * keep) * redis_bytes_per_inbox_entry)",
        "B",
    ),
    Row(
        "refs_bytes",
        "idempotency keys of 1.5 days",
        "active_chats * max(min(40, messages_per_chat_day * chat_days),"
        " 1.5 * messages_per_chat_day) * redis_bytes_per_ref",
        "B",
    ),
    Row(
        "heads_bytes",
        "state of chats and users",
        "active_chats * (redis_bytes_per_chat"
        " + (2 * (1 - group_share) + group_size * group_share) * redis_bytes_per_member)"
        " + users * (redis_bytes_per_user + chats_per_user * redis_bytes_per_box_chat)",
        "B",
    ),
    Row("sessions_bytes", "sessions", "connections * redis_bytes_per_idle_session", "B"),
    Row(
        "backlog_bytes",
        "backlog while DynamoDB is down",
        "peak_messages_per_s * backlog_hours * 3600 * log_entry_bytes",
        "B",
    ),
    Row(
        "redis_bytes",
        "memory, without replicas",
        "logs_bytes + inboxes_bytes + refs_bytes + heads_bytes + sessions_bytes + backlog_bytes",
        "B",
    ),
    Row(
        "masters",
        "masters",
        "ceil(max(1, redis_cores, redis_bytes / (node_bytes * node_filled_share)))",
    ),
    Row("redis_nodes", "nodes", "masters * (1 + replicas)"),
    Row("deployments", "deployments", "ceil(redis_nodes / nodes_per_cluster)"),
    Row(
        "partitions",
        "CHAT_REDIS_PARTITIONS",
        "min(1024, power2(upto(1, masters - 1) * max(64, masters / deployments * 2)))",
    ),
    Row("redis_usd", "Redis", "redis_nodes * node_per_hour_usd * 730", "USD"),
)

WORKERS = (
    Row(
        "persist_cores",
        "cores: persist",
        "peak_messages_per_s * worker_cpu_us_per_message / 1000000 / utilization",
    ),
    Row(
        "archive_cores",
        "cores: archive",
        "is_archived * messages_per_s * (is_removed_by_worker * archive_cpu_us_by_worker"
        " + (1 - is_removed_by_worker) * archive_cpu_us_by_ttl) / 1000000 / utilization",
    ),
    Row(
        "rpc_cores",
        "cores: older history",
        "users * pages_per_user_day / 86400 * peak * page_cpu_us / 1000000 / utilization",
    ),
    Row(
        "workers",
        "worker processes, one core each",
        "ceil(max(2, persist_cores + archive_cores + rpc_cores))",
    ),
    Row(
        "worker_usd",
        "workers",
        "workers * (core_per_hour_usd + process_bytes / 1073741824 * memory_per_gb_hour_usd) * 730",
        "USD",
    ),
)

DYNAMODB = (
    Row(
        "write_units_direct",
        "write units of a direct message",
        "ceil((upto(message_bytes, body_inline_bytes_max) + item_bytes_direct) / 1024)"
        " + index_units_direct + attachments",
    ),
    Row(
        "write_units_group",
        "write units of a group message",
        "ceil((upto(message_bytes, body_inline_bytes_max) + item_bytes_group) / 1024)"
        " + index_units_group + attachments",
    ),
    Row(
        "write_units_message",
        "write units of a message",
        "write_units_direct * (1 - group_share) + write_units_group * group_share",
    ),
    Row(
        "removal_units",
        "write units to archive a message",
        "is_archived * (is_removed_by_worker * write_units_message"
        " + segments_per_message * (write_units_per_segment"
        " + (2 - group_share) * write_units_per_position))",
    ),
    Row(
        "write_units_per_s",
        "write units, mean",
        "messages_per_s * (write_units_message + marks_per_message * write_units_per_mark"
        " + removal_units)",
        "/s",
    ),
    Row(
        "peak_write_units_per_s",
        "write units, peak",
        "peak_messages_per_s * (write_units_message + marks_per_message * write_units_per_mark)"
        " + messages_per_s * removal_units",
        "/s",
    ),
    Row(
        "read_units_per_s",
        "read units, mean",
        "users * pages_per_user_day / 86400 * read_units_per_page"
        " + is_archived * messages_per_s * ((message_bytes + item_bytes_direct) / 4096"
        " + segments_per_message * read_units_per_segment)",
        "/s",
    ),
    Row("peak_read_units_per_s", "read units, peak", "read_units_per_s * peak", "/s"),
    Row("items", "messages kept", "users * messages_per_user_day * min(retention, keep)"),
    Row(
        "dynamodb_bytes",
        "bytes kept, with indexes",
        "items * (upto(message_bytes, body_inline_bytes_max)"
        " + (item_bytes_direct + index_bytes_direct) * (1 - group_share)"
        " + (item_bytes_group + index_bytes_group) * group_share + stored_bytes_per_item)",
        "B",
    ),
    Row(
        "table_partitions",
        "partitions of the table, at least",
        "ceil(max(1, peak_write_units_per_s / 1000, peak_read_units_per_s / 3000,"
        " dynamodb_bytes / 10000000000))",
    ),
    Row(
        "on_demand_usd",
        "units, on demand",
        "(write_units_per_s * write_units_per_million_usd"
        " + read_units_per_s * read_units_per_million_usd) / 1000000 * 2628000",
        "USD",
    ),
    Row(
        "provisioned_usd",
        "units, provisioned for the peak",
        "(peak_write_units_per_s * write_unit_per_hour_usd"
        " + peak_read_units_per_s * read_unit_per_hour_usd) / provisioned_used_share * 730",
        "USD",
    ),
    Row(
        "dynamodb_storage_usd",
        "storage and point-in-time recovery",
        "dynamodb_bytes / 1073741824 * (dynamodb_storage_per_gb_month_usd + pitr_per_gb_month_usd)",
        "USD",
    ),
)

S3 = (
    Row(
        "archived_messages",
        "messages kept",
        "users * messages_per_user_day * max(0, keep - retention)",
    ),
    Row(
        "archive_bytes",
        "bytes of segments",
        "archived_messages * (message_bytes + segment_line_bytes) * segment_packed_share",
        "B",
    ),
    Row(
        "bodies_bytes",
        "bytes of long bodies",
        "items * (message_bytes - upto(message_bytes, body_inline_bytes_max))",
        "B",
    ),
    Row(
        "files_bytes",
        "bytes of files",
        "users * messages_per_user_day * keep * attachments * attachment_bytes",
        "B",
    ),
    Row(
        "puts_per_month",
        "PUTs per month",
        "messages_per_s * 2628000 * (is_archived * segments_per_message + attachments * 2)",
    ),
    Row(
        "gets_per_month",
        "GETs per month",
        "messages_per_s * 2628000 * attachments"
        " * (1 - group_share + group_share * (group_size - 1))",
    ),
    Row(
        "s3_usd",
        "S3",
        "(archive_bytes + bodies_bytes + files_bytes) / 1073741824 * s3_storage_per_gb_month_usd"
        " + puts_per_month / 1000 * puts_per_thousand_usd"
        " + gets_per_month / 1000 * gets_per_thousand_usd",
        "USD",
    ),
)

NETWORK = (
    Row(
        "peak_egress_bytes_per_s",
        "to connected devices, peak",
        "peak_messages_per_s * (frames_per_message * (message_bytes + frame_bytes) + ack_bytes)",
        "B/s",
    ),
    Row(
        "egress_bytes",
        "to all devices, per month",
        "messages_per_s * 2628000 * (devices * (2 * (1 - group_share) + group_size * group_share)"
        " * (message_bytes + frame_bytes) + ack_bytes) + gets_per_month * attachment_bytes",
        "B",
    ),
    Row("network_usd", "network", "egress_bytes / 1073741824 * egress_per_gb_usd", "USD"),
)

TOTAL = (
    Row("cores", "cores of gateways and workers", "gateways + workers"),
    Row(
        "total_usd",
        "total, DynamoDB on demand",
        "gateway_usd + redis_usd + worker_usd + on_demand_usd + dynamodb_storage_usd + s3_usd"
        " + network_usd",
        "USD",
    ),
    Row(
        "total_provisioned_usd",
        "total, DynamoDB provisioned",
        "total_usd - on_demand_usd + provisioned_usd",
        "USD",
    ),
    Row("usd_per_user", "per user and month", "total_usd / users", "USD"),
)

# tier → its formulas, in the order of their evaluation
FORMULAS: Final[Mapping[str, tuple[Row, ...]]] = {
    "load": LOAD,
    "gateways": GATEWAYS,
    "redis": REDIS,
    "workers": WORKERS,
    "dynamodb": DYNAMODB,
    "s3": S3,
    "network": NETWORK,
    "total": TOTAL,
}
