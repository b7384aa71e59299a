"""Inputs of `chatserver plan`, and their bounds. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Final, get_args, get_type_hints

import attrs
import click

from chatserver.domain.quantities import Kind, parse_quantity
from chatserver.errors import BadRequest


@attrs.frozen(eq=False)
class Quantity(click.ParamType[str]):
    """An option with a quantity. `parse_inputs` parses it, to report all problems together."""

    kind: Kind
    least: float
    most: float

    name = "n"


SHARE: Final = Quantity("share", 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanInputs:
    users: Annotated[str, Quantity("number", 1, 1e11), "active users"] = "10k"
    concurrent: Annotated[str, SHARE, "share of users connected at the peak"] = "5%"
    devices: Annotated[str, Quantity("number", 1, 100), "connections per connected user"] = "1.2"
    messages_per_user_day: Annotated[
        str, Quantity("number", 0.001, 1e5), "messages per user per day"
    ] = "40"
    peak: Annotated[
        str, Quantity("number", 1, 1000), "load in the busiest minute of a day, divided by the mean"
    ] = "3"
    message_bytes: Annotated[str, Quantity("bytes", 1, 262_144), "mean size of a message text"] = (
        "200"
    )
    group_share: Annotated[str, SHARE, "share of chats and messages that are in groups"] = "30%"
    group_size: Annotated[str, Quantity("number", 2, 100_000), "members of a group"] = "10"
    chats_per_user: Annotated[
        str, Quantity("number", 1, 10_000), "active chats per user per week"
    ] = "10"
    chat_days: Annotated[
        str, Quantity("days", 0.01, 36_500), "days for which a chat stays in use"
    ] = "30"
    marks_per_message: Annotated[str, Quantity("number", 0, 100_000), "read marks per message"] = (
        "1"
    )
    pages_per_user_day: Annotated[
        str, Quantity("number", 0, 1e5), "pages of older history per user per day"
    ] = "2"
    retention: Annotated[
        str, Quantity("days", 0.04, 36_500), "age at which messages move from DynamoDB to S3"
    ] = "90d"
    keep: Annotated[
        str, Quantity("days", 0.04, 36_500), "total retention; older messages are not counted"
    ] = "2y"
    attachments: Annotated[str, SHARE, "share of messages with a file"] = "2%"
    attachment_bytes: Annotated[str, Quantity("bytes", 1, 1e12), "mean size of a file"] = "200KB"
    replicas: Annotated[str, Quantity("number", 0, 5), "replicas per Redis master"] = "1"
    utilization: Annotated[
        str, Quantity("share", 0.01, 1), "target CPU utilization at the peak"
    ] = "50%"
    inbox_max: Annotated[
        str, Quantity("number", 10, 1e6), "CHAT_REDIS_INBOX_MAX: events kept in a user's inbox"
    ] = "1000"
    log_max: Annotated[
        str, Quantity("number", 10, 1e6), "CHAT_REDIS_LOG_MAX: messages kept in Redis per chat"
    ] = "1000"
    backlog_hours: Annotated[
        str,
        Quantity("number", 0, 1000),
        "longest DynamoDB outage that Redis must buffer, at the peak",
    ] = "1"


INPUTS: Final[Mapping[str, Quantity]] = {
    name: get_args(hint)[1]
    for name, hint in get_type_hints(PlanInputs, include_extras=True).items()
}


def parse_inputs(texts: PlanInputs) -> dict[str, float]:
    """Parse all inputs.

    Raises:
        BadRequest: a text is invalid or out of bounds; the error lists all of them, one per line.
    """
    inputs, problems = {}, []
    for name, quantity in INPUTS.items():
        option = f"--{name.replace('_', '-')}"
        text = getattr(texts, name)
        try:
            inputs[name] = parse_quantity(
                text, quantity.kind, option, quantity.least, quantity.most
            )
        except BadRequest as exc:
            problems.append(exc.message)
    if problems:
        raise BadRequest("\n".join(problems))
    return inputs
