"""Wrapped data keys: items of table `directory`, one per version of the tenant's data key.

    PK "encryption"  SK "key#<version, 10 digits>"  created N (ms)
    wrapped B  wrapped_by S      or, after the key was deleted: shredded N (ms)

Versions are 1, 2, 3 …; new values are encrypted with the newest. A row is never deleted: a missing
row is an error, a deleted key is not (`chatserver.encryption.key_ring`).
"""

from __future__ import annotations

import base64
from typing import Any, Final, Protocol

import structlog

from chatserver.config import Warm
from chatserver.encryption.key_ring import StoredKey
from chatserver.encryption.key_wrapping import WrappedKey
from chatserver.errors import ConfigError, Conflict, CorruptData, Unavailable
from chatserver.warm.schema.directory_attributes import EncryptionField as Field
from chatserver.warm.schema.tables import DIRECTORY

log = structlog.get_logger()

PARTITION: Final = "encryption"
PREFIX: Final = "key#"
PAGE: Final = 100

Item = dict[str, dict[str, Any]]


class Caller(Protocol):
    """A DynamoDB client; not `DynamoClient`, because its module imports this package."""

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]: ...


class DataKeyRows:
    """Repository of wrapped data keys. Implements `KeyStore`. Reads are strongly consistent."""

    def __init__(self, client: Caller, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def find(self, version: int) -> StoredKey | None:
        """Return a version of the data key, or None."""
        request = {"TableName": self._table, "Key": _key(version), "ConsistentRead": True}
        item: Item | None = (await self._client.call("get_item", request)).get("Item")
        return None if item is None else decode_key(item)

    async def find_newest(self) -> StoredKey | None:
        """Return the newest version, or None if there is none."""
        rows = (await self._client.call("query", self._query() | {"Limit": 1}))["Items"]
        return decode_key(rows[0]) if rows else None

    async def list_all(self) -> list[StoredKey]:
        """Return all versions, newest first."""
        keys: list[StoredKey] = []
        request = self._query() | {"Limit": PAGE}
        while True:
            response = await self._client.call("query", request)
            keys += map(decode_key, response["Items"])
            if (last := response.get("LastEvaluatedKey")) is None:
                return keys
            request["ExclusiveStartKey"] = last

    def _query(self) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk AND begins_with(#sk, :prefix)",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#sk": Field.SK},
            "ExpressionAttributeValues": {":pk": {"S": PARTITION}, ":prefix": {"S": PREFIX}},
            "ScanIndexForward": False,
            "ConsistentRead": True,
        }

    async def create(self, key: StoredKey) -> bool:
        """Store a new version; return False if another key already has this version."""
        assert key.wrapped is not None
        item = encode_key(key)
        request = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk) OR #wrapped = :wrapped",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#wrapped": Field.WRAPPED},
            "ExpressionAttributeValues": {":wrapped": item[Field.WRAPPED]},
        }
        try:
            await self._client.call("put_item", request)
        except Conflict:
            return False
        return True

    async def replace(self, version: int, before: WrappedKey, after: WrappedKey) -> bool:
        """Replace the wrapped key of a version; return False if it is no longer `before`."""
        request = {
            "TableName": self._table,
            "Key": _key(version),
            "UpdateExpression": "SET #wrapped = :after, #by = :by",
            "ConditionExpression": "#wrapped = :before",
            "ExpressionAttributeNames": {"#wrapped": Field.WRAPPED, "#by": Field.WRAPPED_BY},
            "ExpressionAttributeValues": {
                ":before": {"B": before.data},
                ":after": {"B": after.data},
                ":by": {"S": after.by},
            },
        }
        try:
            await self._client.call("update_item", request)
        except Conflict:
            return False
        return True

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
        request = {
            "TableName": self._table,
            "Key": _key(version),
            "UpdateExpression": "SET #shredded = :now REMOVE #wrapped, #by",
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {
                "#pk": Field.PK,
                "#shredded": Field.SHREDDED,
                "#wrapped": Field.WRAPPED,
                "#by": Field.WRAPPED_BY,
            },
            "ExpressionAttributeValues": {":now": {"N": str(now_ms)}},
        }
        await self._client.call("update_item", request)


async def require_provider(client: Caller, settings: Warm) -> None:
    """Check that encryption is not off for a tenant whose stored bodies are encrypted.

    If DynamoDB cannot be read, nothing is checked.

    Raises:
        ConfigError: the tenant has data keys, and `encryption.provider` is not set.
    """
    if settings.encryption.provider != "none":
        return
    try:
        newest = await DataKeyRows(client, settings).find_newest()
    except (ConfigError, Unavailable) as exc:
        log.warning("encryption.check_skipped", error=exc.message)
        return
    if newest is not None:
        raise ConfigError(
            [
                "encryption.provider (CHAT_ENCRYPTION_PROVIDER): is none, but bodies in DynamoDB "
                "are encrypted; use the same settings as the other processes"
            ]
        )


def _key(version: int) -> Item:
    return {Field.PK: {"S": PARTITION}, Field.SK: {"S": f"{PREFIX}{version:010d}"}}


def encode_key(key: StoredKey) -> Item:
    """Return the item for a version of the data key."""
    item: Item = _key(key.version) | {Field.CREATED: {"N": str(key.created_ms)}}
    if key.wrapped is None:
        return item | {Field.SHREDDED: {"N": str(key.deleted_ms)}}
    item[Field.WRAPPED] = {"B": key.wrapped.data}
    item[Field.WRAPPED_BY] = {"S": key.wrapped.by}
    return item


def get_bytes(value: dict[str, Any]) -> bytes:
    """Return a binary attribute value: base64 text from `http_transport`, bytes from the SDK."""
    data: bytes | str = value["B"]
    return base64.b64decode(data) if isinstance(data, str) else data


def decode_key(item: Item) -> StoredKey:
    """Return the version of the data key that an item describes. Raises CorruptData."""
    try:
        version = int(item[Field.SK]["S"].removeprefix(PREFIX))
        created_ms = int(item[Field.CREATED]["N"])
        if Field.WRAPPED not in item:
            return StoredKey(version, None, created_ms, int(item[Field.SHREDDED]["N"]))
        wrapped = WrappedKey(get_bytes(item[Field.WRAPPED]), item[Field.WRAPPED_BY]["S"])
        return StoredKey(version, wrapped, created_ms)
    except (KeyError, ValueError) as exc:
        raise CorruptData(f"table directory: the row of a data key is invalid: {exc!r}") from exc
