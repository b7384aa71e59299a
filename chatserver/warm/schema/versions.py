"""Schema versions: the item formats that a process may read and write.

Version N is the schema after migration N (`chatserver.warm.schema.migrations`); 0 is the schema
before the first one. A process uses the newest version of its release, or an older one set with
`warm.schema_version`. Then it writes items like a release of that version, and keeps attributes
unknown to such a release.
"""

from __future__ import annotations

from typing import Final

from chatserver.config import Warm
from chatserver.errors import ConfigError
from chatserver.warm.schema.migrated_attributes import SchemaField as Field

FILES: Final = 1  # messages with attachments have `files_of`; index `files` lists them
PINS: Final = 3  # chats have pinned messages
FILES_ONLY: Final = 4  # attachments of a chat are listed by the index only
TTL: Final = 5  # items to be removed by TTL have `ttl`
TTL_ONLY: Final = 7  # the table's TTL reads `ttl`
NEWEST: Final = 7
OLDEST: Final = 5  # minimum version of processes that use newly created tables
SCHEMA_KEY: Final = "schema"  # partition of all schema items in `directory`


def acting_version(settings: Warm) -> int:
    """Return the schema version of this process.

    Raises:
        ConfigError: the configured version is unknown to this release.
    """
    version = settings.schema_version
    if version is None:
        return NEWEST
    if version > NEWEST:
        raise ConfigError(
            [
                f"warm.schema_version (CHAT_WARM_SCHEMA_VERSION): is {version}, and the newest "
                f"that this release knows is {NEWEST}"
            ]
        )
    return version


def newest_note() -> dict[str, dict[str, str]]:
    """Return the `directory` item that records the newest schema version."""
    return {
        Field.PK: {"S": SCHEMA_KEY},
        Field.SK: {"S": SCHEMA_KEY},
        Field.VERSION: {"N": str(NEWEST)},
        Field.OLDEST: {"N": str(OLDEST)},
    }
