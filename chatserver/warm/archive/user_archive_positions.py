"""Users' archive positions: the ts of their newest archived messages, in table `directory`.

| record   | `PK`       | `SK`             | attributes                                        |
|----------|------------|------------------|---------------------------------------------------|
| position | `u#<user>` | `archive#<user>` | `sent_ts`: newest sent message; `received_ts`:    |
|          |            |                  | newest message received in a direct chat          |

The indexes on table `messages` do not contain archived messages. A query on an index is complete
only for messages that are newer than the archive position. A record is written before the messages
leave the table, and its timestamps never decrease.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, Literal

from chatserver.config import Warm
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory_items import row_key, user_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_number
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import UserPositionField as Field

Direction = Literal["sent", "received"]

_ATTRIBUTES: Final[dict[Direction, str]] = {
    "sent": Field.SENT_TS,
    "received": Field.RECEIVED_TS,
}
_WRITES_IN_FLIGHT_MAX: Final = 16


class UserArchivePositions:
    """Repository of users' archive positions."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def record(self, direction: Direction, newest: Mapping[str, int]) -> None:
        """Record the ts of each user's newest archived message.

        Guarantees:
            Idempotent; a position never moves back.
            Cost: a write unit per user.
        """
        await map_concurrently(
            lambda user: self._record(direction, user, newest[user]),
            sorted(newest),
            in_flight_max=_WRITES_IN_FLIGHT_MAX,
            name="user-position",
        )

    async def _record(self, direction: Direction, user: str, ts: int) -> None:
        request: dict[str, Any] = {
            "TableName": self._table,
            "Key": _build_key(user),
            "UpdateExpression": "SET #at = :ts",
            "ConditionExpression": "attribute_not_exists(#at) OR #at < :ts",
            "ExpressionAttributeNames": {"#at": _ATTRIBUTES[direction]},
            "ExpressionAttributeValues": {":ts": {"N": str(ts)}},
        }
        with contextlib.suppress(ConditionFailed):  # the stored position is at least as recent
            await self._client.call("update_item", request)

    async def find(self, direction: Direction, user: str) -> int | None:
        """Return the ts of the user's newest archived message; None if there is none.

        Guarantees:
            If called after an index Query, the ts covers every message that the Query missed
            because it had been archived.
            Cost: a GetItem of one read unit.
        """
        item = await find_item(self._client, self._table, _build_key(user)) or {}
        return find_number(item, _ATTRIBUTES[direction])


def _build_key(user: str) -> Item:
    return row_key(user_key(user), f"archive#{user}")
