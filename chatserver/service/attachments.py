"""Attachments: from a wish to upload a file to messages that have it and readers who load it.

::

    begin ──► row in the directory, form for S3 ··· the client uploads ··· finish ──► ready
                                                                               │
    send with ids ──► take (gateway, API): exists, the sender's, this chat's ◄─┘
    read ──► link: the message that has it, as this reader sees it ──► a short-lived address

Who may read a file is never asked of the file: it is asked of the message, by the same reading that
history does. So whoever cannot see the message, because he left, came later, or it is deleted,
expired or hidden, cannot load the file (promise P7).
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from chatserver.config import Attachments as Settings
from chatserver.domain.attachments import (
    NO_SUCH_FILE,
    RASTER_TYPES,
    Bounds,
    File,
    check_sendable,
    parse_checksum,
    parse_file_name,
    parse_type,
)
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, UserId, new_id
from chatserver.domain.membership import Reader
from chatserver.errors import BadRequest, NotFound
from chatserver.protocol import codec, frames
from chatserver.service.fair_slots import FairSlots
from chatserver.service.history import Page

CHECKS_MAX = 4  # uploads that a process checks at once; one of each owner
CHECKS_WAITING_MAX = 64  # of an owner
SEQS_TRIED_MAX = 3
POLL_S = 0.05
ROW_POLL_S = 0.5  # of what only the directory knows
NOTHING_TO_READ = "attachment: there is no such file, or you may not see it"


class FileRows(Protocol):
    """The directory's files."""

    async def create_file(self, file: File, bounds: Bounds) -> File: ...

    async def find_file(self, file: str) -> File | None: ...

    async def change_file(self, file: str, change: Callable[[File], File]) -> File | None: ...


class SendableFiles(Protocol):
    """The hot tier's copies."""

    async def find(self, files: Sequence[str]) -> list[File | None]: ...

    async def put(self, file: File, now_s: float, *, is_news: bool) -> None: ...


class Form(Protocol):
    """Where to upload to."""

    @property
    def url(self) -> str: ...

    @property
    def fields(self) -> dict[str, str]: ...


class Objects(Protocol):
    """The files' content."""

    async def sign_upload(self, file: File, lifetime_s: int) -> Form: ...

    async def accept(self, file: File) -> None: ...

    async def drop_upload(self, file: File) -> None: ...

    async def sign_link(self, file: File, lifetime_s: int) -> str: ...

    async def sign_thumb_link(self, file: File, lifetime_s: int) -> str: ...


class Jobs(Protocol):
    """Images that wait to be looked at."""

    async def add(self, file: str) -> None: ...


