"""File transfer: uploads to S3 and downloads from S3, with links from the HTTP API.

The API receives only names, sizes and checksums.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import secrets
import urllib.request
from pathlib import Path
from typing import NamedTuple

import attrs
import msgspec

from chatserver.client.http.http_api import ANSWER_BYTES_MAX, HttpApi, open_url
from chatserver.errors import BadRequest, ChatError, NotFound
from chatserver.protocol.frames import Attachment

TRANSFER_S = 300.0
THUMBNAIL_S = 10.0  # maximum wait for a thumbnail
THUMBNAIL_POLL_MS = 2_000
DEFAULT_TYPE = "application/octet-stream"


class _Source(NamedTuple):
    content: bytes
    name: str
    type: str


@attrs.define(eq=False, repr=False)
class FilesApi:
    """Uploads and downloads the files of messages."""

    _api: HttpApi

    async def upload(
        self, chat: str, source: str | Path | bytes, name: str | None, type_: str | None
    ) -> Attachment:
        """Upload a file to a chat and return an attachment that can be sent there.

        Guarantees:
            For an image, the call waits up to `THUMBNAIL_S` seconds for the thumbnail.
            Cancellation: safe; an upload that is not sent is deleted after a day.

        Raises:
            NotFound: the local file does not exist, or the user is not a member.
            TooLarge, RateLimited, BadRequest: the server rejects the file; the message states why.
            Unavailable: the API or S3 did not respond.
        """
        file = await asyncio.to_thread(_read, source, name, type_)
        body = {
            "name": file.name,
            "type": file.type,
            "size": len(file.content),
            "sha256": hashlib.sha256(file.content).hexdigest(),
        }
        key = {"Idempotency-Key": secrets.token_hex(16)}
        upload = await self._api.request("POST", f"/v1/chats/{chat}/attachments", body, key)
        if upload["url"]:
            await asyncio.to_thread(_post_form, upload["url"], upload["fields"], file.content)
        return await self._finish(upload["id"])

    async def _finish(self, file: str) -> Attachment:
        path = f"/v1/attachments/{file}/complete?wait_ms={THUMBNAIL_POLL_MS}"
        give_up_at = asyncio.get_running_loop().time() + THUMBNAIL_S
        while True:
            response = await self._api.request("POST", path, {})
            if response["looked_at"] or asyncio.get_running_loop().time() > give_up_at:
                return msgspec.convert(response["attachment"], Attachment)

    async def download(self, file: str, seq: int | None, *, is_thumb: bool) -> bytes:
        """Return the content of a file in message `seq`, or of its thumbnail.

        Raises:
            NotFound: the file does not exist, or the user has no access.
            Unavailable: the API or S3 did not respond.
        """
        link = await self._api.get(f"/v1/attachments/{file}/link", thumb=int(is_thumb), seq=seq)
        return await asyncio.to_thread(_download, link["url"])

    async def describe(self, file: str, seq: int | None) -> Attachment:
        """Return the current metadata of a file in message `seq`.

        Raises:
            NotFound: the file does not exist, or the user has no access.
            Unavailable: the API did not respond.
        """
        link = await self._api.get(f"/v1/attachments/{file}/link", seq=seq)
        return msgspec.convert(link["attachment"], Attachment)


def _read(source: str | Path | bytes, name: str | None, type_: str | None) -> _Source:
    """Return the content, name and type of a file. Raises NotFound, BadRequest."""
    if isinstance(source, bytes):
        content, name = source, name or "file"
    else:
        path = Path(source).expanduser()
        try:
            content, name = path.read_bytes(), name or path.name
        except OSError as exc:
            raise NotFound(f"file: {path}: {exc.strerror}") from exc
    if not content:
        raise BadRequest("file: must not be empty")
    return _Source(content, name, type_ or mimetypes.guess_type(name)[0] or DEFAULT_TYPE)


def _post_form(url: str, fields: dict[str, str], content: bytes) -> None:
    """Post a file as multipart/form-data (RFC 7578)."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n'
        f"Content-Type: {DEFAULT_TYPE}\r\n\r\n"
    )
    body = "".join(parts).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    open_url(_request(url, body, headers), TRANSFER_S, ANSWER_BYTES_MAX)


def _download(url: str) -> bytes:
    return open_url(_request(url), TRANSFER_S, None)


def _request(
    url: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> urllib.request.Request:
    if not url.startswith(("http://", "https://")):
        raise ChatError("the API returned an invalid file URL")
    return urllib.request.Request(url, body, headers or {})  # noqa: S310  # checked above
