"""Support of the attachment tests: parts of an API and of a worker on real servers."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import secrets
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
from PIL import Image
from pydantic import SecretStr

from chatserver import config
from chatserver.api.message_sending import send_message
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import ObjectStore, open_s3
from chatserver.config import Cold, Settings, Warm
from chatserver.container.storage import StorageContainer, open_storage_container
from chatserver.dev.servers import ACCESS_KEY, SECRET_KEY
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.features.attachments.container import AttachmentContainer
from chatserver.features.attachments.model import File
from chatserver.features.attachments.service.uploads import StartedUpload, Uploads
from chatserver.features.attachments.warm import Attachments
from chatserver.features.attachments.worker.media import run_media
from chatserver.hot.chats.backlog import Backlog
from chatserver.protocol import codec, frames
from tests.integration.workers.support import running
from tests.support.servers.processes import eventually
from workers.persist.worker import PersistWorker

_numbers = itertools.count(1)
EXIF_TURNED = 6  # the camera was held upright
ORIENTATION, DESCRIPTION = 0x0112, 0x010E


def cold_settings(endpoint: str) -> Cold:
    """Return settings for a bucket of the test's own."""
    return Cold(
        endpoint=endpoint,
        bucket=f"t-{secrets.token_hex(6)}",
        access_key=ACCESS_KEY,
        secret_key=SecretStr(SECRET_KEY),
        origins=["http://page.example"],
        call_timeout_s=30,
    )


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


class Scene(NamedTuple):
    """A direct chat of `alice` and `bob`, and `carol`, who is not in it."""

    chat: ChatId
    alice: UserId
    bob: UserId
    carol: UserId


@dataclasses.dataclass
class FileWorld:
    """The parts of one API and one worker process, and a browser of sorts."""

    api: StorageContainer
    worker: StorageContainer
    settings: Settings
    http: aiohttp.ClientSession
    store: ObjectStore

    @property
    def uploads(self) -> Uploads:
        """The uploads of the API."""
        return self.api.get(AttachmentContainer).uploads

    @property
    def rows(self) -> Attachments:
        """The rows of the worker."""
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
        """Ask for an upload."""
        digest = hashlib.sha256(content).hexdigest()
        return await self.uploads.begin(owner, chat, name, type_, len(content), digest, key)

    async def post(self, begun: StartedUpload, content: bytes, **changes: str | None) -> int:
        """Post a form, some of its fields changed or left out; return the status."""
        assert begun.form is not None
        form = aiohttp.FormData()
        for name, value in {**begun.form.fields, **changes}.items():
            if value is not None:
                form.add_field(name, value)
        form.add_field("file", content, filename="whatever")
        async with self.http.post(begun.form.url, data=form) as answer:
            return answer.status

    async def upload(
        self,
        owner: UserId,
        chat: ChatId,
        content: bytes,
        name: str = "a.bin",
        type_: str = "application/octet-stream",
    ) -> File:
        """Upload a file, whole."""
        begun = await self.begin(owner, chat, content, name, type_)
        assert await self.post(begun, content) == 204
        return await self.uploads.finish(owner, begun.file.id)

    async def send(
        self, sender: UserId, chat: ChatId, *files: str, ref: str | None = None, **more: Any
    ) -> frames.Ack:
        """Send a message with files."""
        send = frames.Send(
            0, chat, ref or new_id(), more.pop("body", ""), attachments=list(files), **more
        )
        return await send_message(self.api, sender, send)

    async def read(self, reader: UserId, chat: ChatId, seq: int) -> frames.Message:
        """Return a message as a reader sees it."""
        page = await self.api.history.get_page(
            reader, frames.History(0, chat, after=seq - 1, limit=1)
        )
        return codec.decode_message(page.messages[0])

    async def load(self, reader: UserId, file: str, **how: Any) -> tuple[dict[str, str], bytes]:
        """Follow a reader's link: the answer's headers and content."""
        link = await self.uploads.get_link(
            reader, file, seq=how.get("seq"), is_thumb=how.get("is_thumb", False)
        )
        async with self.http.get(link.url) as answer:
            assert answer.status == 200, await answer.text()
            return {name.lower(): value for name, value in answer.headers.items()}, (
                await answer.read()
            )

    async def persist(self) -> None:
        """Have all that was committed written to the warm tier."""
        for partition in range(self.api.hot.keys.partitions):
            backlog = Backlog(self.api.hot, partition)

            async def is_done(backlog: Backlog = backlog) -> bool:
                return await backlog.count_waiting() == 0

            async with running(PersistWorker(self.worker, partition, "test").run()):
                await eventually(is_done, deadline_s=60, what="all is persisted")

    async def look(self, file: str) -> File:
        """Have a media worker look at what waits, until it has looked at `file`."""
        async with running(run_media(self.worker, "test")):
            return await self.until_looked_at(file)

    async def until_looked_at(self, file: str) -> File:
        """Wait until a media worker has looked at a file, and everybody knows."""

        async def is_processed() -> File | None:
            (told,) = await self.worker.get(AttachmentContainer).sendable.find([file])
            if told is not None and not told.is_processed:
                return None
            found = await self.rows.find_file(file)
            return found if found is None or found.is_processed else None

        found = await eventually(is_processed, deadline_s=60, what="the image is looked at")
        assert found is not None
        return found

    async def meet(self) -> Scene:
        """Return people whom no other test knows."""
        number = next(_numbers)
        alice, bob, carol = (UserId(f"{name}-{number}") for name in ("alice", "bob", "carol"))
        for user in (alice, bob, carol):
            await self.api.user_loader.ensure_loaded(user, is_vouched=True)
        info = await self.api.chats.open_direct(alice, bob)
        return Scene(ChatId(info.chat), alice, bob, carol)

    async def list_keys(self, file: str) -> list[str]:
        """Return the keys of all objects of a file."""
        answer = await self.store.call("list_objects_v2")
        keys = sorted(each["Key"] for each in answer.get("Contents", []))
        return [key for key in keys if key.endswith(f"/{file}")]


FEW = {
    "chatserver.features.attachments.service.sendable.PER_MESSAGE_MAX": 2,
    "chatserver.features.attachments.service.uploads.IMAGE_BYTES_MAX": 10_000,
    "chatserver.features.attachments.worker.sweep.SETTLE_S": 0,
    "chatserver.features.attachments.worker.media.THUMB_TIMEOUT_S": 60,
    "workers.persist.worker.IDLE_MS": 50,
}


@contextlib.asynccontextmanager
async def open_file_world(
    redis_url: str, warm: Warm, cold: Cold, **attachments: Any
) -> AsyncIterator[FileWorld]:
    """Put it together, with an empty bucket."""
    settings = Settings(
        redis=config.Redis(url=redis_url, call_timeout_s=20),  # a slow machine is no broken one
        warm=warm,
        cold=cold,
        auth=config.Auth(secret=SecretStr("s" * 32)),
        chats=config.Chats(invitations="never"),
        attachments=config.Attachments(**attachments),
    )
    async with (
        open_s3(cold) as store,
        open_storage_container(role="api", settings=settings, clock=SystemClock()) as api,
        open_storage_container(role="worker", settings=settings, clock=SystemClock()) as worker,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http,
    ):
        await apply_bucket(store, cold)
        yield FileWorld(api, worker, settings, http, store)
