"""Storage of long message bodies in S3.

`chatserver.warm.messages.long_bodies` defines the object keys. With client-side encryption, an
object is an encrypted value (`chatserver.encryption.value_cipher`), valid only at its object key.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import NamedTuple

from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.encryption.value_cipher import (
    OVERHEAD_BYTES,
    EncryptionContext,
    ValueCipher,
    is_encrypted,
)
from chatserver.errors import KEYS_DOWN, TooLarge, Unavailable

PAGE_MAX = 1000  # maximum keys per response, an AWS limit


class Listed(NamedTuple):
    """An object's key, and when it was last modified (seconds since 1970, by S3's clock)."""

    key: str
    written: float


class BodyFiles:
    """Reads, writes and lists body objects."""

    def __init__(self, store: ObjectStore, cipher: ValueCipher | None = None) -> None:
        self._store = store
        self._cipher = cipher

    async def put(self, key: str, data: bytes) -> None:
        """Write an object. Idempotent."""
        kind = "text/plain; charset=utf-8"
        if self._cipher is not None:
            data = (await self._cipher.get_current()).encrypt(_build_context(key), data)
            kind = "application/octet-stream"
        await self._store.call("put_object", Key=key, Body=data, ContentType=kind)

    async def read(self, key: str, size_max: int) -> bytes:
        """Return an object.

        Raises:
            ObjectMissing: it does not exist, or its encryption key has been deleted.
            TooLarge: it has more than `size_max` bytes.
            CorruptData: it has been changed, or copied from another key.
            Unavailable: S3 does not respond, or the encryption key is unavailable.
        """
        data = await self._store.read(key, size_max=size_max + OVERHEAD_BYTES)
        if not is_encrypted(data):
            if len(data) > size_max:
                raise TooLarge(f"object: larger than {size_max} bytes")
            return data
        if self._cipher is None:
            raise Unavailable(
                f"{key} is encrypted, but encryption.provider is not set", public=KEYS_DOWN
            )
        cipher_key = await self._cipher.find_for(data)
        if cipher_key is None:
            raise ObjectMissing(f"{key}: its encryption key has been deleted")
        return cipher_key.decrypt(_build_context(key), data)

    async def remove(self, key: str) -> None:
        """Remove an object. Idempotent."""
        await self._store.call("delete_object", Key=key)

    async def list_keys(self, prefix: str) -> list[str]:
        """Return the first `PAGE_MAX` keys that begin with `prefix`."""
        response = await self._store.call("list_objects_v2", Prefix=prefix, MaxKeys=PAGE_MAX)
        return [s3_object["Key"] for s3_object in response.get("Contents") or ()]

    async def iter_pages(self, prefix: str) -> AsyncIterator[list[Listed]]:
        """Yield all objects with a key that begins with `prefix`, page by page."""
        token: dict[str, str] = {}
        while True:
            response = await self._store.call(
                "list_objects_v2", Prefix=prefix, MaxKeys=PAGE_MAX, **token
            )
            yield [
                Listed(s3_object["Key"], _to_unix_s(s3_object["LastModified"]))
                for s3_object in response.get("Contents") or ()
            ]
            if not response.get("IsTruncated"):
                return
            token = {"ContinuationToken": response["NextContinuationToken"]}


def _to_unix_s(when: datetime.datetime) -> float:
    return when.timestamp()


def _build_context(key: str) -> EncryptionContext:
    return ("object", key)
