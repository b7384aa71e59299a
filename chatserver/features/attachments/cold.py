"""S3 objects for file attachments.

    uploads/<id>             an upload before validation; users cannot read it; expires
    attachments/<chat>/<id>  the validated content
    thumbs/<chat>/<id>       the thumbnail, encoded by the server

The server generates all keys. Clients can write only to `uploads/`, so a second upload with the
same form does not change the validated file.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator
from typing import NamedTuple

from chatserver.cold.bucket import UPLOADS_PREFIX
from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.errors import BadRequest, Conflict
from chatserver.features.attachments.file_types import (
    SNIFF_BYTES,
    find_actual_type,
    get_served_type,
)
from chatserver.features.attachments.model import (
    THUMB_TYPE,
    File,
    build_content_disposition,
    checksum_base64,
)

THUMB_BYTES_MAX = 1_048_576
_CHECKSUM_FIELD = "x-amz-checksum-sha256"


class UploadForm(NamedTuple):
    """The URL to POST a file to, and the form fields to send before the file."""

    url: str
    fields: dict[str, str]


def upload_key(file: File) -> str:
    return f"{UPLOADS_PREFIX}{file.id}"


def content_key(file: File) -> str:
    return f"attachments/{file.chat}/{file.id}"


def thumb_key(file: File) -> str:
    return f"thumbs/{file.chat}/{file.id}"


class Files:
    """Reads and writes the S3 objects of files."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def sign_upload(self, file: File, lifetime_s: int) -> UploadForm:
        """Return an upload form.

        S3 rejects content whose size, type or checksum differs from `file`.
        """
        fields = {
            "Content-Type": file.type,
            "x-amz-checksum-algorithm": "SHA256",
            _CHECKSUM_FIELD: checksum_base64(file.sha256),
        }
        return UploadForm(
            *await self._store.sign_upload(upload_key(file), fields, file.size, lifetime_s)
        )

    async def accept(self, file: File) -> str:
        """Validate an upload and copy it to the key for downloads. Return its actual type.

        Guarantees:
            Only validated content is copied, even if the client uploads again during validation.
            Idempotent.

        Raises:
            Conflict: there is no upload yet, or it changed during validation.
            BadRequest: the content does not have the size and checksum of `file`, or is no image or
                PDF although it is declared as one.
        """
        key = upload_key(file)
        try:
            head = await self._store.call("head_object", Key=key, ChecksumMode="ENABLED")
            if head["ContentLength"] != file.size:
                raise BadRequest(
                    f"content: must have {file.size} bytes; has {head['ContentLength']}"
                )
            await self._check_checksum(file, key, head.get("ChecksumSHA256"))
            part = f"bytes=0-{SNIFF_BYTES - 1}"
            content = await self._store.read(key, size_max=SNIFF_BYTES, part=part)
            type_ = find_actual_type(file.type, content)
        except ObjectMissing:
            raise Conflict("attachment: not uploaded yet") from None
        await self._store.call(
            "copy_object",
            Key=content_key(file),
            CopySource={"Bucket": self._store.bucket, "Key": key},
            CopySourceIfMatch=head["ETag"],
        )
        return type_

    async def delete_upload(self, file: File) -> None:
        """Delete an upload that has been copied. Idempotent."""
        await self._store.call("delete_object", Key=upload_key(file))

    async def _check_checksum(self, file: File, key: str, reported: str | None) -> None:
        # AWS verifies the checksum on upload and returns it. Some other S3 implementations do not.
        if reported is None:
            digest = hashlib.sha256()
            async with contextlib.aclosing(self._store.iter_content(key)) as pieces:
                async for piece in pieces:
                    digest.update(piece)
            reported = checksum_base64(digest.hexdigest())
        if reported != checksum_base64(file.sha256):
            raise BadRequest("content: SHA-256 does not match `sha256`")

    async def read(self, file: File, size_max: int, *, is_thumb: bool = False) -> bytes:
        """Return the content of the file or of its thumbnail. Raises ObjectMissing, TooLarge."""
        key = thumb_key(file) if is_thumb else content_key(file)
        return await self._store.read(key, size_max=size_max)

    def iter_pieces(self, file: File) -> AsyncGenerator[bytes]:
        """Yield the file's content in chunks. Raises ObjectMissing."""
        return self._store.iter_content(content_key(file))

    async def put_thumb(self, file: File, content: bytes) -> None:
        await self._store.call(
            "put_object", Key=thumb_key(file), Body=content, ContentType=THUMB_TYPE
        )

    async def remove(self, file: File) -> None:
        """Delete all objects of a file. Idempotent."""
        for key in (upload_key(file), thumb_key(file), content_key(file)):
            await self._store.call("delete_object", Key=key)

    async def sign_link(self, file: File, lifetime_s: int, *, is_thumb: bool) -> str:
        """Return a URL for the file or its thumbnail.

        A browser shows a thumbnail inline, and saves a file under its name.
        """
        key = thumb_key(file) if is_thumb else content_key(file)
        headers = {
            "content-type": THUMB_TYPE if is_thumb else get_served_type(file.type),
            "content-disposition": "inline" if is_thumb else build_content_disposition(file.name),
            "cache-control": f"private, max-age={lifetime_s}",
        }
        return await self._store.sign_link(key, headers, lifetime_s)
