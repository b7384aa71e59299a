"""Settings of presence."""

from __future__ import annotations

from pydantic import Field

from chatserver.config.section import Section


class Presence(Section):
    """Presence of users."""

    away_after_s: float = Field(
        300.0, gt=0, description="A device that is idle for longer counts as away"
    )
    offline_grace_s: float = Field(
        10.0, ge=0, le=300, description="A device that reconnects within this time stays online"
    )
