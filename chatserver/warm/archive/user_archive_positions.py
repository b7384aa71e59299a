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

from collections.abc import Mapping
from typing import Final, Literal

from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.directory_items import user_key
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.item_attributes import find_number
from chatserver.warm.dynamo.table import Key, Table, try_write
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

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

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
        position = _ATTRIBUTES[direction]
        is_older = Attr(position).is_absent | (Attr(position) < ts)
        await try_write(self._table.update(_build_key(user), {position: ts}, if_=is_older))

    async def find(self, direction: Direction, user: str) -> int | None:
        """Return the ts of the user's newest archived message; None if there is none.

        Guarantees:
            If called after an index Query, the ts covers every message that the Query missed
            because it had been archived.
            Cost: a GetItem of one read unit.
        """
        item = await self._table.find(_build_key(user)) or {}
        return find_number(item, _ATTRIBUTES[direction])


def _build_key(user: str) -> Key:
    return user_key(user), f"archive#{user}"
