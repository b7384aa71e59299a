"""Fixtures for all tests, the test order, and the hypothesis profiles."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterator

import httpx
import hypothesis
import pytest
from httpx._transports import default

from tests.support import pure_python

# isort: split
from chatserver.operations.cost import usage_recorder
from tests.support.constants import constants
from tests.support.server_lifetime import ServerLifetime, group_of
from tests.support.servers.processes import (
    dynamodb,
    dynamodb_server,
    limited_dynamodb,
    partial_dynamodb,
    redis_server,
    redis_url,
    s3,
    start_dynamodb,
    start_redis,
)

__all__ = [
    "dynamodb",
    "dynamodb_server",
    "limited_dynamodb",
    "partial_dynamodb",
    "redis_server",
    "redis_url",
    "s3",
    "start_dynamodb",
    "start_redis",
]

pytest_plugins = ["tests.support.stack_fixtures"]
pure_python.leave_to_children()

# Collection creates few reference cycles, but the garbage collector took a tenth of its CPU time.
gc.set_threshold(20_000)

# Each client of httpx loads all CA certificates, which took 4 % of the time of the suite.
default.create_ssl_context = functools.cache(httpx.create_ssl_context)  # type: ignore[attr-defined]

# Every run uses the same examples, so that a failure is caused by a change; `make soak` uses random
# examples. There is no deadline, because a slow example is not a failure.
PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("fixed", PATIENT, derandomize=True)
hypothesis.settings.register_profile("soak", PATIENT, derandomize=False)
# For tests that run here with all examples, and again in a copy of the sources (test_removal.py).
hypothesis.settings.register_profile("few", PATIENT, derandomize=True, max_examples=5)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Containers that live for the whole run are paused while tests use other event loops, so their
# periodic flush would miss its deadline. It is turned off here; server processes flush as usual.
usage_recorder.FLUSH_S = 3600.0  # type: ignore[misc]  # a constant of the product

# The slowest folders run first, so that no process waits for a long test at the end. The order
# within a folder stays random.
_LONGEST_FIRST = ("chaos", "simulation", "e2e", "tooling", "integration", "security", "unit")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that stops the servers of a folder after its tests."""
    config.pluginmanager.register(ServerLifetime())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order test files by folder, and group files that share servers."""
    groups: dict[tuple[str, ...], int] = {}
    for item in items:
        groups.setdefault(group_of(item), len(groups))
    items.sort(key=lambda item: (_LONGEST_FIRST.index(group_of(item)[0]), groups[group_of(item)]))


def pytest_collection_finish() -> None:
    """Keep garbage collections during tests from traversing the modules and the collected tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def constants_of_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the constants that the marks of a test give: `@pytest.mark.constants({path: value})`."""
    values = {}
    for marker in request.node.iter_markers("constants"):
        values = {**marker.args[0], **values}  # the mark nearest to the test wins
    with constants(values):
        yield
