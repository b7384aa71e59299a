"""Download links: checks access to a file, and signs a URL that is valid for `LINK_S`.

Users can download a file only while they can see a message with the file (guarantee P7). They lose
access, for example, when they leave the chat or when the message is deleted. Before a file is sent,
only its owner can download it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import attrs

from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_periods import Reader
from chatserver.errors import NotFound
from chatserver.features.attachments.cold import Files
from chatserver.features.attachments.model import File
from chatserver.features.attachments.warm import Attachments
from chatserver.protocol import codec, frames
from chatserver.service.history.history_pages import HistoryPages

LINK_S = 300  # lifetime of a download URL
SEQS_TRIED_MAX = 3
NOT_READABLE = "attachment: does not exist, or you do not have access to it"


class ReadAccess(Protocol):
    """Checks whether a user may read the messages in a chat.

    Profile and post pictures have the id of their owner's picture space instead of a chat id. Only
    the owner may read a picture space.
    """

    async def get_reader(self, chat: ChatId, user: UserId) -> Reader:
        """Return the range of messages that a user may read.

        Raises:
            NotFound: the user is not a member of the chat.
        """


class Link(NamedTuple):
    """A URL that is valid for `expires_s`, and the current state of the file."""

    url: str
    expires_s: int
    file: File


async def make_link(objects: Files, file: File, *, is_thumb: bool) -> Link:
    """Return a download URL for a file or its thumbnail, without any checks."""
    return Link(await objects.sign_link(file, LINK_S, is_thumb=is_thumb), LINK_S, file)


@attrs.define(eq=False, repr=False, kw_only=True)
class DownloadLinks:
    """Download use case, for the HTTP API."""

    _rows: Attachments
    _objects: Files
    _readers: ReadAccess
    _pages: HistoryPages

    async def get(self, reader: UserId, id_: str, *, seq: int | None, is_thumb: bool) -> Link:
        """Return a download URL for a file or its thumbnail.

        `seq` is the seq of a message with the file. Without it, the `SEQS_TRIED_MAX` newest
        messages that reference the file are tried. If no message references it, its owner can load
        it while they are a member of the chat.

        Raises:
            NotFound: the file or thumbnail does not exist, or the reader may not see it.
        """
        file = await self._rows.find_file(id_)
        if file is None or file.phase != "ready" or (is_thumb and not file.has_thumb):
            raise NotFound(NOT_READABLE)
        if not await self._is_visible(reader, file, seq):
            raise NotFound(NOT_READABLE)
        return await make_link(self._objects, file, is_thumb=is_thumb)

    async def _is_visible(self, reader: UserId, file: File, seq: int | None) -> bool:
        try:
            if seq is None and file.is_unreferenced:
                await self._readers.get_reader(file.chat, reader)
                return reader == file.owner
            seqs = sorted(file.seqs, reverse=True)[:SEQS_TRIED_MAX] if seq is None else [seq]
            for one_seq in seqs:
                if await self._has_file(reader, file, one_seq):
                    return True
        except NotFound:
            return False  # do not reveal to non-members whether the file exists
        return False

    async def _has_file(self, reader: UserId, file: File, seq: int) -> bool:
        if seq < 1:
            return False
        page = await self._pages.get_page(
            reader, frames.History(id=0, chat=file.chat, after=seq - 1, limit=1)
        )
        messages = [codec.decode_message(raw) for raw in page.messages]
        return any(
            message.seq == seq
            and any(attachment.id == file.id for attachment in message.attachments)
            for message in messages
        )
