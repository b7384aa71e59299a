"""`chatserver worker`: what can be run by its name, and what `all` is."""

from __future__ import annotations

import re

from chatserver.cli.worker import BY_NAME_ONLY, NAMES, worker
from workers.runner import WORKERS


def test_worker_names_are_those_of_the_workers_there_are() -> None:
    """No worker is forgotten by the command, and so by everybody who runs `all`."""
    assert sorted([*NAMES, *BY_NAME_ONLY]) == sorted(WORKERS)


def test_worker_help_says_of_each_what_it_does() -> None:
    """Whoever reads `--help` learns of every one."""
    described = re.findall(r"^ *([a-z]+) +[a-z]", worker.help or "", re.MULTILINE)

    assert {*NAMES, *BY_NAME_ONLY, "all"} <= set(described)
