"""Check that the optional dependencies of analytics are installed."""

from __future__ import annotations

import importlib.util

from chatserver.config import Settings
from chatserver.errors import ConfigError

_MODULES = ("pyarrow", "duckdb")


def check_extra(_: Settings | None = None) -> None:
    """Check that the extra `analytics` is installed. Raises ConfigError."""
    if any(importlib.util.find_spec(name) is None for name in _MODULES):
        raise ConfigError(
            ["analytics: libraries are not installed; run: pip install 'tierchat[analytics]'"]
        )
