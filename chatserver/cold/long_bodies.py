"""Storage of long message bodies in S3.

`chatserver.warm.messages.long_bodies` defines the object keys.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import NamedTuple

from chatserver.cold.client import ObjectStore

PAGE_MAX = 1000  # the AWS limit per response


class Listed(NamedTuple):
    """An object's key, and when it was last modified (seconds since 1970, by S3's clock)."""

    key: str
    written: float


class BodyFiles:
    """Reads, writes and lists body objects."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, key: str, data: bytes) -> None:
        """Write an object. Idempotent."""
        await self._store.call(
            "put_object", Key=key, Body=data, ContentType="text/plain; charset=utf-8"
        )

    async def read(self, key: str, size_max: int) -> bytes:
        """Return an object. Raises ObjectMissing, TooLarge."""
        return await self._store.read(key, size_max=size_max)

    async def remove(self, key: str) -> None:
        """Remove an object. Idempotent."""
        await self._store.call("delete_object", Key=key)

    async def list_keys(self, prefix: str) -> list[str]:
        """Return the first `PAGE_MAX` keys that begin with `prefix`."""
        answer = await self._store.call("list_objects_v2", Prefix=prefix, MaxKeys=PAGE_MAX)
        return [each["Key"] for each in answer.get("Contents") or ()]

    async def iter_pages(self, prefix: str) -> AsyncIterator[list[Listed]]:
        """Yield all objects with a key that begins with `prefix`, page by page."""
        more: dict[str, str] = {}
        while True:
            answer = await self._store.call(
                "list_objects_v2", Prefix=prefix, MaxKeys=PAGE_MAX, **more
            )
            yield [
                Listed(each["Key"], _seconds(each["LastModified"]))
                for each in answer.get("Contents") or ()
            ]
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}


def _seconds(when: datetime.datetime) -> float:
    return when.timestamp()
