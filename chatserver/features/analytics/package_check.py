"""Check that the optional dependencies of analytics are installed."""

from __future__ import annotations

from chatserver.config import Settings
from chatserver.extras import require_extras


def check_extra(_: Settings | None = None) -> None:
    """Check that the extra `analytics` is installed. Raises ConfigError."""
    require_extras("analytics", "analytics")
