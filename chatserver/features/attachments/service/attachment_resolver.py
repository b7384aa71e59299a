"""Resolves file ids in messages. Gateways import this module, so it imports no AWS libraries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest
from chatserver.features.attachments.hot import SendableFiles
from chatserver.features.attachments.model import File, check_sendable
from chatserver.protocol import frames


def build_attachment(file: File) -> frames.Attachment:
    """Return the part of a file's data that message recipients get."""
    return frames.Attachment(
        id=file.id,
        name=file.name,
        type=file.type,
        size=file.size,
        width=file.width,
        height=file.height,
        thumb=file.has_thumb,
    )


@attrs.define(eq=False, repr=False, kw_only=True)
class AttachmentResolver:
    """Turns the file ids in a message into attachments. Used by gateways and the API."""

    _files: SendableFiles
    _load_file: Callable[[str], Awaitable[File | None]]
    _clock: Clock

    async def resolve(
        self, sender: UserId, chat: ChatId, ids: Sequence[str]
    ) -> list[frames.Attachment]:
        """Return the attachments of a message that `sender` sends to `chat`.

        Guarantees:
            Cost: one Redis round trip, plus one DynamoDB read per file that is not in Redis.

        Raises:
            NotFound: a file does not exist, or belongs to another user or chat.
            Conflict: a file has not been uploaded yet.
            BadRequest: there are too many files, or the same file appears twice.
        """
        if len(ids) > frames.ATTACHMENTS_MAX:
            raise BadRequest(f"attachments: must be at most {frames.ATTACHMENTS_MAX} per message")
        if len(set(ids)) < len(ids):
            raise BadRequest("attachments: must not contain a file twice")
        attachments = []
        for name, sendable in zip(ids, await self._files.find(ids), strict=True):
            file = sendable or await self._load_file(name)
            attachments.append(
                build_attachment(check_sendable(file, sender, chat, self._clock.time()))
            )
        return attachments
