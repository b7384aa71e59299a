"""DynamoDB attributes of the analytics export, in table `directory`."""

from __future__ import annotations

from typing import Final


class ExportField:
    """Attributes of the analytics export, in `directory`. A unit is a range of a chat's entries."""

    PK: Final = "PK"
    SK: Final = "SK"
    FIRST: Final = "first"  # export units: first chat seq
    LAST: Final = "last"  # export units: last chat seq
    BATCH: Final = "batch"  # export units: id of the batch, part of the names of its files
    SHA256: Final = "sha256"  # export units: SHA-256 (hex) of their rows; absent until files exist
    VERSION: Final = "version"  # export units: digest of the data that their rows were made from
    EXPORTED: Final = "exported"  # archive segments: true if the export files contain them
    TAG: Final = "tag"  # archive segments: suffix of the object's key
