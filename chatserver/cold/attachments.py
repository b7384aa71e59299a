"""Files of messages in the bucket.

    uploads/<id>             as it was uploaded; nobody can read it, and it removes itself
    attachments/<chat>/<id>  the same, once it was looked at
    thumbs/<chat>/<id>       a small picture of it, encoded by us

All keys are made here, of ids that the server made. A client can write to ``uploads/`` alone: what
it uploads again, while its form holds, is not what others read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from chatserver.cold.bucket import UPLOADS_PREFIX
from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.domain.attachments import (
    SNIFF_BYTES,
    THUMB_TYPE,
    File,
    check_content,
    checksum_base64,
    disposition_of,
    served_type,
)
from chatserver.errors import BadRequest, Conflict

THUMB_BYTES_MAX = 1_048_576
_CHECKSUM_FIELD = "x-amz-checksum-sha256"


class UploadForm(NamedTuple):
    """Where to post a file, and the fields that go before it in the form."""

    url: str
    fields: dict[str, str]


def upload_key(file: File) -> str:
    """Return where a file is uploaded to."""
    return f"{UPLOADS_PREFIX}{file.id}"


def content_key(file: File) -> str:
    """Return where a file is kept."""
    return f"attachments/{file.chat}/{file.id}"


def thumb_key(file: File) -> str:
    """Return where a file's thumbnail is kept."""
    return f"thumbs/{file.chat}/{file.id}"


class Files:
    """Reads and writes the objects of files."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def sign_upload(self, file: File, lifetime_s: int) -> UploadForm:
        """Return a form that uploads this file and nothing else: its size, type and checksum."""
        fields = {
            "Content-Type": file.type,
            "x-amz-checksum-algorithm": "SHA256",
            _CHECKSUM_FIELD: checksum_base64(file.sha256),
        }
        return UploadForm(
            *await self._store.sign_upload(upload_key(file), fields, file.size, lifetime_s)
        )

    async def accept(self, file: File) -> None:
        """Look at what was uploaded, and keep it if it is the file that was asked for.

        Guarantees:
            What is kept is what was looked at, even if it is uploaded again meanwhile.
            Idempotent.

        Raises:
            Conflict: nothing was uploaded yet, or it changed while it was looked at.
            BadRequest: it has another size or checksum, or is not of its type.
        """
        key = upload_key(file)
        try:
            head = await self._store.call("head_object", Key=key, ChecksumMode="ENABLED")
            if head["ContentLength"] != file.size:
                raise BadRequest(f"content: has {head['ContentLength']} bytes, not {file.size}")
            await self._check_checksum(file, key, head.get("ChecksumSHA256"))
            part = f"bytes=0-{SNIFF_BYTES - 1}"
            check_content(file.type, await self._store.read(key, size_max=SNIFF_BYTES, part=part))
        except ObjectMissing:
            raise Conflict("attachment: is not uploaded yet") from None
        await self._store.call(
            "copy_object",
            Key=content_key(file),
            CopySource={"Bucket": self._store.bucket, "Key": key},
            CopySourceIfMatch=head["ETag"],
        )

    async def drop_upload(self, file: File) -> None:
        """Remove what was uploaded, once it is kept. Idempotent."""
        await self._store.call("delete_object", Key=upload_key(file))

    async def _check_checksum(self, file: File, key: str, reported: str | None) -> None:
        # AWS has verified what it reports. Others may take the field and look at nothing.
        if reported is None:
            digest = hashlib.sha256()
            async with contextlib.aclosing(self._store.iter_content(key)) as pieces:
                async for piece in pieces:
                    digest.update(piece)
            reported = checksum_base64(digest.hexdigest())
        if reported != checksum_base64(file.sha256):
            raise BadRequest("content: has another SHA-256 than was said")

    async def read(self, file: File, size_max: int) -> bytes:
        """Return the content. Raises ObjectMissing, TooLarge."""
        return await self._store.read(content_key(file), size_max=size_max)

    def iter_pieces(self, file: File) -> AsyncIterator[bytes]:
        """Yield the content piece by piece. Raises ObjectMissing."""
        return self._store.iter_content(content_key(file))

    async def put_thumb(self, file: File, content: bytes) -> None:
        """Keep a thumbnail."""
        await self._store.call(
            "put_object", Key=thumb_key(file), Body=content, ContentType=THUMB_TYPE
        )

    async def remove(self, file: File) -> None:
        """Remove all that there is of a file. Idempotent."""
        for key in (upload_key(file), thumb_key(file), content_key(file)):
            await self._store.call("delete_object", Key=key)

    async def sign_link(self, file: File, lifetime_s: int) -> str:
        """Return an address from which a browser saves the file, under its name."""
        answer = {
            "content-type": served_type(file.type),
            "content-disposition": disposition_of(file.name),
            "cache-control": f"private, max-age={lifetime_s}",
        }
        return await self._store.sign_link(content_key(file), answer, lifetime_s)

    async def sign_thumb_link(self, file: File, lifetime_s: int) -> str:
        """Return an address of the thumbnail, the one thing that may be shown inline."""
        answer = {
            "content-type": THUMB_TYPE,
            "content-disposition": "inline",
            "cache-control": f"private, max-age={lifetime_s}",
        }
        return await self._store.sign_link(thumb_key(file), answer, lifetime_s)
