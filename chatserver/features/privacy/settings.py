"""Settings of data exports and erasures."""

from __future__ import annotations

from pydantic import Field

from chatserver.config.section import Section


class Privacy(Section):
    """Data exports and erasure of user data."""

    export_days: int = Field(
        7, ge=1, le=30, description="Days for which a data export can be downloaded"
    )
