"""Open reports of all chats, page by page in both directions."""

from __future__ import annotations

import random

import pytest

from chatserver.warm.chats.moderation import REPORT, MessageReport, Moderation
from chatserver.warm.schema.tables import DIRECTORY
from tests.integration.warm.support import Tables

COUNT = 25


@pytest.fixture
async def rows(tables: Tables) -> Moderation:
    """Reports of several chats, some in the same millisecond."""
    made = Moderation(tables.client)
    rng = random.Random(1)
    for number in range(COUNT):
        now_s = 1_800_000_000 + rng.randint(0, 8) / 1000
        assert await made.put_report(f"g-{number % 4}", 1 + number, f"u{number}", "rude", now_s)
    return made


def get_list_key(report: MessageReport) -> str:
    """Return the sort key of a report in the list."""
    return report.line_key[1]


async def list_pages(
    rows: Moderation, limit: int, *, is_newest_first: bool
) -> list[list[MessageReport]]:
    """Return all pages of the list."""
    pages, after = list[list[MessageReport]](), None
    while True:
        found, after = await rows.list_open_reports(after, limit, is_newest_first=is_newest_first)
        pages.append(found)
        if after is None:
            return pages


@pytest.mark.parametrize("limit", [1, 3, COUNT - 1, COUNT, 200])
@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_open_reports_are_listed_once_by_time_in_both_directions(
    rows: Moderation, limit: int, is_newest_first: bool
) -> None:
    """Pages are full except for the last. No report is missing or repeated."""
    pages = await list_pages(rows, limit, is_newest_first=is_newest_first)

    found = [get_list_key(report) for page in pages for report in page]
    assert found == sorted(found, reverse=is_newest_first)
    assert len(found) == len(set(found)) == COUNT
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_resolved_report_is_not_listed_and_pages_stay_full(
    rows: Moderation, tables: Tables, is_newest_first: bool
) -> None:
    """Reports may be resolved between two pages or during a read."""
    first, after = await rows.list_open_reports(None, 10, is_newest_first=is_newest_first)
    await rows.resolve(first[-1], "host", 1_800_000_001)  # `after` refers to this report.
    meanwhile, _ = await rows.list_open_reports(after, 3, is_newest_first=is_newest_first)
    key = {name: REPORT.encode(meanwhile[1])[name] for name in DIRECTORY.key.names}
    table = tables.settings.table_prefix + "directory"
    # As if it was resolved during a read: the report is deleted, but its list entry is not.
    await tables.client.call("delete_item", {"TableName": table, "Key": key})
    rest = list[MessageReport]()
    while after is not None:
        found, after = await rows.list_open_reports(after, 3, is_newest_first=is_newest_first)
        rest += found

    expected = {get_list_key(report) for page in await list_pages(rows, 200, is_newest_first=False)
                for report in page}  # fmt: skip
    assert {get_list_key(report) for report in [*first[:-1], *rest]} == expected
    assert len(rest) == COUNT - 10 - 1
    rows_left = await tables.scan("directory")
    assert sum(row["PK"]["S"] == "reports" for row in rows_left) == COUNT - 1
