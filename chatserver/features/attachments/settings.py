"""Settings of attachments."""

from __future__ import annotations

from pydantic import Field

from chatserver.config.section import Section


class Attachments(Section):
    """File attachments."""

    size_bytes_max: int = Field(
        26_214_400, ge=1, le=1_073_741_824, description="Maximum size of a file"
    )
    day_bytes_max: int = Field(
        1_073_741_824,
        ge=1,
        description="Maximum bytes of files that a user uploads within a day",
    )
    user_bytes_max: int = Field(
        10_737_418_240,
        ge=1,
        description="Maximum total bytes of a user's files, excluding deleted files",
    )

    def get_client_config(self) -> dict[str, object]:
        return {"file_bytes_max": self.size_bytes_max}
