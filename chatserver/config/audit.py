"""Settings of the audit."""

from __future__ import annotations

from pydantic import Field

from chatserver.config.section import Section


class Audit(Section):
    """Audit: periodic comparison of the tiers."""

    interval_s: float = Field(86_400.0, gt=0, description="Time between two audits")
    read_units_per_s: int = Field(
        100, ge=1, description="Maximum DynamoDB read units per second per process"
    )
