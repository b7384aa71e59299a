"""`chatserver trace`: locate a message by its id (mid), without printing its text. Read-only.

Exit codes: 0 found, 1 not found (perhaps because a tier did not respond), 2 invalid option.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec

from chatserver.cli.process_setup import prepare, require_redis, run
from chatserver.command_options import with_options
from chatserver.config import Settings
from chatserver.domain.ids import ChatId, UserId, parse_id, parse_mid
from chatserver.domain.quantities import format_count
from chatserver.errors import BadRequest, NotFound, Unavailable
from chatserver.telemetry.printable_text import escape_unprintable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from chatserver.operations.trace.model import Recipient, Trace

Line = tuple[str, str]


@click.command()
@click.argument("mid")
@with_options
def trace(
    mid: str,
    *,
    chat: Annotated[
        str | None,
        "Chat that contains the message. Messages of any age are found, and no "
        "other chats are searched.",
    ] = None,
    user: Annotated[str | None, "Member of the chat. Only this user's chats are searched."] = None,
    chats_max: Annotated[
        int,
        click.IntRange(1, 10_000_000),
        "Maximum number of chats to search without --chat and --user.",
    ] = 10_000,
    members_max: Annotated[
        int,
        click.IntRange(1, 500),
        "Maximum number of members for which to show the delivery state.",
    ] = 50,
    is_json: Annotated[bool, "Print one JSON object."] = False,
) -> None:
    """Show the state of message MID: committed, delivered, persisted, archived.

    The command queries Redis, DynamoDB and S3, and reports each tier that does not respond.
    It changes nothing.
    """
    try:
        parse_mid(mid)
        scope = (
            None if chat is None else ChatId(parse_id(chat, "--chat")),
            None if user is None else UserId(parse_id(user, "--user")),
        )
    except BadRequest as exc:
        raise click.UsageError(exc.message) from None
    settings = prepare("trace")
    message_trace, reason, problems = run(_trace(settings, mid, scope, chats_max, members_max))
    if message_trace is None:
        for problem in problems:
            click.echo(f"chatserver: {escape_unprintable(problem)}", err=True)
        click.echo(f"chatserver: {reason}", err=True)
        sys.exit(1)
    if is_json:
        click.echo(json.dumps(as_json(message_trace)))
    else:
        _print(message_trace)


async def _trace(
    settings: Settings,
    mid: str,
    scope: tuple[ChatId | None, UserId | None],
    chats_max: int,
    members_max: int,
) -> tuple[Trace | None, str, list[str]]:
    """Return `(trace, reason, problems)`; `reason` explains why the trace is None."""
    from chatserver.cold.client import open_s3
    from chatserver.cold.long_bodies import BodyFiles
    from chatserver.cold.segment_objects import SegmentObjects
    from chatserver.domain.clock import SystemClock
    from chatserver.hot.redis.factory import open_hot
    from chatserver.operations.trace.hot import HotTrace
    from chatserver.operations.trace.service import MessageTrace
    from chatserver.operations.trace.warm import WarmTrace
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.messages.long_bodies import LongBodies

    problems: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        hot: HotTrace | None = None
        try:
            require_redis(settings.redis)
            hot = HotTrace(await stack.enter_async_context(open_hot(settings.redis)))
        except Unavailable as exc:
            problems.append(exc.message)
        dynamodb = await stack.enter_async_context(open_dynamodb(settings.warm))
        store = await stack.enter_async_context(open_s3(settings.cold))
        client = dynamodb.for_feature("operations")
        bodies = LongBodies(client, settings.warm, BodyFiles(store, client.cipher))
        segments = SegmentObjects(store, settings.archive, client.cipher)
        older = WarmTrace(client=client, bodies=bodies, segments=segments)
        message_trace = MessageTrace(
            hot=hot, older=older, clock=SystemClock(), chats_max=chats_max, members_max=members_max
        )
        message_trace.problems += problems
        try:
            return await message_trace.trace(mid, *scope), "", message_trace.problems
        except NotFound as exc:
            return None, exc.message, message_trace.problems


def as_json(message_trace: Trace) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    return {**msgspec.to_builtins(message_trace), "is_persisted": message_trace.is_persisted}


def _print(message_trace: Trace) -> None:
    from rich.console import Console, Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, text in build_trace_lines(message_trace):
        table.add_row(name, escape_unprintable(text))
    parts: list[RenderableType] = [table]
    if message_trace.recipients:
        columns = ("member", "joined at", "inbox", "received", "read", "gateways")
        members = Table(*columns, box=None)
        for recipient in message_trace.recipients:
            members.add_row(*build_recipient_cells(recipient, message_trace.found.seq))
        parts += ["", members]
    Console(highlight=False, markup=False, soft_wrap=True).print(Group(*parts))


def build_trace_lines(message_trace: Trace) -> list[Line]:
    found = message_trace.found
    lines = [
        ("message", f"{message_trace.mid}, created {_format_us(message_trace.made_ms * 1000)}"),
        ("trace id", message_trace.trace_id),
        (
            "committed",
            f"chat {found.chat}, seq {found.seq}, ts {found.ts} ({_format_us(found.ts)})",
        ),
        ("", f"{found.kind} from {found.sender}; found in {_SOURCES[found.source]}"),
        *_build_hot_lines(message_trace),
        *_build_delivery_lines(message_trace),
        *_build_warm_lines(message_trace),
        *_build_cold_lines(message_trace),
    ]
    if message_trace.held_since_ms is not None:
        lines.append(
            ("legal hold", f"of the chat, since {_format_us(message_trace.held_since_ms * 1000)}")
        )
    return [*lines, *(("PROBLEM", problem) for problem in message_trace.problems)]


_SOURCES = {
    "backlog": "the backlog",
    "hot": "the log of its chat in Redis",
    "warm": "DynamoDB",
    "marker": "DynamoDB, as a removal marker",
    "cold": "the archive",
}


def _build_hot_lines(message_trace: Trace) -> list[Line]:
    hot = message_trace.hot
    if hot is None:
        return [("hot", "unknown: Redis does not respond")]
    if not hot.is_open:
        return [("hot", "no: the chat is not in Redis")]
    state = "in the log of its chat" if hot.is_in_log else "no longer in the log of its chat"
    return [("hot", f"{state}, which is at seq {hot.head}")]


def _build_delivery_lines(message_trace: Trace) -> list[Line]:
    hot, seq = message_trace.hot, message_trace.found.seq
    text = "unknown: Redis does not respond"
    if hot is not None and hot.is_large:
        text = f"large chat without inboxes: {format_count(hot.gateways, 'gateway')} subscribed"
    elif hot is not None and (not hot.is_open or hot.served >= seq):
        text = "all inboxes written"
    elif hot is not None:
        text = "fan-out not finished"
    if hot is not None and hot.undelivered_since_ms is not None:
        text += "; the chat has undelivered entries since "
        text += _format_us(hot.undelivered_since_ms * 1000)
    lines = [("delivered", text)]
    if message_trace.members is not None:
        recipients = message_trace.recipients
        received = sum(bool(recipient.has_received) for recipient in recipients)
        read = sum(bool(recipient.has_read) for recipient in recipients)
        scope = (
            f"the first {len(recipients)} of {message_trace.members}"
            if len(recipients) < message_trace.members
            else "all"
        )
        lines.append(
            (
                "",
                f"{format_count(message_trace.members, 'member')} now; of {scope}: "
                f"{received} received it, {read} read it",
            )
        )
    return lines


def _build_warm_lines(message_trace: Trace) -> list[Line]:
    warm, waiting = message_trace.warm, message_trace.waiting
    if waiting is not None and waiting.why:
        return [("persisted", f"NO: dead letter {waiting.entry}: {waiting.why}")]
    if waiting is not None and warm is None:
        since = _format_us(waiting.since_ms * 1000)
        return [("persisted", f"not yet: in the backlog at {waiting.entry} since {since}")]
    if warm is None:
        text = {
            True: "yes, but the table has no item for it",
            False: "no",
            None: "not known",
        }[message_trace.is_persisted]
        return [("persisted", text)]
    if warm.is_marker:
        return [("persisted", f"expired at {_format_s(warm.expires_at)}; a marker is kept")]
    lines = [
        ("persisted", f"yes: partition {warm.partition}, rev {warm.rev}, checksum {warm.checksum}")
    ]
    body = {"inline": "in the item", "object": f"in {warm.body_key}", "none": "none"}[warm.body]
    files = format_count(warm.attachments, "attachment")
    lines.append(("body", f"{format_count(warm.body_bytes, 'byte')}, {body}; {files}"))
    if warm.is_deleted:
        lines.append(("deleted", f"yes, by the entry at seq {warm.rev}"))
    if warm.edited_seq is not None:
        lines.append(("edited", f"by the entry at seq {warm.edited_seq}"))
    if warm.reactions:
        lines.append(("reactions", f"of {format_count(warm.reactions, 'user')}"))
    if warm.expires_at is not None:
        lines.append(("expires", _format_s(warm.expires_at)))
    if warm.ttl is not None:
        lines.append(("TTL", f"may delete the item after {_format_s(warm.ttl)}"))
    if warm.restored_until is not None:
        lines.append(("restored", f"from the archive, until {_format_s(warm.restored_until)}"))
    return lines


def _build_cold_lines(message_trace: Trace) -> list[Line]:
    cold = message_trace.cold
    if message_trace.archived_upto is None:
        return [("archived", "unknown: DynamoDB does not respond")]
    if cold is None:
        upto = message_trace.archived_upto
        return [("archived", f"no: the chat is archived up to seq {upto}" if upto else "no")]
    state = {
        "right": "checksum right",
        "wrong": "WRONG: the object is missing or different",
        "unread": "unknown: S3 does not respond",
    }[cold.checksum]
    return [
        ("archived", f"yes: {cold.key}"),
        ("", f"seq {cold.first} to {cold.last}, {cold.stored_bytes} bytes, {state}"),
        ("", f"sha256 {cold.sha256}"),
    ]


def build_recipient_cells(recipient: Recipient, seq: int) -> list[str]:
    if recipient.joined > seq:
        return [
            recipient.user,
            f"seq {recipient.joined}, later",
            "-",
            "-",
            "-",
            _format_gateways(recipient),
        ]
    return [
        f"{recipient.user} (sender)" if recipient.is_sender else recipient.user,
        f"seq {recipient.joined}",
        "-" if recipient.inbox is None else f"at {recipient.inbox}",
        _format_flag(recipient.has_received),
        _format_flag(recipient.has_read),
        _format_gateways(recipient),
    ]


def _format_gateways(recipient: Recipient) -> str:
    return {None: "?", 0: "no"}.get(recipient.gateways, f"on {recipient.gateways}")


def _format_flag(flag: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[flag]


def _format_us(micros: int) -> str:
    moment = datetime.datetime.fromtimestamp(micros / 1e6, datetime.UTC)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def _format_s(seconds: int | None) -> str:
    return "unknown time" if seconds is None else _format_us(seconds * 1_000_000)
