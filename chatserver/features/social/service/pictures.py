"""Profile and post pictures, stored as attachments in their owner's private space.

Other attachments belong to a chat (decision 0019). A user's pictures belong to the user's private
space, whose id is stored in place of a chat id. Each use of a picture, in a post or as the avatar,
is recorded in `File.seqs` as a number instead of a message seq. The file is deleted
after its last use is removed.

Users who may read a post or profile may also read its picture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.errors import BadRequest, NotFound
from chatserver.features.attachments.cold import Files
from chatserver.features.attachments.file_types import WEB_IMAGE_TYPES
from chatserver.features.attachments.hot import SendableFiles
from chatserver.features.attachments.model import (
    NO_SUCH_FILE,
    File,
    check_sendable,
    with_message,
    without_message,
)
from chatserver.features.attachments.service.download_links import NOT_READABLE, Link, make_link
from chatserver.features.attachments.warm import Attachments
from chatserver.hot.chats.membership import MemberCheck

AVATAR: Final = "avatar"  # value of `use` for the picture that is the owner's avatar


def get_picture_space(user: UserId) -> ChatId:
    """Return the id of a user's picture space; no chat has this id."""
    return ChatId("s-" + hashlib.blake2b(user.encode(), digest_size=20).hexdigest())


class SpaceReaders:
    """Allows users to read their own picture space. `chats` checks access to chats."""

    def __init__(self, chats: MemberCheck) -> None:
        self._chats = chats

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        """Return the range of messages that a user may read. Raises NotFound."""
        if not chat.startswith("s-"):
            return await self._chats.get_reader(chat, user)
        if chat != get_picture_space(user):
            raise NotFound(NOT_A_MEMBER)
        return Reader(Seq(1), Seq(0))


@attrs.define(eq=False, repr=False, kw_only=True)
class SocialPictures:
    """Use cases for pictures."""

    _rows: Attachments
    _sendable: SendableFiles
    _objects: Files
    _clock: Clock

    async def add_use(self, owner: UserId, file: str, use: str) -> None:
        """Record a use of a user's picture. Idempotent.

        Raises:
            NotFound: there is no such file in the user's space.
            Conflict: the file has not been uploaded yet.
            BadRequest: the file is not a picture.
        """
        row = await self._rows.find_file(file)
        if row is None or not row.seqs:
            row = check_sendable(row, owner, get_picture_space(owner), self._clock.time())
        if row.owner != owner or row.chat != get_picture_space(owner):
            raise NotFound(NO_SUCH_FILE)
        if row.type not in WEB_IMAGE_TYPES:
            raise BadRequest(f"image: must be one of {', '.join(sorted(WEB_IMAGE_TYPES))}")
        await self._change_file(file, lambda file_: with_message(file_, get_use_number(use), None))

    async def remove_use(self, file: str | None, use: str) -> None:
        """Remove a use of a picture. Idempotent."""
        if file is not None:
            now_s = self._clock.time()
            await self._change_file(
                file, lambda file_: without_message(file_, get_use_number(use), now_s)
            )

    async def _change_file(self, file: str, change: Callable[[File], File]) -> None:
        changed = await self._rows.update_file(file, change)
        if changed is not None:
            await self._sendable.put(changed, self._clock.time(), is_update=True)

    async def get_link(self, file: str | None, *, is_thumb: bool) -> Link:
        """Return a signed URL for a picture; the caller must have checked read access.

        With `is_thumb`, the URL leads to the thumbnail, or to the picture until a thumbnail exists.

        Raises:
            NotFound: there is no picture, or it was deleted.
        """
        row = None if file is None else await self._rows.find_file(file)
        if row is None or row.phase != "ready":
            raise NotFound(NOT_READABLE)
        return await make_link(self._objects, row, is_thumb=is_thumb and row.has_thumb)


def get_use_number(use: str) -> int:
    """Return the number that represents `use` in `File.seqs`, in place of a message seq."""
    return int.from_bytes(hashlib.blake2b(use.encode(), digest_size=6).digest(), "big") + 1
