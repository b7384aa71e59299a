"""Ranges and durations of `chatserver restore`."""

from __future__ import annotations

import datetime

import pytest

from chatserver.cli.restore import parse_bound, parse_duration
from chatserver.errors import BadRequest
from workers.archive.restorer import Bound


def test_day_as_end_of_a_range_includes_the_whole_day() -> None:
    """Times without an offset are UTC."""
    at = int(datetime.datetime(2024, 5, 31, tzinfo=datetime.UTC).timestamp()) * 1_000_000

    assert parse_bound("2024-05-31", "--from") == Bound(at, is_time=True)
    assert parse_bound("2024-05-31", "--to", is_end=True) == Bound(
        at + 86_400 * 1_000_000 - 1, is_time=True
    )
    assert parse_bound("2024-05-31T02:00+02:00", "--to", is_end=True) == Bound(at, is_time=True)
    assert parse_bound("17", "--to", is_end=True) == Bound(17, is_time=False)


def test_duration_is_hours_or_days() -> None:
    """All other forms are refused."""
    assert (parse_duration("12h"), parse_duration("7d")) == (43_200, 604_800)
    for text in ("", "7", "0d", "-1d", "1w", "1.5d", "999999d"):
        with pytest.raises(BadRequest, match="--for: must be hours or days"):
            parse_duration(text)
