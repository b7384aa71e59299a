"""Failpoints are checked at startup, and do nothing unless a test sets them."""

from __future__ import annotations

import pytest

from chatserver.errors import ConfigError
from chatserver.telemetry.failpoints import arm_failpoint, failpoint


@pytest.mark.parametrize(
    "failpoint_setting", ["here", "here:", "here:explode", "here:kill:x", "here:kill:-1"]
)
def test_failpoint_with_invalid_syntax_prevents_the_start(
    monkeypatch: pytest.MonkeyPatch, failpoint_setting: str
) -> None:
    """A test with a misspelled failpoint would prove nothing."""
    monkeypatch.setenv("CHAT_FAILPOINT", failpoint_setting)

    with pytest.raises(ConfigError, match="CHAT_FAILPOINT"):
        arm_failpoint()


def test_failpoint_without_the_variable_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failpoints have no effect in production."""
    monkeypatch.delenv("CHAT_FAILPOINT", raising=False)

    arm_failpoint()

    failpoint("here")
