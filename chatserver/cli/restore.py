"""`chatserver restore`: temporarily restore archived messages of a chat to DynamoDB."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import WriteUnitsMax, handle_errors, with_options
from chatserver.domain.ids import ChatId, parse_id
from chatserver.domain.quantities import format_count
from chatserver.errors import BadRequest, Conflict, NotFound

if TYPE_CHECKING:
    from workers.archive.restorer import Bound

_UNITS = {"h": 3600, "d": 86_400}


@click.command()
@click.argument("chat")
@handle_errors(Conflict, NotFound, usage=(BadRequest,), is_resumable=True)
@with_options
async def restore(
    chat: str,
    *,
    start: Annotated[
        str | None, "--from", {"metavar": "SEQ|TIME"}, "First entry: a seq or a time. Default: 1."
    ] = None,
    end: Annotated[
        str | None,
        "--to",
        {"metavar": "SEQ|TIME"},
        "Last entry: a seq or a time (a date includes the whole day). Default: the last archived "
        "entry.",
    ] = None,
    duration: Annotated[
        str, "--for", "How long to keep the restored messages, such as 12h or 7d."
    ] = "7d",
    max_write_units: WriteUnitsMax = None,
    is_plan: Annotated[bool, "Only print the estimated cost; write nothing."] = False,
) -> None:
    """Restore archived messages of CHAT to DynamoDB for a limited time.

    Times are UTC, such as 2024-05-31 or 2024-05-31T12:00:00. If the command is interrupted, run it
    again: it continues where it stopped. If a range is restored again, it is kept for longer. The
    archive keeps its copy.
    """
    from chatserver.cli.progress import open_report
    from chatserver.domain.clock import SystemClock
    from chatserver.telemetry.failpoints import arm_failpoint
    from workers.archive.restorer import RestoreProgress, open_restorer

    settings = prepare("restore")
    name = ChatId(parse_id(chat, "CHAT"))
    bounds = parse_bound(start, "--from"), parse_bound(end, "--to", is_end=True)
    duration_s = parse_duration(duration)
    arm_failpoint()
    clock = SystemClock()
    async with open_restorer(settings, clock, max_write_units) as restorer:
        until = int(clock.time()) + duration_s
        found = await restorer.find_range(name, *bounds, until)
        restored = found if is_plan else await restorer.begin(name, found)
        cost = await restorer.estimate(name, restored)
        ends = datetime.datetime.fromtimestamp(restored.until, datetime.UTC)
        click.echo(
            f"seqs {restored.first} to {restored.last}, until {ends:%Y-%m-%d %H:%M} UTC: "
            f"{cost.entries} entries to restore, {cost.bytes} bytes: "
            f"about {cost.write_units} write units now, and the same number when they expire"
        )
        if is_plan:
            return
        with open_report(clock) as report:
            report.begin("restore", cost.entries)

            def on_progress(done: RestoreProgress) -> None:
                report.show(
                    done.entries,
                    f"{done.entries} of {cost.entries} entries, {done.write_units:.0f} write units",
                )

            done = await restorer.restore(name, restored, on_progress)
            report.end()
    click.echo(
        f"{format_count(done.entries, 'entry', 'entries')} restored, "
        f"{format_count(round(done.write_units), 'write unit')}"
    )


def parse_bound(text: str | None, name: str, *, is_end: bool = False) -> Bound | None:
    """Parse a bound: a whole number is a seq; other text is an ISO 8601 time, UTC by default.

    Raises:
        BadRequest: the text is neither.
    """
    from workers.archive.restorer import Bound

    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return Bound(int(text), is_time=False)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"{name}: must be a seq or a time such as 2024-05-31T12:00:00; got {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    if is_end and len(text) == len("2024-05-31"):
        moment += datetime.timedelta(days=1, microseconds=-1)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return Bound(since // datetime.timedelta(microseconds=1), is_time=True)


def parse_duration(text: str) -> int:
    """Parse a duration of at least an hour; return seconds. Raises BadRequest."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})([hd])", text)
    if match is None:
        raise BadRequest(f"--for: must be hours or days, such as 12h or 7d; got {text!r}")
    return int(match[1]) * _UNITS[match[2]]
