"""The numbers of the schema: which shape of DynamoDB's items a process acts by.

A migration's number (`chatserver.warm.migrations`) is the schema that there is once it is done; 0
is the shape of before the first one. A process acts by the newest schema that its release knows, or
by an older one if it is told so (`warm.schema_version`): then it writes what a release of that
schema would, and leaves what it would not know as it is.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from chatserver.config import Warm
from chatserver.errors import ConfigError, Conflict
from chatserver.warm.fields import SchemaField as Field

if TYPE_CHECKING:
    from chatserver.warm.client import DynamoClient  # which knows the tables, which know this

FILES: Final = 1  # messages with files carry `files_of`, index `files` lists them
PINS: Final = 3  # chats have pinned messages
FILES_ONLY: Final = 4  # what has files is read by the index alone
TTL: Final = 5  # items that are to be removed carry `ttl`
TTL_ONLY: Final = 7  # the table's TTL reads `ttl`
NEWEST: Final = 7
OLDEST: Final = 5  # whose processes may use tables that are made anew
SCHEMA_KEY: Final = "schema"  # partition of all that is known of it, in `directory`


def acting_version(settings: Warm) -> int:
    """Return the schema that this process acts by.

    Raises:
        ConfigError: it is told one that its release does not know.
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
    """Return the item of `directory` that says: the tables were made by the newest schema."""
    return {
        Field.PK: {"S": SCHEMA_KEY},
        Field.SK: {"S": SCHEMA_KEY},
        Field.VERSION: {"N": str(NEWEST)},
        Field.OLDEST: {"N": str(OLDEST)},
    }


async def record_newest(client: DynamoClient, directory: str) -> None:
    """Note that the tables were made by the newest schema, so that nothing is to be migrated.

    `directory` is the table's name. What is noted already stays.
    """
    request = {
        "TableName": directory,
        "Item": newest_note(),
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": Field.PK},
    }
    with contextlib.suppress(Conflict):  # another one that made them with us was first
        await client.call("put_item", request)
