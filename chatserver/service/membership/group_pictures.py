"""Interface to the files that are pictures of groups."""

from __future__ import annotations

from typing import Final, Protocol

from chatserver.domain.ids import ChatId, UserId
from chatserver.errors import BadRequest


class GroupPictures(Protocol):
    """Keeps the files of group pictures. Implemented by feature `group_pictures`."""

    async def claim(self, user: UserId, chat: ChatId, file: str) -> None:
        """Keep a picture that `user` uploaded, for as long as it is the picture of `chat`.

        Guarantees:
            Idempotent.

        Raises:
            NotFound: the user has no such picture.
            Conflict: the picture is not uploaded yet.
            BadRequest: the file is not a picture, or there are no pictures on this server.
        """

    async def release(self, chat: ChatId, file: str) -> None:
        """Stop keeping a picture that is no longer that of `chat`. Idempotent."""


class _NoGroupPictures:
    async def claim(self, user: UserId, chat: ChatId, file: str) -> None:
        raise BadRequest("picture: this server does not accept pictures of groups")

    async def release(self, chat: ChatId, file: str) -> None:
        return None


NO_GROUP_PICTURES: Final[GroupPictures] = _NoGroupPictures()
