"""Lifetime of the servers that session fixtures start: until the last test of their folder.

Tests are ordered by folder (`tests/conftest.py`), so the servers of a finished folder are not
needed again. Without this, idle servers took 80 % of a core by the middle of a run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
# Redis, DynamoDB and S3 of the test run, which most folders use, live until its end.
_SHARED = "tests.support.servers.processes"


def group_of(item: pytest.Item) -> tuple[str, ...]:
    """Return the folder whose tests share their servers."""
    folders = item.path.relative_to(_TESTS).parts[:-1]
    return folders[: 3 if folders[1:2] == ("features",) else 2]


class ServerLifetime:
    """A pytest plugin, because hooks in a conftest are not called for session fixtures."""

    def __init__(self) -> None:
        self._started: dict[pytest.FixtureDef[object], pytest.FixtureRequest] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        """Record the session fixtures of the tests."""
        module = fixturedef.func.__module__
        if fixturedef.scope == "session" and module.startswith("tests.") and module != _SHARED:
            self._started[fixturedef] = request

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """After the last test of a folder, end its fixtures, except those of the next test."""
        if nextitem is None or group_of(item) == group_of(nextitem):
            return
        used = set(getattr(nextitem, "fixturenames", ()))
        for fixture in [each for each in self._started if each.argname not in used]:
            fixture.finish(self._started.pop(fixture))  # type: ignore[arg-type]  # a SubRequest
