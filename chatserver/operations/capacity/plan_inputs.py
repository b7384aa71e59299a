"""Inputs of `chatserver plan`, and the Redis node types. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.domain.quantities import Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    name: str
    kind: Kind
    default: str
    least: float
    most: float
    help: str


INPUTS: Final = (
    Input("users", "number", "10k", 1, 1e11, "active users"),
    Input("concurrent", "share", "5%", 0, 1, "share of users connected at the peak"),
    Input("devices", "number", "1.2", 1, 100, "connections per connected user"),
    Input("messages_per_user_day", "number", "40", 0.001, 1e5, "messages per user per day"),
    Input(
        "peak", "number", "3", 1, 1000, "load in the busiest minute of a day, divided by the mean"
    ),
    Input("message_bytes", "bytes", "200", 1, 262_144, "mean size of a message text"),
    Input("group_share", "share", "30%", 0, 1, "share of chats and messages that are in groups"),
    Input("group_size", "number", "10", 2, 100_000, "members of a group"),
    Input("chats_per_user", "number", "10", 1, 10_000, "active chats per user per week"),
    Input(
        "chat_days",
        "days",
        "30",
        0.01,
        36_500,
        "days for which a chat stays in use",
    ),
    Input("marks_per_message", "number", "1", 0, 100_000, "read marks per message"),
    Input("pages_per_user_day", "number", "2", 0, 1e5, "pages of older history per user per day"),
    Input(
        "retention", "days", "90d", 0.04, 36_500, "age at which messages move from DynamoDB to S3"
    ),
    Input("keep", "days", "2y", 0.04, 36_500, "total retention; older messages are not counted"),
    Input("attachments", "share", "2%", 0, 1, "share of messages with a file"),
    Input("attachment_bytes", "bytes", "200KB", 1, 1e12, "mean size of a file"),
    Input("replicas", "number", "1", 0, 5, "replicas per Redis master"),
    Input("utilization", "share", "50%", 0.01, 1, "target CPU utilization at the peak"),
    Input(
        "inbox_max",
        "number",
        "1000",
        10,
        1e6,
        "CHAT_REDIS_INBOX_MAX: events kept in a user's inbox",
    ),
    Input(
        "log_max", "number", "1000", 10, 1e6, "CHAT_REDIS_LOG_MAX: messages kept in Redis per chat"
    ),
    Input(
        "backlog_hours",
        "number",
        "1",
        0,
        1000,
        "longest DynamoDB outage that Redis must buffer, at the peak",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A machine type for Redis."""

    name: str
    memory_bytes: float
    per_hour_usd: float
