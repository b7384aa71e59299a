"""Formatting of search results, for the screen and for pipes."""

from __future__ import annotations

import datetime

from chatserver.client.terminal.commands import HelpText
from chatserver.client.terminal.conversation_link import SearchReport
from chatserver.telemetry.printable_text import replace_unprintable


def describe_report(report: SearchReport | HelpText) -> str:
    """Return the heading above the results or commands."""
    if isinstance(report, HelpText):
        return replace_unprintable(report.heading)
    if report.problem:
        return replace_unprintable(f"search {report.query}: {report.problem}")
    count = len(report.lines)
    total = f"{count} message{'' if count == 1 else 's'}"
    return (
        f"search {replace_unprintable(report.query)}: {total}{', there are more' * report.has_more}"
    )


def format_local_time(ts: int) -> str:
    """Format a Unix time in microseconds as local date and time."""
    when = datetime.datetime.fromtimestamp(ts / 1e6, tz=datetime.UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M")
