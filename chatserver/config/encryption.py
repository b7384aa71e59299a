"""Settings of client-side encryption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from chatserver.config.section import Section


class Encryption(Section):
    """Client-side encryption of bodies in DynamoDB and S3. Use the same values in all processes."""

    provider: Literal["none", "file", "kms"] = Field(
        "none",
        description="What encrypts the data keys: a key file (`file`) or AWS KMS (`kms`); "
        "`none`: no encryption",
    )
    key_file: Path | None = Field(
        None,
        description="Key file; required for the provider `file`, and to decrypt data keys that it "
        "encrypted earlier",
    )
    kms_key_id: str = Field(
        "",
        description="ARN or alias of the KMS key for the provider `kms`; the server calls KMS with "
        "the region and credentials of `warm`",
    )
    cache_s: float = Field(
        300.0, ge=1, le=3600, description="How long a process caches a decrypted data key"
    )

    def find_conflicts(self) -> Iterator[str]:
        if self.provider == "file" and self.key_file is None:
            yield "key_file: must be set if provider is file"
        if self.provider == "kms" and not self.kms_key_id:
            yield "kms_key_id: must be set if provider is kms"
