"""HTTP route for group pictures."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.features.attachments.routes import FileLink
from chatserver.features.group_pictures.container import group_pictures
from chatserver.features.social.routes import Thumb, build_file_link


def build_group_pictures_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    files = group_pictures(container)

    @get("/v1/chats/{chat:str}/picture", opt={"rule": user_or_key("chats:read")})
    async def get_chat_picture(chat: PathId, actor: Actor, thumb: Thumb = 0) -> FileLink:
        """Get a URL for a group's picture. Only members may do this."""
        return build_file_link(await files.get_link(actor, ChatId(chat), is_thumb=thumb == 1))

    return [get_chat_picture]
