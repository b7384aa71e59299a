"""Settings of timelines."""

from __future__ import annotations

from pydantic import Field

from chatserver.config.section import Section


class Timeline(Section):
    """Delivery of posts to timelines."""

    fanout_followers_max: int = Field(
        10_000,
        ge=0,
        description="Posts by authors with more followers are not written to timelines, but "
        "merged on read",
    )
    days: int = Field(30, ge=1, le=3650, description="Days for which a post stays in timelines")
