"""Wrapped data keys: items of table `directory`, one per version of the tenant's data key.

    PK "encryption"  SK "key#<version, 10 digits>"  created N (ms)
    wrapped B  wrapped_by S      or, after the key was deleted: shredded N (ms)

Versions are 1, 2, 3 …; new values are encrypted with the newest. A row is never deleted: a missing
row is an error, a deleted key is not (`chatserver.encryption.key_ring`).
"""

from __future__ import annotations

from typing import Final

import structlog

from chatserver.encryption.key_ring import StoredKey
from chatserver.encryption.key_wrapping import WrappedKey
from chatserver.errors import ConfigError, CorruptData, Unavailable
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Changes, decode_bytes, encode_item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.directory_attributes import EncryptionField as Field
from chatserver.warm.schema.tables import DIRECTORY

log = structlog.get_logger()

PARTITION: Final = "encryption"
PREFIX: Final = "key#"
PAGE: Final = 100
_SPAN: Final = Span(DIRECTORY, PARTITION, prefix=PREFIX)


class DataKeys:
    """Repository of wrapped data keys. Implements `KeyStore`. Reads are strongly consistent."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def find(self, version: int) -> StoredKey | None:
        """Return a version of the data key, or None."""
        item = await self._table.find(_key(version))
        return None if item is None else decode_key(item)

    async def find_newest(self) -> StoredKey | None:
        """Return the newest version, or None if there is none."""
        rows = await self._table.query(_SPAN, limit=1, is_newest_first=True)
        return decode_key(rows[0]) if rows else None

    async def list_all(self) -> list[StoredKey]:
        """Return all versions, newest first."""
        pages = self._table.iter_query(_SPAN, limit=PAGE, is_newest_first=True)
        return [decode_key(row) async for rows in pages for row in rows]

    async def create(self, key: StoredKey) -> bool:
        """Store a new version; return False if another key already has this version."""
        assert key.wrapped is not None
        is_free = Attr(Field.PK).is_absent | (Attr(Field.WRAPPED) == key.wrapped.data)
        return await try_write(self._table.put(encode_key(key), if_=is_free))

    async def replace(self, version: int, before: WrappedKey, after: WrappedKey) -> bool:
        """Replace the wrapped key of a version; return False if it is no longer `before`."""
        changes: Changes = {Field.WRAPPED: after.data, Field.WRAPPED_BY: after.by}
        is_before = Attr(Field.WRAPPED) == before.data
        return await try_write(self._table.update(_key(version), changes, if_=is_before))

    async def shred(self, now_ms: int) -> int:
        """Delete all of the tenant's data keys; return how many this call deleted.

        Values encrypted with these keys can then be decrypted only with a backup of the table
        (point-in-time recovery) and the KMS key or key file.

        Guarantees:
            Idempotent; repeat it after an error. A key created during the call is deleted too,
            unless it is created after the call's last read of the keys.
        """
        count = 0
        while unshredded := [key for key in await self.list_all() if key.wrapped is not None]:
            for key in unshredded:
                await self._shred(key.version, now_ms)
                count += 1
        return count

    async def _shred(self, version: int, now_ms: int) -> None:
        changes: Changes = {Field.SHREDDED: now_ms, Field.WRAPPED: None, Field.WRAPPED_BY: None}
        await self._table.update(_key(version), changes, if_=Attr(Field.PK).exists)


async def require_provider(client: DynamoClient) -> None:
    """Check that encryption is not off for a tenant whose stored bodies are encrypted.

    If DynamoDB cannot be read, nothing is checked.

    Raises:
        ConfigError: the tenant has data keys, and `encryption.provider` is not set.
    """
    if client.settings.encryption.provider != "none":
        return
    try:
        newest = await DataKeys(client).find_newest()
    except (ConfigError, Unavailable) as exc:
        log.warning("encryption.check_skipped", error=exc.message)
        return
    if newest is not None:
        raise ConfigError(
            "encryption.provider (CHAT_ENCRYPTION_PROVIDER): is none, but bodies in DynamoDB "
            "are encrypted; use the same settings as the other processes"
        )


def _key(version: int) -> tuple[str, str]:
    return PARTITION, f"{PREFIX}{version:010d}"


def encode_key(key: StoredKey) -> Item:
    """Return the item for a version of the data key."""
    partition, sort = _key(key.version)
    return encode_item(
        {
            Field.PK: partition,
            Field.SK: sort,
            Field.CREATED: key.created_ms,
            Field.SHREDDED: key.deleted_ms if key.wrapped is None else None,
            Field.WRAPPED: key.wrapped and key.wrapped.data,
            Field.WRAPPED_BY: key.wrapped and key.wrapped.by,
        }
    )


def decode_key(item: Item) -> StoredKey:
    """Return the version of the data key that an item describes. Raises CorruptData."""
    try:
        version = int(item[Field.SK]["S"].removeprefix(PREFIX))
        created_ms = int(item[Field.CREATED]["N"])
        if Field.WRAPPED not in item:
            return StoredKey(version, None, created_ms, int(item[Field.SHREDDED]["N"]))
        wrapped = WrappedKey(decode_bytes(item[Field.WRAPPED]), item[Field.WRAPPED_BY]["S"])
        return StoredKey(version, wrapped, created_ms)
    except (KeyError, ValueError) as exc:
        raise CorruptData(f"table directory: the row of a data key is invalid: {exc!r}") from exc
