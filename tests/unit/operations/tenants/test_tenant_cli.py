"""Progress lines of `chatserver tenants`."""

from __future__ import annotations

import pytest

from chatserver.operations.tenants.tenant_cli import format_progress


@pytest.mark.parametrize(
    ("counts", "message", "text"),
    [
        ({}, "waiting for processes", "waiting for processes"),
        ({"redis": 1200}, "", "redis 1,200"),
        ({"redis": 1, "s3": 2}, "dynamodb", "redis 1, s3 2; dynamodb"),
    ],
)
def test_progress_has_no_separator_without_counts(
    counts: dict[str, int], message: str, text: str
) -> None:
    """A command has a message before it has counted anything."""
    assert format_progress(counts, message) == text
