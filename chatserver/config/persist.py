"""Settings of the persist worker."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from chatserver.config.section import Section


class Persist(Section):
    """Persist worker, which writes messages to DynamoDB."""

    lease_s: float = Field(
        10.0, gt=1, description="Another worker takes over from a dead one after this time"
    )
    write_timeout_s: float = Field(
        4.0, gt=0, description="Timeout for each write; must be shorter than `lease_s`"
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.write_timeout_s >= self.lease_s:
            yield "write_timeout_s must be shorter than lease_s"
