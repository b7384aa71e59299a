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
    Input(name="users", kind="number", default="10k", least=1, most=1e11, help="active users"),
    Input(
        name="concurrent",
        kind="share",
        default="5%",
        least=0,
        most=1,
        help="share of users connected at the peak",
    ),
    Input(
        name="devices",
        kind="number",
        default="1.2",
        least=1,
        most=100,
        help="connections per connected user",
    ),
    Input(
        name="messages_per_user_day",
        kind="number",
        default="40",
        least=0.001,
        most=1e5,
        help="messages per user per day",
    ),
    Input(
        name="peak",
        kind="number",
        default="3",
        least=1,
        most=1000,
        help="load in the busiest minute of a day, divided by the mean",
    ),
    Input(
        name="message_bytes",
        kind="bytes",
        default="200",
        least=1,
        most=262_144,
        help="mean size of a message text",
    ),
    Input(
        name="group_share",
        kind="share",
        default="30%",
        least=0,
        most=1,
        help="share of chats and messages that are in groups",
    ),
    Input(
        name="group_size",
        kind="number",
        default="10",
        least=2,
        most=100_000,
        help="members of a group",
    ),
    Input(
        name="chats_per_user",
        kind="number",
        default="10",
        least=1,
        most=10_000,
        help="active chats per user per week",
    ),
    Input(
        name="chat_days",
        kind="days",
        default="30",
        least=0.01,
        most=36_500,
        help="days for which a chat stays in use",
    ),
    Input(
        name="marks_per_message",
        kind="number",
        default="1",
        least=0,
        most=100_000,
        help="read marks per message",
    ),
    Input(
        name="pages_per_user_day",
        kind="number",
        default="2",
        least=0,
        most=1e5,
        help="pages of older history per user per day",
    ),
    Input(
        name="retention",
        kind="days",
        default="90d",
        least=0.04,
        most=36_500,
        help="age at which messages move from DynamoDB to S3",
    ),
    Input(
        name="keep",
        kind="days",
        default="2y",
        least=0.04,
        most=36_500,
        help="total retention; older messages are not counted",
    ),
    Input(
        name="attachments",
        kind="share",
        default="2%",
        least=0,
        most=1,
        help="share of messages with a file",
    ),
    Input(
        name="attachment_bytes",
        kind="bytes",
        default="200KB",
        least=1,
        most=1e12,
        help="mean size of a file",
    ),
    Input(
        name="replicas",
        kind="number",
        default="1",
        least=0,
        most=5,
        help="replicas per Redis master",
    ),
    Input(
        name="utilization",
        kind="share",
        default="50%",
        least=0.01,
        most=1,
        help="target CPU utilization at the peak",
    ),
    Input(
        name="inbox_max",
        kind="number",
        default="1000",
        least=10,
        most=1e6,
        help="CHAT_REDIS_INBOX_MAX: events kept in a user's inbox",
    ),
    Input(
        name="log_max",
        kind="number",
        default="1000",
        least=10,
        most=1e6,
        help="CHAT_REDIS_LOG_MAX: messages kept in Redis per chat",
    ),
    Input(
        name="backlog_hours",
        kind="number",
        default="1",
        least=0,
        most=1000,
        help="longest DynamoDB outage that Redis must buffer, at the peak",
    ),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A machine type for Redis."""

    name: str
    memory_bytes: float
    per_hour_usd: float
