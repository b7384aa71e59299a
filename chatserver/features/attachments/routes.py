"""Attachment routes: upload to S3 in three steps, and download.

1. ``POST /v1/chats/{chat}/attachments`` announces a file and returns a form for S3.
2. The client posts the form with the file directly to S3.
3. ``POST /v1/attachments/{id}/complete`` validates the upload. Messages may then include it.

File content does not pass through the API. Downloads are redirected to a presigned S3 URL, which is
valid for minutes and issued only to users who may see the message.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.idempotency import read_key
from chatserver.api.request_bodies import PathId
from chatserver.api.security import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.service.sendable import build_attachment
from chatserver.features.attachments.service.uploads import Link
from chatserver.protocol import frames

READ, WRITE = user_or_key("attachments:read"), user_or_key("attachments:write")
PROCESSING_WAIT_MS_MAX = 5_000

Seq = Annotated[
    int | None,
    QueryParameter(
        ge=1, le=frames.INT_MAX, required=False, description="a message that contains the file"
    ),
]
Thumb = Annotated[
    int, QueryParameter(ge=0, le=1, required=False, description="1: return the thumbnail")
]
WaitMs = Annotated[
    int,
    QueryParameter(
        ge=0,
        le=PROCESSING_WAIT_MS_MAX,
        required=False,
        description="maximum time to wait for the thumbnail of an image",
    ),
]


class NewAttachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file to upload. `sha256` is the checksum of its content in hexadecimal."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    size: Annotated[int, msgspec.Meta(ge=1, le=frames.INT_MAX)]
    sha256: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "application/octet-stream"


class Upload(msgspec.Struct, frozen=True):
    """A form for S3. Send `fields`, followed by the content as ``file``, in a POST to `url`.

    If `url` is null, the upload is already complete.
    """

    id: str
    url: str | None
    fields: dict[str, str]
    expires_s: int


class UploadedFile(msgspec.Struct, frozen=True):
    """A file that may be sent. `looked_at`: processing is finished, with or without a thumbnail."""

    attachment: frames.Attachment
    looked_at: bool


class FileLink(msgspec.Struct, frozen=True):
    """The download URL of a file, and its current metadata.

    `looked_at`: processing is finished. `attachment` then has the dimensions of an image. A message
    that was sent before that does not have them.
    """

    url: str
    expires_s: int
    attachment: frames.Attachment
    looked_at: bool


def build_attachments_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [*_build_upload_routes(container), *_build_download_routes(container)]


def _build_upload_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    # The idempotent response is not stored, because a retry needs a form that is still valid.
    @post("/v1/chats/{chat:str}/attachments", opt={"rule": WRITE, "accepts_key": True})
    async def begin_upload(
        chat: PathId, data: JSONBody[NewAttachment], actor: Actor, request: Request[Any, Any, Any]
    ) -> Upload:
        """Start the upload of a file to a chat.

        The same `Idempotency-Key` returns the same file.
        """
        upload = await container.get(AttachmentContainer).uploads.begin(
            actor, ChatId(chat), data.name, data.type, data.size, data.sha256, read_key(request)
        )
        if upload.form is None:
            return Upload(upload.file.id, None, {}, 0)
        return Upload(upload.file.id, upload.form.url, upload.form.fields, upload.expires_s)

    @post("/v1/attachments/{file:str}/complete", status_code=200, opt={"rule": WRITE})
    async def complete_upload(
        file: PathId,
        actor: Actor,
        wait_ms: WaitMs = 0,
    ) -> UploadedFile:
        """Validate an uploaded file. Repeat the request to wait longer for the thumbnail."""
        uploaded = await container.get(AttachmentContainer).uploads.finish(
            actor, file, wait_ms / 1000
        )
        return UploadedFile(build_attachment(uploaded), uploaded.is_processed)

    return [begin_upload, complete_upload]


def _build_download_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    async def find_link(actor: Actor, name: str, seq: int | None, thumb: int) -> Link:
        return await container.get(AttachmentContainer).uploads.get_link(
            actor, name, seq=seq, is_thumb=thumb == 1
        )

    @get("/v1/attachments/{file:str}", status_code=302, opt={"rule": READ})
    async def download(
        file: PathId,
        actor: Actor,
        seq: Seq = None,
        thumb: Thumb = 0,
    ) -> Response[None]:
        """Redirect to a file, or its thumbnail, in a message that the user may see."""
        link = await find_link(actor, file, seq, thumb)
        return Response(None, status_code=302, headers={"Location": link.url})

    @get("/v1/attachments/{file:str}/link", opt={"rule": READ})
    async def get_link(
        file: PathId,
        actor: Actor,
        seq: Seq = None,
        thumb: Thumb = 0,
    ) -> FileLink:
        """Return the download URL of a file, for clients that cannot read a redirect."""
        link = await find_link(actor, file, seq, thumb)
        return FileLink(
            link.url, link.expires_s, build_attachment(link.file), link.file.is_processed
        )

    return [download, get_link]
