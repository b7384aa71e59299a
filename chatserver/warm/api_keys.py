"""API keys, in table `directory`.

| record   | `PK`   | `SK`        | attributes                                                    |
|----------|--------|-------------|---------------------------------------------------------------|
| `KeyRow` | `keys` | `key#<key>` | `name created scopes digest old_digest? old_until? ended?`    |

All keys share one partition, because there are only a few, they are listed together, and each API
process caches a key for a few seconds.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from chatserver.errors import Conflict, NotFound
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Attr, Changes, Default
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
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


KEY: Final = Codec(
    KeyRow,
    "keys",
    "key#{key}",
    name=Field.NAME,
    created_ms=Field.CREATED,
    scopes=StoredField(Field.SCOPES, absent=frozenset()),
    digest=Field.DIGEST,
    old_digest=Field.OLD_DIGEST,
    old_until=StoredField(Field.OLD_UNTIL, absent=0),
    ended_ms=Field.ENDED,
)


class StoredApiKeys:
    """Repository of API keys."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def create(self, row: KeyRow) -> None:
        """Create an API key. Raises Conflict if its id exists with another secret."""
        is_same = Attr(Field.PK).is_absent | (Attr(Field.DIGEST) == row.digest)
        if not await try_write(self._table.put(KEY.encode(row), if_=is_same)):
            raise Conflict("API key: already exists")

    async def find(self, key: str) -> KeyRow | None:
        """Return the API key with id `key`, even if revoked, or None. Strongly consistent."""
        item = await self._table.find(KEY.key(key=key))
        return None if item is None else KEY.decode(item)

    async def list_all(self) -> list[KeyRow]:
        """Return up to `KEYS_MAX` API keys, including revoked ones, oldest first."""
        items = await self._table.query(Span(DIRECTORY, PARTITION), limit=KEYS_MAX)
        return list(map(KEY.decode, items))

    async def rotate(self, row: KeyRow, digest: str, old_until: int) -> None:
        """Replace a key's secret; the old secret stays valid until `old_until` (Unix s).

        Raises:
            Conflict: the key was changed or revoked concurrently.
        """
        changes: Changes = {
            Field.DIGEST: digest,
            Field.OLD_DIGEST: row.digest,
            Field.OLD_UNTIL: old_until,
        }
        condition = Attr(Field.DIGEST).is_in((row.digest, digest)) & Attr(Field.ENDED).is_absent
        update = self._table.update(KEY.key(key=row.key), changes, if_=condition)
        if not await try_write(update):
            raise Conflict("API key: changed or revoked concurrently")

    async def end(self, key: str, now_ms: int) -> None:
        """Revoke a key. Idempotent. Raises NotFound."""
        update = self._table.update(
            KEY.key(key=key), {Field.ENDED: Default(now_ms)}, if_=Attr(Field.PK).exists
        )
        if not await try_write(update):
            raise NotFound("API key does not exist")
