"""`chatserver worker`: what can be run by its name, and what `all` is."""

from __future__ import annotations

import re

import pytest

from chatserver.cli.worker import WORKERS, choose_workers, worker
from chatserver.config import Analytics, Settings
from chatserver.features.registry import load


@pytest.mark.parametrize("name", WORKERS)
def test_worker_can_be_loaded(name: str) -> None:
    """The import paths of a worker lead to its functions."""
    assert callable(load(WORKERS[name].run))
    assert not WORKERS[name].check or callable(load(WORKERS[name].check))


def test_analytics_is_in_all_if_it_is_configured() -> None:
    """A second copy of the messages is written only where somebody wants one."""
    unset = choose_workers(["all"], Settings())
    configured = choose_workers(["all"], Settings(analytics=Analytics(export="metadata")))
    named = choose_workers(["analytics"], Settings())

    assert set(configured) - set(unset) == {"analytics"}
    assert "audit" not in configured and "persist" in unset
    assert named == ["analytics"]


def test_worker_help_says_of_each_what_it_does() -> None:
    """`--help` describes every worker."""
    described = re.findall(r"^ *([a-z]+) +[a-z]", worker.help or "", re.MULTILINE)

    assert {*WORKERS, "all"} <= set(described)
