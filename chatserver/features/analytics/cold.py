"""S3 objects of analytics: Parquet files, replaced by conditional writes.

Keys: `chatserver.features.analytics.model.object_key`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.errors import Conflict
from chatserver.features.analytics.model import PREFIX

FILE_BYTES_MAX: Final = 268_435_456
PAGE_MAX: Final = 1000  # AWS: page size of a listing


class ParquetFiles:
    """Reads, writes and lists the files."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def find_etag(self, key: str) -> str | None:
        """Return the ETag of a file; None if it does not exist."""
        try:
            etag: str = (await self._store.call("head_object", Key=key))["ETag"]
        except ObjectMissing:
            return None
        return etag

    async def read(self, key: str) -> bytes:
        """Return a file, in one GET. Raises ObjectMissing, TooLarge, Unavailable."""
        return await self._store.read(key, size_max=FILE_BYTES_MAX)

    async def put(self, key: str, data: bytes, etag: str | None) -> None:
        """Create a file, or replace the version with this ETag.

        Guarantees:
            Atomic: readers get the old or the new file.

        Raises:
            Conflict: the file was changed concurrently, or an earlier attempt of this call wrote
                it; derive its content again.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            await self._store.call(
                "put_object",
                Key=key,
                Body=data,
                ContentType="application/vnd.apache.parquet",
                **condition,
            )
        except ObjectMissing as exc:
            raise Conflict(f"{key}: was removed concurrently") from exc

    async def iter_keys(self) -> AsyncIterator[list[str]]:
        """Yield the keys of all files, page by page."""
        more: dict[str, str] = {}
        while True:
            answer = await self._store.call(
                "list_objects_v2", Prefix=PREFIX, MaxKeys=PAGE_MAX, **more
            )
            yield [each["Key"] for each in answer.get("Contents") or ()]
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": answer["NextContinuationToken"]}
