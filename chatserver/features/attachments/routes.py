"""Attachment routes: upload to S3 in three steps, and download.

1. `POST /v1/chats/{chat}/attachments` announces a file and returns an S3 upload form.
2. The client posts the form with the file directly to S3.
3. `POST /v1/attachments/{id}/complete` validates the upload. Messages may then include the file.

File content does not pass through the API. Downloads are redirected to a presigned S3 URL, which is
valid for minutes and issued only to users who may see a message with the file.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody, QueryParameter

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.idempotency import read_key
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.service.attachment_resolver import build_attachment
from chatserver.features.attachments.service.download_links import Link
from chatserver.features.attachments.service.uploads import WAITING_MAX
from chatserver.features.attachments.settings import Attachments
from chatserver.protocol import frames

READ, WRITE = user_or_key("attachments:read"), user_or_key("attachments:write")
PROCESSING_WAIT_MS_MAX = 5_000

Seq = Annotated[
    int | None,
    QueryParameter(
        ge=1,
        le=frames.INT_MAX,
        required=False,
        description="seq of a message that contains the file",
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
    """A file to upload. `sha256` is the SHA-256 checksum of its content, in hexadecimal."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    size: Annotated[int, msgspec.Meta(ge=1, le=frames.INT_MAX)]
    sha256: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    type: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] = "application/octet-stream"


class Upload(msgspec.Struct, frozen=True):
    """An S3 upload form. POST `fields`, followed by the content as field `file`, to `url`.

    If `url` is null, the upload is already complete.
    """

    id: str
    url: str | None
    fields: dict[str, str]
    expires_s: int


class FileUsage(msgspec.Struct, frozen=True):
    """The caller's files, and their limits in bytes and files.

    `left_today` is the number of bytes that the caller may upload now; it grows back to
    `day_bytes_max` within a day. Deleting files lowers `bytes`, but does not change `left_today`.
    """

    bytes: int
    bytes_max: int
    left_today: int
    day_bytes_max: int
    unsent: int
    unsent_max: int


class UploadedFile(msgspec.Struct, frozen=True):
    """A file that may be sent.

    `looked_at`: the server has processed the file. A processed file without a thumbnail will not
    get one.
    """

    attachment: frames.Attachment
    looked_at: bool


class FileLink(msgspec.Struct, frozen=True):
    """The download URL of a file, and its current metadata.

    `looked_at`: the file has been processed. `attachment` then has an image's dimensions, which are
    missing in messages that were sent earlier.
    """

    url: str
    expires_s: int
    attachment: frames.Attachment
    looked_at: bool


def build_attachments_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [*_build_upload_routes(container), *_build_download_routes(container)]


def _build_upload_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    # The response is not stored for retries with the same key: a retry needs a form that is still
    # valid.
    @post("/v1/chats/{chat:str}/attachments", opt={"rule": WRITE, "accepts_key": True})
    async def begin_upload(
        chat: PathId, data: JSONBody[NewAttachment], actor: Actor, request: Request[Any, Any, Any]
    ) -> Upload:
        """Start uploading a file to a chat.

        A retry with the same `Idempotency-Key` returns the same file.
        """
        upload = await container.get(AttachmentContainer).uploads.begin(
            owner=actor,
            chat=ChatId(chat),
            name=data.name,
            type_=data.type,
            size=data.size,
            sha256=data.sha256,
            key=read_key(request),
        )
        if upload.form is None:
            return Upload(upload.file.id, None, {}, 0)
        return Upload(upload.file.id, upload.form.url, upload.form.fields, upload.expires_s)

    @post(
        "/v1/attachments/{file:str}/complete",
        status_code=200,
        opt={"rule": WRITE, "errors": (409, 413)},
    )
    async def complete_upload(
        file: PathId,
        actor: Actor,
        wait_ms: WaitMs = 0,
    ) -> UploadedFile:
        """Validate an upload and wait for its thumbnail. Repeat the request to wait longer."""
        uploaded = await container.get(AttachmentContainer).uploads.finish(
            actor, file, wait_ms / 1000
        )
        return UploadedFile(build_attachment(uploaded), uploaded.is_processed)

    @get("/v1/me/attachments", opt={"rule": READ})
    async def get_usage(actor: Actor) -> FileUsage:
        """Get how many bytes the caller's files have, and how many more are allowed."""
        uploads = container.get(AttachmentContainer).uploads
        usage, left_today = await uploads.get_usage(actor)
        settings = container.settings.get(Attachments)
        return FileUsage(
            bytes=usage.user_bytes,
            bytes_max=settings.user_bytes_max,
            left_today=left_today,
            day_bytes_max=settings.day_bytes_max,
            unsent=usage.waiting,
            unsent_max=WAITING_MAX,
        )

    return [begin_upload, complete_upload, get_usage]


def _build_download_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    async def find_link(actor: Actor, name: str, seq: int | None, thumb: int) -> Link:
        return await container.get(AttachmentContainer).download_links.get(
            actor, name, seq=seq, is_thumb=thumb == 1
        )

    @get("/v1/attachments/{file:str}", status_code=302, opt={"rule": READ, "errors": (409,)})
    async def download(
        file: PathId,
        actor: Actor,
        seq: Seq = None,
        thumb: Thumb = 0,
    ) -> Response[None]:
        """Redirect to a file that the user may see, or to its thumbnail."""
        link = await find_link(actor, file, seq, thumb)
        return Response(None, status_code=302, headers={"Location": link.url})

    @get("/v1/attachments/{file:str}/link", opt={"rule": READ, "errors": (409,)})
    async def get_link(
        file: PathId,
        actor: Actor,
        seq: Seq = None,
        thumb: Thumb = 0,
    ) -> FileLink:
        """Return a file's download URL, for clients that cannot read a redirect."""
        link = await find_link(actor, file, seq, thumb)
        return FileLink(
            link.url, link.expires_s, build_attachment(link.file), link.file.is_processed
        )

    return [download, get_link]
