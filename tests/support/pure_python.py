"""Runs the sources of hot modules in this process, and their compiled form in child processes.

Tests replace parts of hot modules, which compiled code does not allow. Import this module before
`chatserver`. If CHATSERVER_PURE_PYTHON is set by the caller, the child processes run the sources
too.
"""

from __future__ import annotations

import os

_NAME = "CHATSERVER_PURE_PYTHON"
_outside = os.environ.get(_NAME)
os.environ[_NAME] = "1"


def leave_to_children() -> None:
    """Restore the variable for child processes, after `chatserver` is imported."""
    if _outside is None:
        del os.environ[_NAME]
    else:
        os.environ[_NAME] = _outside
