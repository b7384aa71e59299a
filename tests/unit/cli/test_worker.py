"""`chatserver worker`: what can be run by its name, and what `all` is."""

from __future__ import annotations

import re

import pytest

from chatserver.cli.worker import WORKERS, worker
from chatserver.features.registry import load


@pytest.mark.parametrize("name", WORKERS)
def test_worker_can_be_loaded(name: str) -> None:
    """The import paths of a worker lead to its functions."""
    assert callable(load(WORKERS[name].run))
    assert not WORKERS[name].check or callable(load(WORKERS[name].check))


def test_worker_help_says_of_each_what_it_does() -> None:
    """Whoever reads `--help` learns of every one."""
    described = re.findall(r"^ *([a-z]+) +[a-z]", worker.help or "", re.MULTILINE)

    assert {*WORKERS, "all"} <= set(described)
