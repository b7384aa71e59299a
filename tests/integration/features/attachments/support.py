"""Helpers of the attachment tests: an API container and a worker container on real servers."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import aiohttp
import boto3
from PIL import Image
from pydantic import SecretStr

from chatserver import config
from chatserver.api.message_sending import send_message
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.config import Cold, Settings, Warm
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.dev.servers import ACCESS_KEY, REGION, SECRET_KEY
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.model import File
from chatserver.features.attachments.service.uploads import StartedUpload, Uploads
from chatserver.features.attachments.settings import Attachments as AttachmentSettings
from chatserver.features.attachments.warm import Attachments
from chatserver.features.attachments.worker.media import run_media
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.protocol import codec, frames
from tests.integration.workers.support import running
from tests.support.servers.processes import eventually
from workers.persist.worker import PersistWorker

_numbers = itertools.count(1)
EXIF_ROTATED = 6  # by 90 degrees
ORIENTATION, DESCRIPTION = 0x0112, 0x010E


def cold_settings(endpoint: str) -> Cold:
    """Return settings for a new bucket."""
    return Cold(
        endpoint=endpoint,
        bucket=f"t-{secrets.token_hex(6)}",
        access_key=ACCESS_KEY,
        secret_key=SecretStr(SECRET_KEY),
        origins=["http://page.example"],
        call_timeout_s=30,
    )


def cold_variables(cold: Cold) -> dict[str, str]:
    """Return these settings as environment variables."""
    return {
        "CHAT_COLD_ENDPOINT": str(cold.endpoint),
        "CHAT_COLD_BUCKET": cold.bucket,
        "CHAT_COLD_ACCESS_KEY": ACCESS_KEY,
        "CHAT_COLD_SECRET_KEY": SECRET_KEY,
    }


def iter_objects(cold: Cold) -> Iterator[tuple[str, bytes]]:
    """Yield all objects of the bucket, read with boto3."""
    client = boto3.client(
        "s3",
        endpoint_url=cold.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=cold.bucket):
        for each in page.get("Contents", ()):
            try:
                answer = client.get_object(Bucket=cold.bucket, Key=each["Key"])
            except client.exceptions.NoSuchKey:
                continue  # a worker deleted the object
            yield each["Key"], answer["Body"].read()


def picture(
    size: tuple[int, int] = (64, 32), kind: str = "PNG", orientation: int | None = None
) -> bytes:
    """Return an image; with an orientation, its EXIF also has a location."""
    made, out = Image.new("RGB", size, "teal"), io.BytesIO()
    exif = made.getexif()
    if orientation is not None:
        exif[ORIENTATION], exif[DESCRIPTION] = orientation, "at home"
    made.save(out, kind, exif=exif)
    return out.getvalue()


class ChatUsers(NamedTuple):
    """A direct chat of `alice` and `bob`, and `carol`, who is not in it."""

    chat: ChatId
    alice: UserId
    bob: UserId
    carol: UserId


@dataclasses.dataclass
class FileStack:
    """The containers of an API and of a worker process, and an HTTP client."""

    api: StorageContainer
    worker: StorageContainer
    settings: Settings
    http: aiohttp.ClientSession
    store: ObjectStore

    @property
    def uploads(self) -> Uploads:
        return self.api.get(AttachmentContainer).uploads

    @property
    def rows(self) -> Attachments:
        """The DynamoDB rows as the worker reads them."""
        return self.worker.get(AttachmentContainer).rows

    async def begin(
        self,
        owner: UserId,
        chat: ChatId,
        content: bytes,
        name: str = "a.bin",
        type_: str = "application/octet-stream",
        key: str | None = None,
    ) -> StartedUpload:
        digest = hashlib.sha256(content).hexdigest()
        return await self.uploads.begin(owner, chat, name, type_, len(content), digest, key)

    async def post(self, started: StartedUpload, content: bytes, **changes: str | None) -> int:
        """Post the upload form with `fields` changed; a field of None is left out."""
        assert started.form is not None
        form = aiohttp.FormData()
        for name, value in {**started.form.fields, **changes}.items():
            if value is not None:
                form.add_field(name, value)
        form.add_field("file", content, filename="whatever")
        async with self.http.post(started.form.url, data=form) as answer:
            return answer.status

    async def upload(
        self,
        owner: UserId,
        chat: ChatId,
        content: bytes,
        name: str = "a.bin",
        type_: str = "application/octet-stream",
    ) -> File:
        started = await self.begin(owner, chat, content, name, type_)
        assert await self.post(started, content) == 204
        return await self.uploads.finish(owner, started.file.id)

    async def send(
        self, sender: UserId, chat: ChatId, *files: str, ref: str | None = None, **more: Any
    ) -> frames.Ack:
        send = frames.Send(
            0, chat, ref or new_id(), more.pop("body", ""), attachments=list(files), **more
        )
        return await send_message(self.api, sender, send)

    async def read(self, reader: UserId, chat: ChatId, seq: int) -> frames.Message:
        page = await self.api.history.get_page(
            reader, frames.History(0, chat, after=seq - 1, limit=1)
        )
        return codec.decode_message(page.messages[0])

    async def download(
        self, reader: UserId, file: str, **options: Any
    ) -> tuple[dict[str, str], bytes]:
        """Download a file with a reader's link; return headers and content."""
        link = await self.api.get(AttachmentContainer).download_links.get(
            reader, file, seq=options.get("seq"), is_thumb=options.get("is_thumb", False)
        )
        async with self.http.get(link.url) as answer:
            assert answer.status == 200, await answer.text()
            return {name.lower(): value for name, value in answer.headers.items()}, (
                await answer.read()
            )

    async def persist(self) -> None:
        """Run persist workers until all committed messages are in DynamoDB."""
        for partition in range(self.api.hot.keys.partitions):
            backlog = Backlog(self.api.hot, partition)

            async def is_done(backlog: Backlog = backlog) -> bool:
                return await backlog.count_waiting() == 0

            async with running(PersistWorker(self.worker, partition, "test").run()):
                await eventually(is_done, deadline_s=60, what="the backlog is persisted")

    async def process_media(self, file: str) -> File:
        """Run a media worker until it has processed `file`."""
        async with running(run_media(self.worker, "test")):
            return await self.wait_until_processed(file)

    async def wait_until_processed(self, file: str) -> File:
        """Wait until a media worker has processed a file and reported the result."""

        async def is_processed() -> File | None:
            (sendable,) = await self.worker.get(AttachmentContainer).sendable.find([file])
            if sendable is not None and not sendable.is_processed:
                return None
            found = await self.rows.find_file(file)
            return found if found is None or found.is_processed else None

        found = await eventually(is_processed, deadline_s=60, what="the image is processed")
        assert found is not None
        return found

    async def open_chat(self) -> ChatUsers:
        """Create three users, and a direct chat of two of them."""
        number = next(_numbers)
        alice, bob, carol = (UserId(f"{name}-{number}") for name in ("alice", "bob", "carol"))
        for user in (alice, bob, carol):
            await self.api.user_loader.ensure_loaded(user, can_create=True)
        info = await self.api.chats.open_direct(alice, bob)
        return ChatUsers(ChatId(info.chat), alice, bob, carol)

    async def list_keys(self, file: str) -> list[str]:
        answer = await self.store.call("list_objects_v2")
        keys = sorted(each["Key"] for each in answer.get("Contents", []))
        return [key for key in keys if key.endswith(f"/{file}")]


