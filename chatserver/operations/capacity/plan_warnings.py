"""Warnings of `chatserver plan`: exceeded limits and cheaper options. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chatserver.domain.quantities import format_bytes
from chatserver.operations.capacity.formula_evaluation import format_number
from chatserver.operations.cost.prices import RedisNode

PARTITIONS_MAX: Final = 1024  # upper bound of CHAT_REDIS_PARTITIONS
TABLE_UNITS_QUOTA: Final = 40_000  # AWS default: maximum read or write units per second of a table
PARTITION_WRITE_UNITS: Final = 1000  # AWS: maximum write units per second of a DynamoDB partition
CHAT_SHARDS_MAX: Final = 16  # upper bound of CHAT_WARM_SHARDS_MAX


def list_warnings(values: Mapping[str, float], node: RedisNode) -> list[str]:
    """Return warnings about exceeded limits and cheaper options."""
    messages = []
    if values["deployments"] > 1:
        messages.append(
            f"Redis: {values['redis_nodes']:,.0f} nodes of type {node.name} are needed; one "
            f"cluster has at most {values['nodes_per_cluster']:,.0f}. Divide the users among "
            f"{values['deployments']:,.0f} deployments, each with its own tables or as a tenant "
            "(docs/tenants.md)"
        )
    elif values["partitions"] < values["masters"]:
        messages.append(
            f"Redis: {values['masters']:,.0f} masters are too many for "
            f"{PARTITIONS_MAX} partitions, the maximum of CHAT_REDIS_PARTITIONS"
        )
    quota = TABLE_UNITS_QUOTA
    messages += [
        f"DynamoDB: {peak:,.0f} {kind} units a second at the peak are more than the "
        f"{quota:,} default "
        "quota of a table; raise it in Service Quotas and pre-warm new on-demand tables"
        for kind in ("write", "read")
        if (peak := values[f"peak_{kind}_units_per_s"]) > quota
    ]
    units = values["write_units_group"]
    per_chat = PARTITION_WRITE_UNITS / units
    group_rate = values["peak"] * values["messages_per_chat_day"] / 86_400
    if group_rate > per_chat:
        most = per_chat * CHAT_SHARDS_MAX
        messages.append(
            f"DynamoDB: a chat has {group_rate:,.0f} messages a second at the peak; a partition "
            f"accepts {per_chat:,.0f}. A chat is distributed automatically over up to "
            f"{CHAT_SHARDS_MAX} shards, which accept {most:,.0f}; lower the "
            "peak if that is not enough"
        )
    if values["group_size"] > values["fanout_members_max"]:
        messages.append(
            f"Groups of more than {values['fanout_members_max']:,.0f} members have no inbox "
            f"entries: members read the chat's log (CHAT_CHATS_FANOUT_MEMBERS_MAX)"
        )
    return messages + _list_savings(values)


def _list_savings(values: Mapping[str, float]) -> list[str]:
    savings = []
    stored_bytes = values["logs_bytes"] + values["inboxes_bytes"]
    if values["redis_usd"] > values["total_usd"] / 4 and stored_bytes > values["redis_bytes"] / 2:
        savings.append(
            f"Redis: {format_bytes(stored_bytes)} of {format_bytes(values['redis_bytes'])} are "
            "logs and inboxes; try --log-max 200 and --inbox-max 200 (CHAT_REDIS_LOG_MAX, "
            "CHAT_REDIS_INBOX_MAX). Then devices that return after a long time get a snapshot, "
            "and more history is read from DynamoDB"
        )
    moved = values["is_archived"] * values["is_removed_by_worker"]
    if moved:
        saved = values["messages_per_s"] * values["write_units_message"] * 2.628
        saved *= values["write_units_per_million_usd"]
        savings.append(
            f"DynamoDB: {saved:,.0f} USD per month are for deleting archived messages; with "
            "--removal ttl, DynamoDB deletes them free of charge (docs/archive.md)"
        )
    if values["provisioned_usd"] < values["on_demand_usd"]:
        saved = values["on_demand_usd"] - values["provisioned_usd"]
        savings.append(
            f"DynamoDB: provisioned capacity would cost {saved:,.0f} USD a month less, if "
            f"{format_number(values['provisioned_used_share'] * 100)}% of it is used at the peak "
            f"(CHAT_WARM_BILLING)"
        )
    return savings
