"""Interface for group picture files."""

from __future__ import annotations

from typing import Final, Protocol

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest


class GroupPictures(Protocol):
    """Retains group picture files; the `group_pictures` feature implements this."""

    async def claim(self, user: UserId, chat: ChatId, file: str) -> None:
        """Retain a picture uploaded by `user` as the picture of `chat`, until `release`.

        Guarantees:
            Idempotent.

        Raises:
            NotFound: the user has no upload with the id `file`.
            Conflict: the picture has not been uploaded yet.
            BadRequest: the file is not a picture, or this server does not support pictures.
        """

    async def release(self, chat: ChatId, file: str) -> None:
        """Release a picture that is no longer the picture of `chat`. Idempotent."""


class _NoGroupPictures:
    async def claim(self, user: UserId, chat: ChatId, file: str) -> None:
        raise BadRequest("picture: this server does not accept group pictures")

    async def release(self, chat: ChatId, file: str) -> None:
        return None


NO_GROUP_PICTURES: Final[GroupPictures] = _NoGroupPictures()
