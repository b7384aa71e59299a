"""Chat routes without an equivalent frame."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.domain.membership_rules import Role
from chatserver.protocol import frames
from chatserver.service.membership.group_preview import GroupPreview, read_group_preview

READ = user_or_key("chats:read")


class Member(msgspec.Struct, frozen=True):
    """A member of a chat. `joined` is the `seq` at which they joined."""

    user: str
    role: Role
    joined: int


def build_chats_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}", opt={"rule": READ})
    async def get_chat(chat: PathId, actor: Actor) -> frames.ChatInfo:
        """Return a chat and its first members, sorted by id."""
        await container.members.get_reader(ChatId(chat), actor)
        return await container.membership_propagation.describe(ChatId(chat))

    @get("/v1/chats/{chat:str}/members", opt={"rule": READ})
    async def list_members(chat: PathId, actor: Actor, page: PageOf) -> Page[Member]:
        """List the members of a chat, sorted by id."""
        await container.members.get_reader(ChatId(chat), actor)
        found = await container.memberships.list_after(chat, page.open(str), page.limit + 1)
        members = [Member(each.user, each.role, each.joined) for each in found[: page.limit]]
        return page.build(members, members[-1].user if len(found) > page.limit else None)

    @get("/v1/chats/{chat:str}/preview", opt={"rule": READ})
    async def get_group_preview(chat: PathId, actor: Actor) -> GroupPreview:
        """Return the name, topic and size of an open group, and whether the user is a member."""
        return await read_group_preview(container.memberships, ChatId(chat), actor)

    return [get_chat, list_members, get_group_preview]