LOW_LIMITS = {
    "chatserver.protocol.frames.limits.ATTACHMENTS_MAX": 2,
    "chatserver.features.attachments.service.uploads.IMAGE_BYTES_MAX": 10_000,
    "chatserver.features.attachments.worker.sweep.SETTLE_S": 0,
    "chatserver.features.attachments.worker.thumbnail_process.THUMB_TIMEOUT_S": 60,
    "workers.persist.worker.IDLE_MS": 50,
}


@contextlib.asynccontextmanager
async def open_file_stack(
    redis_url: str, warm: Warm, cold: Cold, **attachments: Any
) -> AsyncIterator[FileStack]:
    """Open the containers with an empty bucket."""
    settings = Settings(
        redis=config.Redis(url=redis_url, call_timeout_s=20),  # for slow machines
        warm=warm,
        cold=cold,
        auth=config.Auth(secret=SecretStr("s" * 32)),
        chats=config.Chats(invitations="never"),
        attachments=AttachmentSettings(**attachments),
    )
    async with (
        open_s3(cold) as store,
        open_storage_container(role="api", settings=settings, clock=SystemClock()) as api,
        open_storage_container(role="worker", settings=settings, clock=SystemClock()) as worker,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
    ):
        await apply_bucket(store, cold)
        yield FileStack(api, worker, settings, http, store)
