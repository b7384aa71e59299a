"""Analytics objects in S3: Parquet files, which are replaced with conditional writes.

For their keys, see `chatserver.features.analytics.model`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, NamedTuple

from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.errors import Conflict, CorruptData
from chatserver.features.analytics.model import PREFIX, FileFacts
from chatserver.task_groups import map_concurrently

FILE_BYTES_MAX: Final = 268_435_456
PAGE_MAX: Final = 1000  # maximum keys per LIST page, an AWS limit
CALLS_IN_FLIGHT_MAX: Final = 16
TAIL_BYTES: Final = 65_536  # bytes read from the end of a file at first, to get its metadata


class StoredFile(NamedTuple):
    """A file in a listing. `modified_s`: seconds since 1970, by the S3 clock."""

    key: str
    etag: str
    size: int
    modified_s: float


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
        """Return the content of a file. Raises ObjectMissing, TooLarge, Unavailable."""
        return await self._store.read(key, size_max=FILE_BYTES_MAX)

    async def find_facts(self, key: str) -> FileFacts | None:
        """Return the metadata of a file; None if the file does not exist.

        Raises:
            CorruptData: the file is not a Parquet file.
        """
        from chatserver.features.analytics.parquet import decode_facts, get_footer_bytes

        size = TAIL_BYTES
        while True:
            try:
                tail = await self._store.read(key, size_max=FILE_BYTES_MAX, part=f"bytes=-{size}")
            except ObjectMissing:
                return None
            needed = get_footer_bytes(tail)
            if needed <= len(tail):
                return decode_facts(tail)
            if len(tail) < size:  # the whole file was read
                raise CorruptData(f"{key}: not a Parquet file")
            size = needed

    async def list_facts(self, keys: Iterable[str]) -> dict[str, FileFacts]:
        """Return the metadata of the files that exist. For errors, see `find_facts`."""
        keys = list(keys)
        results = await map_concurrently(
            self.find_facts, keys, in_flight_max=CALLS_IN_FLIGHT_MAX, name="analytics-facts"
        )
        return {key: facts for key, facts in zip(keys, results, strict=True) if facts is not None}

    async def put(self, key: str, data: bytes, etag: str | None) -> str:
        """Create a file, or replace the version with ETag `etag`; return the new ETag.

        Guarantees:
            Atomic: readers get either the old or the new file.

        Raises:
            Conflict: another process has changed the file, or an earlier attempt of this call has
                written it. Read the source of the rows again before a retry.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            response = await self._store.call(
                "put_object",
                Key=key,
                Body=data,
                ContentType="application/vnd.apache.parquet",
                **condition,
            )
        except ObjectMissing as exc:
            raise Conflict(f"{key}: was removed concurrently") from exc
        return str(response["ETag"])

    async def remove(self, key: str) -> None:
        """Delete a file. Idempotent."""
        await self._store.call("delete_object", Key=key)

    async def iter_files(self, prefix: str = PREFIX) -> AsyncIterator[list[StoredFile]]:
        """Yield the files below a prefix, page by page, sorted by key."""
        options: dict[str, Any] = {}
        while True:
            response = await self._store.call(
                "list_objects_v2", Prefix=prefix, MaxKeys=PAGE_MAX, **options
            )
            yield [
                StoredFile(
                    s3_object["Key"],
                    s3_object["ETag"],
                    s3_object["Size"],
                    s3_object["LastModified"].timestamp(),
                )
                for s3_object in response.get("Contents") or ()
            ]
            if not response.get("IsTruncated"):
                return
            options = {"ContinuationToken": response["NextContinuationToken"]}
