"""`chatserver worker`: the names of workers, and the workers of `all`."""

from __future__ import annotations

import re

import pytest

from chatserver.cli.worker import WORKERS, choose_workers, worker
from chatserver.config import Settings
from chatserver.features.analytics.settings import Analytics
from chatserver.features.registry import load


@pytest.mark.parametrize("name", WORKERS)
def test_worker_can_be_loaded(name: str) -> None:
    """The import paths of a worker resolve to functions."""
    assert callable(load(WORKERS[name].run))
    assert not WORKERS[name].check or callable(load(WORKERS[name].check))


def test_all_includes_analytics_only_if_configured() -> None:
    """The worker writes a second copy of the messages, so it must be enabled."""
    unset = choose_workers(["all"], Settings())
    configured = choose_workers(["all"], Settings(analytics=Analytics(export="metadata")))
    named = choose_workers(["analytics"], Settings())

    assert set(configured) - set(unset) == {"analytics"}
    assert "audit" not in configured and "persist" in unset
    assert named == ["analytics"]


def test_worker_help_describes_each_worker() -> None:
    described = re.findall(r"^ *([a-z]+) +[a-z]", worker.help or "", re.MULTILINE)

    assert {*WORKERS, "all"} <= set(described)
