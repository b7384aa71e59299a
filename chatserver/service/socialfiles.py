"""Pictures of users and of their posts: files as those of messages are, in a space of one's own.

A file belongs to a chat (decision 0019). A user's pictures belong to a space that only he is in and
in which nobody sends anything: its name is derived from his, as a direct chat's is. They are
uploaded as all files are. What uses one, a post or the user himself, is noted where messages would
be, by a number: the last use that ends takes the file along.

Who may see the post, or the user, may load its picture: it is asked for there, never by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final, Protocol

from chatserver.config import Attachments as Settings
from chatserver.domain.attachments import (
    NO_SUCH_FILE,
    RASTER_TYPES,
    File,
    check_sendable,
    with_message,
    without_message,
)
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership import NOT_A_MEMBER, Reader
from chatserver.errors import BadRequest, NotFound
from chatserver.service.attachments import NOTHING_TO_READ, Link

AVATAR: Final = "avatar"  # what uses a user's own picture


class FileRows(Protocol):
    """The directory's files."""

    async def find_file(self, file: str) -> File | None: ...

    async def change_file(self, file: str, change: Callable[[File], File]) -> File | None: ...


class SendableFiles(Protocol):
    """The hot tier's copies."""

    async def put(self, file: File, now_s: float, *, is_news: bool) -> None: ...


class Objects(Protocol):
    """The files' content."""

    async def sign_link(self, file: File, lifetime_s: int) -> str: ...

    async def sign_thumb_link(self, file: File, lifetime_s: int) -> str: ...


class Readers(Protocol):
    """Says who may read a chat."""

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader: ...


def space_of(user: UserId) -> ChatId:
    """Return the space of a user's pictures; no chat has such a name."""
    return ChatId("s-" + hashlib.blake2b(user.encode(), digest_size=20).hexdigest())


class SpaceReaders:
    """Lets users into their own spaces; asks about chats."""

    def __init__(self, chats: Readers) -> None:
        self._chats = chats

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        """Return what a user may read. Raises NotFound."""
        if not chat.startswith("s-"):
            return await self._chats.get_reader(chat, user)
        if chat != space_of(user):
            raise NotFound(NOT_A_MEMBER)
        return Reader(Seq(1), Seq(0))


class SocialFiles:
    """The use case."""

    def __init__(
        self,
        rows: FileRows,
        sendable: SendableFiles,
        objects: Objects,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._sendable = sendable
        self._objects = objects
        self._settings = settings
        self._clock = clock

    async def take(self, owner: UserId, file: str, use: str) -> None:
        """Note that something uses a picture of a user's. Idempotent.

        Raises:
            NotFound: there is no such file in the user's space.
            Conflict: it is not uploaded yet.
            BadRequest: it is no picture.
        """
        known = await self._rows.find_file(file)
        if known is None or not known.seqs:
            known = check_sendable(known, owner, space_of(owner), self._clock.time())
        if known.owner != owner or known.chat != space_of(owner):
            raise NotFound(NO_SUCH_FILE)
        if known.type not in RASTER_TYPES:
            raise BadRequest(f"image: must be one of {', '.join(sorted(RASTER_TYPES))}")
        await self._change(file, lambda each: with_message(each, number_of(use), None))

    async def release(self, file: str | None, use: str) -> None:
        """Note that something does not use a picture any more. Idempotent."""
        if file is not None:
            now_s = self._clock.time()
            await self._change(file, lambda each: without_message(each, number_of(use), now_s))

    async def _change(self, file: str, change: Callable[[File], File]) -> None:
        changed = await self._rows.change_file(file, change)
        if changed is not None:
            await self._sendable.put(changed, self._clock.time(), is_news=True)

    async def get_link(self, file: str | None, *, is_thumb: bool) -> Link:
        """Return an address of a picture that the caller may see where it is used.

        Raises:
            NotFound: there is none, or it is gone.
        """
        found: Any = None if file is None else await self._rows.find_file(file)
        if found is None or found.phase != "ready" or (is_thumb and not found.has_thumb):
            raise NotFound(NOTHING_TO_READ)
        lifetime_s = self._settings.link_s
        sign = self._objects.sign_thumb_link if is_thumb else self._objects.sign_link
        return Link(await sign(found, lifetime_s), lifetime_s, found)


def number_of(use: str) -> int:
    """Return the number by which a file knows what uses it."""
    return int.from_bytes(hashlib.blake2b(use.encode(), digest_size=6).digest(), "big") + 1
