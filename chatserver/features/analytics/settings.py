"""Settings of the analytics export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chatserver.config.section import Section


class Analytics(Section):
    """Export of messages as Parquet files. Use the same values in all workers."""

    export: Literal["", "metadata", "texts"] = Field(
        "",
        description="`metadata`: export metadata only; `texts`: also export message text. If "
        "unset, `worker all` exports nothing, while `worker analytics` and "
        "`analytics export` export metadata",
    )

    @property
    def has_texts(self) -> bool:
        """True if the files contain message text."""
        return self.export == "texts"

    def find_encryption_conflicts(self) -> Iterator[str]:
        if self.has_texts:
            yield "analytics.export: must not be texts if encryption.provider is set"
