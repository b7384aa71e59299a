"""Failpoints: named code locations where a test can kill or stop a process.

``CHAT_FAILPOINT="persist.before_write:kill"`` kills the process (SIGKILL) the first time that it
reaches the location; ``…:kill:3`` kills it the third time; ``…:stop`` sends SIGSTOP instead.
Without the variable, a failpoint costs one comparison.
"""

from __future__ import annotations

import os
import signal

from chatserver.errors import ConfigError

_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class _Armed:
    def __init__(self, text: str) -> None:
        name, _, suffix = text.partition(":")
        action, _, times = suffix.partition(":")
        if action not in _ACTIONS or not (times or "1").isdigit():
            raise ConfigError(f"CHAT_FAILPOINT: must be NAME:kill or NAME:stop; got {text!r}")
        self.name = name
        self.signal = _ACTIONS[action]
        self.left = int(times or "1")


_armed: _Armed | None = None


def arm_failpoint() -> None:
    """Activate the failpoint in ``CHAT_FAILPOINT``, if it is set.

    Raises:
        ConfigError: the variable is set to an invalid value.
    """
    global _armed
    text = os.environ.get("CHAT_FAILPOINT")
    _armed = _Armed(text) if text else None


def failpoint(name: str) -> None:
    """Kill or stop the process here if this failpoint is active."""
    if _armed is not None and _armed.name == name:
        _armed.left -= 1
        if _armed.left == 0:
            os.kill(os.getpid(), _armed.signal)
