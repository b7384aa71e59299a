"""Inputs of `chatserver plan`, and the evaluation of its capacity model. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from chatserver.domain.quantities import Kind
from chatserver.operations.capacity import model as model
from chatserver.operations.capacity.formulas import Value, compute

PARTITIONS_MAX: Final = 1024  # of CHAT_REDIS_PARTITIONS
TABLE_UNITS_QUOTA: Final = 40_000  # per second and table, unless raised by AWS
PARTITION_WRITE_UNITS: Final = 1000  # of a DynamoDB partition, per second
CHAT_SHARDS_MAX: Final = 16  # of CHAT_WARM_SHARDS_MAX


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """An input with its default and bounds."""

    name: str
    kind: Kind
    default: str
    least: float
    most: float
    help: str


INPUTS: Final = (
    Input("users", "number", "10k", 1, 1e11, "who have an account and use it"),
    Input("concurrent", "share", "5%", 0, 1, "of the users who are connected at the peak"),
    Input("devices", "number", "1.2", 1, 100, "connections of a user who is connected"),
    Input("messages_per_user_day", "number", "40", 0.001, 1e5, "messages that a user sends a day"),
    Input("peak", "number", "3", 1, 1000, "the busiest minute of a day, over its mean"),
    Input("message_bytes", "bytes", "200", 1, 262_144, "of a message's text"),
    Input("group_share", "share", "30%", 0, 1, "of chats and messages that are groups'"),
    Input("group_size", "number", "10", 2, 100_000, "members of a group"),
    Input("chats_per_user", "number", "10", 1, 10_000, "chats of a user in use in a week"),
    Input("chat_days", "days", "30", 0.01, 36_500, "how long a chat stays in use without a break"),
    Input("marks_per_message", "number", "1", 0, 100_000, "read marks that a message causes"),
    Input("pages_per_user_day", "number", "2", 0, 1e5, "pages of older history that a user reads"),
    Input("retention", "days", "90d", 0.04, 36_500, "in DynamoDB, then in S3"),
    Input("keep", "days", "2y", 0.04, 36_500, "in all; what is older is not counted"),
    Input("attachments", "share", "2%", 0, 1, "of messages that have a file"),
    Input("attachment_bytes", "bytes", "200KB", 1, 1e12, "of a file"),
    Input("replicas", "number", "1", 0, 5, "of each master of Redis"),
    Input("utilisation", "share", "50%", 0.01, 1, "of a core at the peak"),
    Input("inbox_max", "number", "1000", 10, 1e6, "CHAT_REDIS_INBOX_MAX: events kept per user"),
    Input("log_max", "number", "1000", 10, 1e6, "CHAT_REDIS_LOG_MAX: messages kept per chat"),
    Input("backlog_hours", "number", "1", 0, 1000, "that DynamoDB may be away at the peak"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A machine type for Redis."""

    name: str
    memory_bytes: float
    per_hour_usd: float


def compute_plan(known: dict[str, float], nodes: Sequence[Node]) -> tuple[list[Value], Node]:
    """Evaluate the capacity model; return its rows and the Redis node type.

    `known` has all inputs, constants and prices, and gains the rows. The node is the smallest one
    with which one cluster is enough; the largest if none is.
    """
    found = compute((*model.LOAD, *model.GATEWAYS, *model.REDIS), known)
    for node in sorted(nodes, key=lambda each: each.memory_bytes):
        known |= {"node_bytes": node.memory_bytes, "node_per_hour_usd": node.per_hour_usd}
        sized = compute(model.REDIS_NODES, known)
        if known["deployments"] <= 1:
            break
    found += sized
    rest = (*model.WORKERS, *model.DYNAMODB, *model.S3, *model.NETWORK, *model.TOTAL)
    return found + compute(rest, known), node
