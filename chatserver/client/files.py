"""File transfer: uploads to S3 and downloads from S3, with links from the HTTP API.

Uses the standard library in threads, so the client needs no HTTP library. The content goes directly
to and from S3; the API receives names, sizes and checksums only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import mimetypes
import secrets
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from chatserver.client.requests import error_of
from chatserver.errors import BadRequest, ChatError, NotFound, Unavailable
from chatserver.protocol.frames import Attachment

CALL_S = 15.0
TRANSFER_S = 300.0
LOOK_S = 10.0  # maximum wait for a thumbnail
LOOK_STEP_MS = 2_000
ANSWER_BYTES_MAX = 1_048_576
OCTETS = "application/octet-stream"

GetToken = Callable[[], Awaitable[str]]


class _Source(NamedTuple):
    content: bytes
    name: str
    type: str


class FilesApi:
    """Uploads and downloads the files of messages."""

    def __init__(self, api_url: str, get_token: GetToken) -> None:
        """Create a client of the HTTP API.

        Raises:
            BadRequest: `api_url` is not an HTTP address.
        """
        if not api_url.startswith(("http://", "https://")):
            raise BadRequest("api_url: must begin with http:// or https://")
        self._url = api_url.rstrip("/")
        self._get_token = get_token

    async def upload(
        self, chat: str, source: str | Path | bytes, name: str | None, type_: str | None
    ) -> Attachment:
        """Upload a file to a chat and return an attachment that can be sent there.

        Guarantees:
            For an image it waits for the thumbnail, at most `LOOK_S`.
            Cancellation: safe; an upload that is not sent is deleted after a day.

        Raises:
            NotFound: the local file does not exist, or we are not a member of the chat.
            TooLarge, RateLimited, BadRequest: the server rejects it; the message has the cause.
            Unavailable: the API or S3 did not answer.
        """
        file = await asyncio.to_thread(_read, source, name, type_)
        body = {
            "name": file.name,
            "type": file.type,
            "size": len(file.content),
            "sha256": hashlib.sha256(file.content).hexdigest(),
        }
        key = {"Idempotency-Key": secrets.token_hex(16)}
        begun = await self._ask("POST", f"/v1/chats/{chat}/attachments", body, key)
        if begun["url"]:
            await asyncio.to_thread(_post_form, begun["url"], begun["fields"], file.content)
        return await self._finish(begun["id"])

    async def _finish(self, file: str) -> Attachment:
        path = f"/v1/attachments/{file}/complete?wait_ms={LOOK_STEP_MS}"
        give_up = asyncio.get_running_loop().time() + LOOK_S
        while True:
            found = await self._ask("POST", path, {})
            if found["looked_at"] or asyncio.get_running_loop().time() > give_up:
                return msgspec.convert(found["attachment"], Attachment)

    async def download(self, file: str, seq: int | None, *, is_thumb: bool) -> bytes:
        """Return the content of a file in message `seq`, or of its thumbnail.

        Raises:
            NotFound: the file does not exist, or we have no access.
            Unavailable: the API or S3 did not answer.
        """
        place = "" if seq is None else f"&seq={seq}"
        path = f"/v1/attachments/{file}/link?thumb={int(is_thumb)}{place}"
        link = await self._ask("GET", path)
        return await asyncio.to_thread(_load, link["url"])

    async def describe(self, file: str, seq: int | None) -> Attachment:
        """Return the current metadata of a file of message `seq`.

        Raises:
            NotFound: the file does not exist, or we have no access.
            Unavailable: the API did not answer.
        """
        place = "" if seq is None else f"?seq={seq}"
        link = await self._ask("GET", f"/v1/attachments/{file}/link{place}")
        return msgspec.convert(link["attachment"], Attachment)

    async def _ask(
        self, method: str, path: str, body: Any = None, more: dict[str, str] | None = None
    ) -> Any:
        headers = {"Authorization": f"Bearer {await self._get_token()}", **(more or {})}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            self._url + path, data, headers, method=method
        )
        return json.loads(await asyncio.to_thread(_open, request, CALL_S, ANSWER_BYTES_MAX))


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
    return _Source(content, name, type_ or mimetypes.guess_type(name)[0] or OCTETS)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, which would forward the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def _open(request: urllib.request.Request, timeout_s: float, bytes_max: int | None) -> bytes:
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            content: bytes = answer.read() if bytes_max is None else answer.read(bytes_max)
            return content
    except urllib.error.HTTPError as exc:
        _refuse(exc)
    except OSError as exc:
        raise Unavailable(f"{request.host}: {exc}") from exc


def _refuse(error: urllib.error.HTTPError) -> NoReturn:
    """Raise the error that an API response describes."""
    try:
        problem = json.loads(error.read(ANSWER_BYTES_MAX))
        found: ChatError = error_of({**problem, "message": problem["detail"]})
    except (OSError, ValueError, KeyError, TypeError):
        kind = Unavailable if error.code >= 500 else ChatError
        raise kind(f"{error.code} {error.reason}") from None
    raise found from None


def _post_form(url: str, fields: dict[str, str], content: bytes) -> None:
    """Post a file as multipart/form-data (RFC 7578)."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n'
        f"Content-Type: {OCTETS}\r\n\r\n"
    )
    body = "".join(parts).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    _open(_request(url, body, headers), TRANSFER_S, ANSWER_BYTES_MAX)


def _load(url: str) -> bytes:
    return _open(_request(url), TRANSFER_S, None)


def _request(
    url: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> urllib.request.Request:
    if not url.startswith(("http://", "https://")):
        raise ChatError("the API returned an invalid address for files")
    return urllib.request.Request(url, body, headers or {})  # noqa: S310  # checked above
