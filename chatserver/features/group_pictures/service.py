"""Group picture files, and links to them."""

from __future__ import annotations

import attrs

from chatserver.domain.ids import ChatId, UserId
from chatserver.features.attachments.service.download_links import Link
from chatserver.features.social.service.pictures import SocialPictures
from chatserver.hot.chats.membership import MemberCheck
from chatserver.warm.chats.directory import Directory


@attrs.define(eq=False, repr=False, kw_only=True)
class GroupPictureFiles:
    """Implements `chatserver.service.membership.group_pictures.GroupPictures`."""

    _files: SocialPictures
    _members: MemberCheck
    _directory: Directory

    async def claim(self, user: UserId, chat: ChatId, file: str) -> None:
        await self._files.add_use(user, file, _make_use(chat))

    async def release(self, chat: ChatId, file: str) -> None:
        await self._files.remove_use(file, _make_use(chat))

    async def get_link(self, user: UserId, chat: ChatId, *, is_thumb: bool) -> Link:
        """Return a signed URL for a group's picture.

        Raises:
            NotFound: the user is not a member, or the group has no picture.
        """
        await self._members.get_reader(chat, user)
        record = await self._directory.get_chat(chat)
        return await self._files.get_link(record.picture, is_thumb=is_thumb)


def _make_use(chat: ChatId) -> str:
    return f"chat {chat}"
