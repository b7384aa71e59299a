"""Upload and validation of attachments.

::

    begin ──► item in `directory`, form for S3 ·· the client uploads ··· finish ──► ready
                                                                               │
    send with ids ──► resolve (gateway, API): owned by the sender, same chat ◄─┘

Downloads are in `download_links`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from typing import NamedTuple

import attrs

from chatserver.domain.access.caller import CALLER
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.errors import NotFound, RateLimited
from chatserver.features.attachments.cold import Files, UploadForm
from chatserver.features.attachments.file_types import RASTER_TYPES, parse_type
from chatserver.features.attachments.hot import MediaJobs, SendableFiles
from chatserver.features.attachments.model import (
    NO_SUCH_FILE,
    File,
    UploadBounds,
    Usage,
    check_size,
    parse_checksum,
    parse_file_name,
)
from chatserver.features.attachments.service.download_links import ReadAccess
from chatserver.features.attachments.settings import Attachments as Settings
from chatserver.features.attachments.warm import Attachments
from chatserver.hot.users.daily_limits import DailyLimit
from chatserver.service.fair_semaphore import FairSemaphore
from chatserver.telemetry import metrics

WAITING_MAX = 20  # maximum uploads per user that no message references yet
UNREFERENCED_S = 86_400  # an upload that no message references is deleted after this time
UPLOAD_S = 300  # lifetime of an upload form; the upload must start within this time
IMAGE_BYTES_MAX = 20_971_520  # images with more bytes get no thumbnail

CHECKS_MAX = 4  # maximum concurrent validations per process; at most one per owner
CHECKS_WAITING_MAX = 64  # maximum waiting validations per owner
POLL_S = 0.05
ROW_POLL_S = 0.5  # interval for polling DynamoDB, if Redis does not have the metadata


class StartedUpload(NamedTuple):
    """An announced upload. `form` is None if the upload is already complete."""

    file: File
    form: UploadForm | None
    expires_s: int


@attrs.define(eq=False, repr=False, kw_only=True)
class Uploads:
    """Upload use cases, for the HTTP API."""

    _rows: Attachments
    _objects: Files
    _files: SendableFiles
    _jobs: MediaJobs
    _readers: ReadAccess
    _settings: Settings
    _clock: Clock
    _daily_bytes: DailyLimit
    _checks: FairSemaphore = attrs.field(
        factory=lambda: FairSemaphore(
            total_max=CHECKS_MAX, user_max=1, waiting_max=CHECKS_WAITING_MAX, requests="uploads"
        ),
        init=False,
    )
    _bounds: UploadBounds = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bounds = UploadBounds(
            self._settings.size_bytes_max, WAITING_MAX, self._settings.user_bytes_max
        )

    async def begin(
        self,
        owner: UserId,
        chat: ChatId,
        name: str,
        type_: str,
        size: int,
        sha256: str,
        key: str | None = None,
    ) -> StartedUpload:
        """Record an announced upload and return the form to upload it with.

        Guarantees:
            Idempotent by `key`: a repeated request returns the same file, with a new form unless
            the upload is already complete.

        Raises:
            NotFound: the chat does not exist, or the owner is not a member.
            BadRequest, TooLarge: a field is invalid, or the owner's files have too many bytes.
            RateLimited: the owner has too many unsent uploads, or has uploaded too much today.
            Conflict: `key` has been used for another upload.
        """
        now = int(self._clock.time())
        file = File(
            id=new_id() if key is None else _derive_id(owner, chat, key),
            owner=owner,
            chat=chat,
            name=parse_file_name(name),
            type=parse_type(type_),
            size=size,
            sha256=parse_checksum(sha256),
            created=now,
            due=now + UNREFERENCED_S,
        )
        await self._readers.get_reader(chat, owner)
        created = await self._create(file)
        if created.phase == "ready":
            return StartedUpload(created, None, 0)
        expires_s = UPLOAD_S
        return StartedUpload(
            created, await self._objects.sign_upload(created, expires_s), expires_s
        )

    async def _create(self, file: File) -> File:
        """Store an announced file, and count its bytes. A retry counts them once."""
        check_size(file.size, self._bounds)
        networks = CALLER.get().networks
        wait_ms = await self._daily_bytes.consume(file.owner, file.size, networks)
        if wait_ms:
            existing = await self._rows.find_file(file.id)
            if existing is not None and existing.is_same_request(file):
                return existing  # a retry of the request that used the budget
            metrics.RATE_LIMITED.labels("attachments").inc()
            raise RateLimited(
                f"attachments: at most {self._settings.day_bytes_max} bytes may be uploaded "
                "within a day; new accounts of a network share a limit",
                retry_after_ms=wait_ms,
            )
        created = None
        try:
            created = await self._rows.create_file(file, self._bounds)
        finally:
            if created is not file:
                await self._daily_bytes.give_back(file.owner, file.size, networks)
        return created

    async def get_usage(self, owner: UserId) -> tuple[Usage, int]:
        """Return a user's usage, and the bytes that they may still upload today."""
        return await self._rows.get_usage(owner), await self._daily_bytes.get_left(owner)

    async def finish(self, owner: UserId, id_: str, wait_s: float = 0.0) -> File:
        """Validate an upload and make it ready to be sent.

        The media worker then creates the thumbnail of an image and determines its dimensions. The
        call waits up to `wait_s` for this. If the returned file is not `is_processed`, repeat the
        call to wait longer. A message that is sent before the image has been processed lacks the
        thumbnail and the dimensions; `DownloadLinks.get` returns them.

        Guarantees:
            Idempotent.
            Cost: several calls to S3 and DynamoDB. A user's uploads are validated one at a time.

        Raises:
            NotFound: the owner has no such file.
            Conflict: the file has not been uploaded yet.
            BadRequest: the upload differs from the announced file.
            RateLimited: too many of the owner's uploads are waiting for validation.
        """
        async with self._checks.hold(owner):
            file = await self._find_own(owner, id_)
            await self._readers.get_reader(file.chat, owner)
            if file.phase != "ready":
                file = await self._mark_ready(file, await self._objects.accept(file))
                await self._objects.delete_upload(file)
        if file.is_unreferenced:
            file = await self._publish(file)
        return file if file.is_processed else await self._wait_until_processed(file, wait_s)

    async def _publish(self, file: File) -> File:
        """Queue a media job for a ready file, then store the file's metadata in Redis.

        If the metadata is already in Redis, the job has been queued. If the process crashes between
        the two steps, the next call queues the job again. In the opposite order, the job would be
        lost.
        """
        (published,) = await self._files.find([file.id])
        if published is not None:
            return published
        if not file.is_processed:
            await self._jobs.add(file.id)
        await self._files.put(file, self._clock.time(), is_update=False)
        return file

    async def _mark_ready(self, file: File, type_: str) -> File:
        is_image = type_ in RASTER_TYPES and file.size <= IMAGE_BYTES_MAX

        def make_ready(stored: File) -> File:
            if stored.phase == "ready":
                return stored
            return dataclasses.replace(stored, type=type_, phase="ready", is_processed=not is_image)

        ready = await self._rows.update_file(file.id, make_ready)
        if ready is None:
            raise NotFound(NO_SUCH_FILE)
        return ready

    async def _wait_until_processed(self, file: File, wait_s: float) -> File:
        deadline = self._clock.monotonic() + wait_s
        is_in_redis = True  # Redis has the metadata until a message references the file
        while not file.is_processed and self._clock.monotonic() < deadline:
            await asyncio.sleep(POLL_S if is_in_redis else ROW_POLL_S)
            (processed,) = await self._files.find([file.id])
            is_in_redis = processed is not None
            file = processed or await self._rows.find_file(file.id) or file
        return file

    async def _find_own(self, owner: UserId, id_: str) -> File:
        file = await self._rows.find_file(id_)
        if file is None or file.owner != owner:
            raise NotFound(NO_SUCH_FILE)
        return file


def _derive_id(owner: UserId, chat: ChatId, key: str) -> str:
    """Derive a file id from an idempotency key, so that a retry produces the same id."""
    text = f"{owner}#{chat}#{key}"  # ids contain no '#'
    return "f-" + hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
