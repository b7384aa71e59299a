"""Listing and deletion of all S3 objects of a tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from chatserver.cold.client import ObjectStore
from chatserver.errors import S3_DOWN, Unavailable

PAGE: Final = 1000  # maximum objects per listing page and per batch deletion, an AWS limit


class StoredObject(NamedTuple):
    """An object: its key without the tenant prefix, and its size."""

    key: str
    bytes: int


class TenantObjects:
    """The S3 objects of the tenant of `store`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def iter_pages(self, *, after: str = "") -> AsyncIterator[list[StoredObject]]:
        """Yield the objects page by page, sorted by key, starting after key `after`."""
        request: dict[str, Any] = {"MaxKeys": PAGE, "Prefix": ""}
        if after:
            request["StartAfter"] = after
        while True:
            response = await self._store.call("list_objects_v2", **request)
            page = [
                StoredObject(s3_object["Key"], int(s3_object["Size"]))
                for s3_object in response.get("Contents", ())
            ]
            if page:
                yield page
            token = response.get("NextContinuationToken")
            if token is None:
                return
            request = {"MaxKeys": PAGE, "Prefix": "", "ContinuationToken": token}

    async def delete_versions(self) -> AsyncIterator[int]:
        """Delete all object versions and all delete markers; yield the count per page.

        Idempotent: each listing starts at the first remaining version.
        """
        last: list[dict[str, str]] = []
        while True:
            response = await self._store.call("list_object_versions", MaxKeys=PAGE, Prefix="")
            versions = [*response.get("Versions", ()), *response.get("DeleteMarkers", ())]
            page = [
                {"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions
            ]
            if not page:
                return
            if page == last:
                raise Unavailable(
                    f"S3 at {self._store.endpoint}: deleted objects are still listed",
                    public=S3_DOWN,
                )
            await self._delete(page)
            yield len(page)
            last = page

    async def _delete(self, objects: Sequence[dict[str, str]]) -> None:
        response = await self._store.call(
            "delete_objects", Delete={"Objects": list(objects), "Quiet": True}
        )
        if errors := response.get("Errors"):
            first = errors[0]
            raise Unavailable(
                f"S3 at {self._store.endpoint}: {len(errors)} of {len(objects)} objects not "
                f"deleted: {first.get('Code')}: {first.get('Message')}",
                public=S3_DOWN,
            )

    async def list_version_keys(self, limit: int) -> list[str]:
        """Return at most `limit` keys of object versions and delete markers."""
        response = await self._store.call("list_object_versions", MaxKeys=limit, Prefix="")
        versions = [*response.get("Versions", ()), *response.get("DeleteMarkers", ())]
        return [version["Key"] for version in versions][:limit]

    async def list_uploads(self) -> list[tuple[str, str]]:
        """Return `(key, id)` of unfinished multipart uploads, at most one page."""
        response = await self._store.call("list_multipart_uploads", MaxUploads=PAGE, Prefix="")
        return [(upload["Key"], upload["UploadId"]) for upload in response.get("Uploads", ())]

    async def abort_uploads(self) -> int:
        """Abort at most one page of unfinished multipart uploads; return how many."""
        uploads = await self.list_uploads()
        for key, upload in uploads:
            await self._store.call("abort_multipart_upload", Key=key, UploadId=upload)
        return len(uploads)


async def list_prefixes(store: ObjectStore, after: str, limit: int) -> list[str]:
    """Return up to `limit` top-level prefixes of the bucket's keys, starting after `after`.

    The store must have no tenant. Cost: one LIST per 1,000 prefixes.
    """
    assert not store.prefix
    prefixes: list[str] = []
    request: dict[str, Any] = {"Delimiter": "/", "MaxKeys": PAGE}
    if after:
        request["StartAfter"] = f"{after}/\U0010ffff"
    while len(prefixes) < limit:
        response = await store.call("list_objects_v2", **request)
        prefixes += [
            prefix_entry["Prefix"].rstrip("/")
            for prefix_entry in response.get("CommonPrefixes", ())
        ]
        token = response.get("NextContinuationToken")
        if token is None:
            break
        request = {"Delimiter": "/", "MaxKeys": PAGE, "ContinuationToken": token}
    return prefixes[:limit]
