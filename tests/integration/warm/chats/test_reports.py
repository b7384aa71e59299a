"""Open reports of all chats: a list that holds nothing else, either way, page by page."""

from __future__ import annotations

import random

import pytest

from chatserver.warm.chats.moderation import Moderation, Report
from tests.integration.warm.support import Tables

pytest_plugins = ["tests.integration.warm.fixtures"]

COUNT = 25


@pytest.fixture
async def rows(tables: Tables) -> Moderation:
    """Reports of several chats, some of them in the same millisecond."""
    made = Moderation(tables.client, tables.settings)
    dice = random.Random(1)
    for number in range(COUNT):
        now_s = 1_800_000_000 + dice.randint(0, 8) / 1000
        assert await made.put_report(f"g-{number % 4}", 1 + number, f"u{number}", "rude", now_s)
    return made


def place_of(report: Report) -> str:
    """Where it stands in the list."""
    place: str = report.line_key["SK"]["S"]
    return place


async def walk(rows: Moderation, limit: int, *, is_newest_first: bool) -> list[list[Report]]:
    """All pages."""
    pages, after = list[list[Report]](), None
    while True:
        found, after = await rows.list_open_reports(after, limit, is_newest_first=is_newest_first)
        pages.append(found)
        if after is None:
            return pages


@pytest.mark.parametrize("limit", [1, 3, COUNT - 1, COUNT, 200])
@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_open_reports_are_listed_by_time_either_way_each_once(
    rows: Moderation, limit: int, is_newest_first: bool
) -> None:
    """Of all chats, full pages, nothing twice and nothing left out."""
    pages = await walk(rows, limit, is_newest_first=is_newest_first)

    found = [place_of(report) for page in pages for report in page]
    assert found == sorted(found, reverse=is_newest_first)
    assert len(found) == len(set(found)) == COUNT
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_report_that_is_resolved_leaves_the_list_and_ends_no_page_early(
    rows: Moderation, tables: Tables, is_newest_first: bool
) -> None:
    """Also if it is resolved between two pages or during a read."""
    first, after = await rows.list_open_reports(None, 10, is_newest_first=is_newest_first)
    await rows.resolve(first[-1], "host", 1_800_000_001)  # the place that `after` names
    meanwhile, _ = await rows.list_open_reports(after, 3, is_newest_first=is_newest_first)
    gone = {"PK": {"S": f"c#{meanwhile[1].chat}"}, "SK": {"S": meanwhile[1].sort_key}}
    table = tables.settings.table_prefix + "directory"
    # As if it had gone after the lines were read: its row is not there, its line still is.
    await tables.client.call("delete_item", {"TableName": table, "Key": gone})
    rest = list[Report]()
    while after is not None:
        found, after = await rows.list_open_reports(after, 3, is_newest_first=is_newest_first)
        rest += found

    expected = {place_of(report) for page in await walk(rows, 200, is_newest_first=False)
                for report in page}  # fmt: skip
    assert {place_of(report) for report in [*first[:-1], *rest]} == expected
    assert len(rest) == COUNT - 10 - 1
    lines = await tables.scan("directory")
    assert sum(row["PK"]["S"] == "reports" for row in lines) == COUNT - 1