class Readers(Protocol):
    """Says who may read a chat."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...


class Pages(Protocol):
    """Messages, as a reader sees them."""

    async def get_page(self, reader: UserId, frame: frames.History) -> Page: ...


class LoadFile(Protocol):
    """Asks the directory for a file."""

    async def __call__(self, file: str, /) -> File | None: ...


class Begun(NamedTuple):
    """An upload that may begin; `form` is None where it is over already."""

    file: File
    form: Form | None
    expires_s: int


class Link(NamedTuple):
    """An address that holds for `expires_s`, and what is known of the file by now."""

    url: str
    expires_s: int
    file: File


def attachment_of(file: File) -> frames.Attachment:
    """Return what readers get of a file."""
    return frames.Attachment(
        file.id, file.name, file.type, file.size, file.width, file.height, file.has_thumb
    )


class Sendable:
    """Turns the ids in a send into what the message carries. Used by gateways and the API."""

    def __init__(
        self,
        files: SendableFiles,
        load_file: LoadFile,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._files = files
        self._load_file = load_file
        self._settings = settings
        self._clock = clock

    async def take(
        self, sender: UserId, chat: ChatId, ids: Sequence[str]
    ) -> list[frames.Attachment]:
        """Return the attachments of a message that `sender` sends to `chat`.

        Guarantees:
            Cost: one Redis round trip; a call to the directory for each file that is not there.

        Raises:
            NotFound: one of them does not exist, or is another user's or chat's.
            Conflict: one is not uploaded yet.
            BadRequest: there are too many, or one is there twice.
        """
        if len(ids) > self._settings.per_message_max:
            raise BadRequest(f"attachments: at most {self._settings.per_message_max}")
        if len(set(ids)) < len(ids):
            raise BadRequest("attachments: one is there twice")
        taken = []
        for name, known in zip(ids, await self._files.find(ids), strict=True):
            file = known or await self._load_file(name)
            taken.append(attachment_of(check_sendable(file, sender, chat, self._clock.time())))
        return taken


class Uploads:
    """Uploads and downloads. Used by the API."""

    def __init__(
        self,
        rows: FileRows,
        objects: Objects,
        files: SendableFiles,
        jobs: Jobs,
        readers: Readers,
        pages: Pages,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._objects = objects
        self._files = files
        self._jobs = jobs
        self._readers = readers
        self._pages = pages
        self._settings = settings
        self._clock = clock
        self._checks = FairSlots(CHECKS_MAX, 1, CHECKS_WAITING_MAX, "uploads")
        self._bounds = Bounds(
            settings.size_bytes_max, settings.waiting_max, settings.waiting_bytes_max
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
    ) -> Begun:
        """Take note of an upload and return the form for it.

        Guarantees:
            Idempotent by `key`: the same again gives the same file, and a fresh form while it is
            not finished.

        Raises:
            NotFound: no such chat, or not a member.
            BadRequest, TooLarge: a field is not allowed.
            RateLimited: too many of the owner's uploads wait to be sent.
            Conflict: `key` stands for another upload.
        """
        now = int(self._clock.time())
        file = File(
            id=new_id() if key is None else _id_of(owner, chat, key),
            owner=owner,
            chat=chat,
            name=parse_file_name(name),
            type=parse_type(type_),
            size=size,
            sha256=parse_checksum(sha256),
            created=now,
            due=now + self._settings.unreferenced_s,
        )
        await self._readers.get_reader(chat, owner)
        known = await self._rows.create_file(file, self._bounds)
        if known.phase == "ready":
            return Begun(known, None, 0)
        expires_s = self._settings.upload_s
        return Begun(known, await self._objects.sign_upload(known, expires_s), expires_s)

    async def finish(self, owner: UserId, id_: str, wait_s: float = 0.0) -> File:
        """Look at what was uploaded, and make it ready to be sent.

        Of an image, dimensions and a thumbnail come a little later: with `wait_s`, they are waited
        for; `is_looked_at` tells whether they came, and the same call again asks again. It may have
        been sent meanwhile: messages keep what they were sent with, and `get_link` tells the rest.

        Guarantees:
            Idempotent.
            Cost: several calls to S3 and DynamoDB; one upload of an owner is checked at a time.

        Raises:
            NotFound: no such file of the owner's.
            Conflict: it is not uploaded yet.
            BadRequest: what was uploaded is not what was announced.
            RateLimited: too many uploads of the owner wait to be checked.
        """
        async with self._checks.hold(owner):
            file = await self._find_own(owner, id_)
            await self._readers.get_reader(file.chat, owner)
            if file.phase != "ready":
                await self._objects.accept(file)
                file = await self._mark_ready(file)
                await self._objects.drop_upload(file)
        if file.is_unreferenced:
            file = await self._announce(file)
        return file if file.is_looked_at else await self._wait_for_look(file, wait_s)

    async def _announce(self, file: File) -> File:
        """Tell gateways and media workers of a file that is ready.

        What Redis has was announced: the job goes first, so whoever died in between asks again.
        """
        (known,) = await self._files.find([file.id])
        if known is not None:
            return known
        if not file.is_looked_at:
            await self._jobs.add(file.id)
        await self._files.put(file, self._clock.time(), is_news=False)
        return file

    async def _mark_ready(self, file: File) -> File:
        is_image = file.type in RASTER_TYPES and file.size <= self._settings.image_bytes_max

        def make_ready(known: File) -> File:
            if known.phase == "ready":
                return known
            return dataclasses.replace(known, phase="ready", is_looked_at=not is_image)

        ready = await self._rows.change_file(file.id, make_ready)
        if ready is None:
            raise NotFound(NO_SUCH_FILE)
        return ready

    async def _wait_for_look(self, file: File, wait_s: float) -> File:
        give_up = self._clock.monotonic() + wait_s
        is_here = True  # in Redis, until a message has it
        while not file.is_looked_at and self._clock.monotonic() < give_up:
            await asyncio.sleep(POLL_S if is_here else ROW_POLL_S)
            (known,) = await self._files.find([file.id])
            is_here = known is not None
            file = known or await self._rows.find_file(file.id) or file
        return file

    async def _find_own(self, owner: UserId, id_: str) -> File:
        file = await self._rows.find_file(id_)
        if file is None or file.owner != owner:
            raise NotFound(NO_SUCH_FILE)
        return file

    async def get_link(self, reader: UserId, id_: str, *, seq: int | None, is_thumb: bool) -> Link:
        """Return an address from which `reader` may load a file, or its thumbnail.

        `seq`: the message in which the reader sees it; without it, those that the warm tier knows.
        The owner of a file that no message has may load it as long as he is in the chat.

        Raises:
            NotFound: there is no such file or thumbnail, or it is not for this reader.
        """
        file = await self._rows.find_file(id_)
        if file is None or file.phase != "ready" or (is_thumb and not file.has_thumb):
            raise NotFound(NOTHING_TO_READ)
        if not await self._is_visible(reader, file, seq):
            raise NotFound(NOTHING_TO_READ)
        lifetime_s = self._settings.link_s
        sign = self._objects.sign_thumb_link if is_thumb else self._objects.sign_link
        return Link(await sign(file, lifetime_s), lifetime_s, file)

    async def _is_visible(self, reader: UserId, file: File, seq: int | None) -> bool:
        try:
            if seq is None and file.is_unreferenced:
                await self._readers.get_reader(file.chat, reader)
                return reader == file.owner
            seqs = sorted(file.seqs, reverse=True)[:SEQS_TRIED_MAX] if seq is None else [seq]
            for one in seqs:
                if await self._has_file(reader, file, one):
                    return True
        except NotFound:
            return False  # not a member, which says no more than that there is nothing
        return False

    async def _has_file(self, reader: UserId, file: File, seq: int) -> bool:
        """Tell whether message `seq`, as the reader sees it now, has the file."""
        if seq < 1:
            return False
        page = await self._pages.get_page(
            reader, frames.History(id=0, chat=file.chat, after=seq - 1, limit=1)
        )
        messages = [codec.decode_message(raw) for raw in page.messages]
        return any(
            message.seq == seq and any(one.id == file.id for one in message.attachments)
            for message in messages
        )


def _id_of(owner: UserId, chat: ChatId, key: str) -> str:
    """Return the id of the file that `owner` asked for under `key`: a retry finds the same."""
    text = f"{owner}#{chat}#{key}"  # an id holds no '#'
    return "f-" + hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
