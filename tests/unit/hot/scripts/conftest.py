"""Fixture of the script tests: no server, no network, no waiting."""

from __future__ import annotations

import time

import pytest

from tests.unit.hot.scripts.script_runner import Clock, ScriptRunner


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> ScriptRunner:
    """Run scripts on an empty fake Redis; `scripts.clock` is its time."""
    clock = Clock()
    monkeypatch.setattr(time, "time", clock.time)  # fakeredis reads TIME and expiry from it
    return ScriptRunner(clock)
