"""`chatserver doctor` reports too few replicas to survive the failure of one server."""

from __future__ import annotations

from typing import Any

import pytest

from chatserver.operations.doctor.redis_checks import check_replicas

GUARDED = {"min_slaves_good_slaves": 1}


@pytest.mark.parametrize(
    ("info", "wait_replicas", "notes"),
    [
        ({"connected_slaves": 0}, 0, ["has a replica"]),
        ({"connected_slaves": 1}, 0, []),
        ({"connected_slaves": 1}, 1, ["has at least 2 replicas (CHAT_REDIS_WAIT_REPLICAS is 1)"]),
        ({"connected_slaves": 2}, 1, []),
        ({"connected_slaves": 2}, 2, ["has at least 3 replicas (CHAT_REDIS_WAIT_REPLICAS is 2)"]),
        ({"connected_slaves": 1, **GUARDED}, 0, ["has at least 2 replicas (min-replicas-to-write"]),
        ({"connected_slaves": 2, **GUARDED}, 1, []),
    ],
)
def test_too_few_replicas_are_reported_with_a_fix(
    info: dict[str, Any], wait_replicas: int, notes: list[str]
) -> None:
    """A note names what the server lacks, and what happens if one server fails."""
    findings = check_replicas("node:1", info, wait_replicas)

    found = [finding for finding in findings if finding.level != "ok"]
    assert len(found) == len(notes)
    for finding, text in zip(found, notes, strict=True):
        assert (finding.level, text in finding.what) == ("note", True)
        assert finding.fix
