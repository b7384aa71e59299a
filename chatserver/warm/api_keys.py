"""API keys, in table `directory`.

| record   | `PK`   | `SK`        | attributes                                                    |
|----------|--------|-------------|---------------------------------------------------------------|
| `KeyRow` | `keys` | `key#<key>` | `name created scopes digest old_digest? old_until? ended?`    |

All keys share one partition, because there are only a few, they are listed together, and each API
process caches a key for a few seconds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from chatserver.config import Warm
from chatserver.errors import Conflict, NotFound
from chatserver.warm.chats import directory_items
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number, get_text
from chatserver.warm.dynamo.items import find_item
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.schema.tables import DirectoryField as Field

PARTITION: Final = "keys"
PREFIX: Final = "key#"
KEYS_MAX: Final = 200


@dataclasses.dataclass(frozen=True, slots=True)
class KeyRow:
    """An API key with its secret's digest. The old secret is valid until `old_until` (Unix s)."""

    key: str
    name: str
    created_ms: int
    scopes: frozenset[str]
    digest: str
    old_digest: str | None = None
    old_until: int = 0
    ended_ms: int | None = None

    def encode(self) -> Item:
        """Encode a new API key as an item."""
        item = directory_items.row_key(PARTITION, PREFIX + self.key)
        item[Field.NAME] = {"S": self.name}
        item[Field.CREATED] = {"N": str(self.created_ms)}
        item[Field.SCOPES] = {"SS": sorted(self.scopes)}
        item[Field.DIGEST] = {"S": self.digest}
        return item

    @classmethod
    def decode(cls, item: Item) -> KeyRow:
        """Decode an API key. Raises CorruptData."""
        return cls(
            key=get_text(item, Field.SK).removeprefix(PREFIX),
            name=get_text(item, Field.NAME),
            created_ms=get_number(item, Field.CREATED),
            scopes=frozenset(item.get(Field.SCOPES, {}).get("SS", ())),
            digest=get_text(item, Field.DIGEST),
            old_digest=find_text(item, Field.OLD_DIGEST),
            old_until=find_number(item, Field.OLD_UNTIL) or 0,
            ended_ms=find_number(item, Field.ENDED),
        )


class ApiKeyRows:
    """Repository of API keys."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def create(self, row: KeyRow) -> None:
        """Create an API key. Raises Conflict if its id exists with another secret."""
        request = {
            "TableName": self._table,
            "Item": row.encode(),
            "ConditionExpression": "attribute_not_exists(#pk) OR #digest = :digest",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#digest": Field.DIGEST},
            "ExpressionAttributeValues": {":digest": {"S": row.digest}},
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed:
            raise Conflict("API key: already exists") from None

    async def find(self, key: str) -> KeyRow | None:
        """Return the API key with id `key`, even if revoked, or None. Strongly consistent."""
        item = await find_item(
            self._client, self._table, directory_items.row_key(PARTITION, PREFIX + key)
        )
        return None if item is None else KeyRow.decode(item)

    async def list_all(self) -> list[KeyRow]:
        """Return up to `KEYS_MAX` API keys, including revoked ones, oldest first."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk",
            "ExpressionAttributeNames": {"#pk": Field.PK},
            "ExpressionAttributeValues": {":pk": {"S": PARTITION}},
            "ConsistentRead": True,
            "Limit": KEYS_MAX,
        }
        return [
            KeyRow.decode(item) for item in (await self._client.call("query", request))["Items"]
        ]

    async def rotate(self, row: KeyRow, digest: str, old_until: int) -> None:
        """Replace a key's secret; the old secret stays valid until `old_until` (Unix s).

        Raises:
            Conflict: the key was changed or revoked concurrently.
        """
        values = {
            ":digest": {"S": digest},
            ":old": {"S": row.digest},
            ":until": {"N": str(old_until)},
        }
        await self._update(
            row.key,
            "SET #digest = :digest, #old_digest = :old, #old_until = :until",
            "#digest IN (:old, :digest) AND attribute_not_exists(#ended)",
            (Field.DIGEST, Field.OLD_DIGEST, Field.OLD_UNTIL, Field.ENDED),
            values,
        )

    async def end(self, key: str, now_ms: int) -> None:
        """Revoke a key. Idempotent. Raises NotFound."""
        try:
            await self._update(
                key,
                "SET #ended = if_not_exists(#ended, :now)",
                "attribute_exists(#PK)",
                (Field.ENDED, Field.PK),
                {":now": {"N": str(now_ms)}},
            )
        except Conflict:
            raise NotFound("API key does not exist") from None

    async def _update(
        self,
        key: str,
        update: str,
        condition: str,
        names: tuple[str, ...],
        values: dict[str, dict[str, str]],
    ) -> None:
        request = {
            "TableName": self._table,
            "Key": directory_items.row_key(PARTITION, PREFIX + key),
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {f"#{name}": name for name in names},
            "ExpressionAttributeValues": values,
        }
        try:
            await self._client.call("update_item", request)
        except ConditionFailed:
            raise Conflict("API key: changed or revoked concurrently") from None
