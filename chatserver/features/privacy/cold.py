"""Exports in S3, stored as `exports/<job>.zip`, where `<job>` is the unguessable job id."""

from __future__ import annotations

import asyncio
from typing import IO, Final

from chatserver.cold.bucket import EXPORTS_PREFIX
from chatserver.cold.client import ObjectStore
from chatserver.errors import NotFound
from chatserver.features.attachments.model import build_content_disposition
from chatserver.features.privacy.model import Job

PART_BYTES: Final = 8_388_608  # S3 accepts up to 10,000 parts of at least 5 MiB each


def export_key(job: str) -> str:
    return f"{EXPORTS_PREFIX}{job}.zip"


def compute_part_bytes(size: int) -> int:
    """Return a part size with which an upload of `size` bytes stays below S3's part limit."""
    return max(PART_BYTES, -(-size // 9_000))


class ExportFiles:
    """Uploads and deletes ZIP files, and signs links to them."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, job: str, content: IO[bytes], size: int) -> None:
        """Upload a ZIP in parts, after deleting the parts of an earlier attempt.

        Guarantees:
            Atomic. Only one part is in memory at a time.
            Cancellation: no object is created; S3 deletes the uploaded parts within a day.
        """
        key, parts = export_key(job), []
        await self._abort_uploads(key)
        response = await self._store.call(
            "create_multipart_upload", Key=key, ContentType="application/zip"
        )
        upload, part_bytes = response["UploadId"], compute_part_bytes(size)
        number = 0
        while piece := await asyncio.to_thread(content.read, part_bytes):
            number += 1
            response = await self._store.call(
                "upload_part", Key=key, UploadId=upload, PartNumber=number, Body=piece
            )
            parts.append({"PartNumber": number, "ETag": response["ETag"]})
        await self._store.call(
            "complete_multipart_upload",
            Key=key,
            UploadId=upload,
            MultipartUpload={"Parts": parts},
        )

    async def _abort_uploads(self, key: str) -> None:
        response = await self._store.call("list_multipart_uploads", Prefix=key)
        for upload in response.get("Uploads") or ():
            try:
                await self._store.call(
                    "abort_multipart_upload", Key=key, UploadId=upload["UploadId"]
                )
            except NotFound:
                continue

    async def remove(self, job: str) -> None:
        """Delete a ZIP and its unfinished uploads. Idempotent."""
        await self._abort_uploads(export_key(job))
        await self._store.call("delete_object", Key=export_key(job))

    async def sign_link(self, job: Job, lifetime_s: int) -> str:
        """Return a presigned download URL for the ZIP."""
        headers = {
            "content-type": "application/zip",
            "content-disposition": build_content_disposition(f"chat-export-{job.user}.zip"),
            "cache-control": "private, no-store",
        }
        return await self._store.sign_link(export_key(job.id), headers, lifetime_s)
