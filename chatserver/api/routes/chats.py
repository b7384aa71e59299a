"""Chat and member routes, equivalent to the frames `chats`, `create_chat`, `invite` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from litestar import Request, delete, get, patch, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import PathId, RefQuery, build_body_type, build_frame, get_ref
from chatserver.api.security import Actor, Caller, pay_for, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.membership_rules import Role
from chatserver.hot.users.rate_limits import TOO_MUCH
from chatserver.protocol import frames
from chatserver.protocol.redis_memory_costs import (
    CHAT_BYTES,
    MEMBER_BYTES,
    NEW_INBOX_BYTES,
    compute_cost,
    compute_membership_change_cost,
)
from chatserver.service.membership.group_preview import GroupPreview, read_group_preview

READ, WRITE = user_or_key("chats:read"), user_or_key("chats:write")

if TYPE_CHECKING:  # at runtime, these types are built from frame types
    NewChat: TypeAlias = msgspec.Struct
    ChatChanges: TypeAlias = msgspec.Struct
    Invitation: TypeAlias = msgspec.Struct
    NewRole: TypeAlias = msgspec.Struct
    Reference: TypeAlias = msgspec.Struct
else:
    NewChat = build_body_type("NewChat", frames.CreateChat)
    ChatChanges = build_body_type("ChatChanges", frames.UpdateChat, "chat")
    Invitation = build_body_type("Invitation", frames.Invite, "chat")
    NewRole = build_body_type("NewRole", frames.SetRole, "chat", "user")
    Reference = build_body_type("Reference", frames.Join, "chat")


class Member(msgspec.Struct, frozen=True):
    """A member of a chat. `joined` is the `seq` at which they joined."""

    user: str
    role: Role
    joined: int


def build_chats_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [
        *_build_chat_routes(container),
        *_build_member_routes(container),
        *_build_own_membership_routes(container),
        *_build_invitation_routes(container),
    ]


DIRECT_BYTES = CHAT_BYTES + 2 * MEMBER_BYTES + NEW_INBOX_BYTES


def _build_chat_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats", opt={"rule": READ})
    async def list_chats(
        actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[frames.ChatSummary]:
        """List the user's chats, newest activity first."""
        place = f"chats of {actor}"
        after = container.cursors.open(place, cursor, str)
        items, following = await container.chats.list_page(actor, after, limit)
        return Page(items, container.cursors.sign(place, following))

    @post("/v1/chats", opt={"rule": WRITE, "creates": True})
    async def create_chat(
        data: JSONBody[NewChat], actor: Actor, principal: Caller, request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Create a group; `members` whose consent is needed receive an invitation."""
        frame, is_host = build_frame(frames.CreateChat, data, request), principal.kind == "key"
        await container.limits.find("memory", actor).pay(TOO_MUCH, compute_cost(frame, 0))
        await pay_for(container.limits, actor, frame)
        return await create_group(container, actor, frame, is_host=is_host)

    @put("/v1/direct-chats/{user:str}", opt={"rule": WRITE, "memory": DIRECT_BYTES})
    async def open_direct(user: PathId, actor: Actor, principal: Caller) -> frames.ChatInfo:
        """Open the direct chat with another user; repeated calls return the same chat."""
        is_host = principal.kind == "key"
        return await container.chats.open_direct(actor, UserId(user), is_host=is_host)

    @get("/v1/chats/{chat:str}", opt={"rule": READ})
    async def get_chat(chat: PathId, actor: Actor) -> frames.ChatInfo:
        """Return a chat and its first members, sorted by id."""
        await container.members.get_reader(ChatId(chat), actor)
        return await container.membership_propagation.describe(ChatId(chat))

    @patch("/v1/chats/{chat:str}", opt={"rule": WRITE})
    async def update_chat(
        chat: PathId, data: JSONBody[ChatChanges], actor: Actor, request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Change the settings of a group, such as its name and who may join."""
        frame = build_frame(frames.UpdateChat, data, request, chat=chat)
        return await change_group(container, actor, frame)

    return [list_chats, create_chat, open_direct, get_chat, update_chat]


async def change_group(
    container: StorageContainer, user: UserId, frame: frames.AnyChange, *, is_host: bool = False
) -> frames.ChatInfo:
    """Change a group, and charge its members' new events to the Redis memory budget of `user`."""
    info = await container.membership.change(user, frame, is_host=is_host)
    container.limits.charge_memory(user, compute_membership_change_cost(frame, info))
    return info


async def create_group(
    container: StorageContainer, user: UserId, frame: frames.CreateChat, *, is_host: bool
) -> frames.ChatInfo:
    """Create a group; if it is large, write it to all members' inboxes before returning."""
    info = await container.chats.create_chat(user, frame, is_host=is_host)
    if info.large:
        await container.membership_propagation.finish(ChatId(info.chat))
    return info


def _build_member_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/members", opt={"rule": READ})
    async def list_members(
        chat: PathId, actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Member]:
        """List the members of a chat, sorted by id."""
        await container.members.get_reader(ChatId(chat), actor)
        place = f"members of {chat} for {actor}"
        after = container.cursors.open(place, cursor, str)
        members = await container.memberships.list_after(chat, after, limit + 1)
        page = [Member(member.user, member.role, member.joined) for member in members[:limit]]
        has_more = len(members) > limit
        return Page(page, container.cursors.sign(place, page[-1].user) if has_more else None)

    @post("/v1/chats/{chat:str}/members", opt={"rule": WRITE, "creates": True})
    async def invite(
        chat: PathId,
        data: JSONBody[Invitation],
        actor: Actor,
        principal: Caller,
        request: Request[Any, Any, Any],
    ) -> frames.ChatInfo:
        """Add users to a group; users whose consent is needed receive an invitation."""
        frame, is_host = (
            build_frame(frames.Invite, data, request, chat=chat),
            principal.kind == "key",
        )
        await container.limits.find("memory", actor).pay(TOO_MUCH, compute_cost(frame, 0))
        await pay_for(container.limits, actor, frame)
        return await change_group(container, actor, frame, is_host=is_host)

    @patch("/v1/chats/{chat:str}/members/{user:str}", opt={"rule": WRITE})
    async def set_role(
        chat: PathId,
        user: PathId,
        data: JSONBody[NewRole],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> frames.ChatInfo:
        """Change the role of a member."""
        frame = build_frame(frames.SetRole, data, request, chat=chat, user=user)
        return await change_group(container, actor, frame)

    @delete("/v1/chats/{chat:str}/members/{user:str}", status_code=200, opt={"rule": WRITE})
    async def remove(
        chat: PathId,
        user: PathId,
        actor: Actor,
        request: Request[Any, Any, Any],
        ref: RefQuery = None,
    ) -> frames.ChatInfo:
        """Remove another user from a group."""
        frame = frames.Remove(0, chat, get_ref(ref, request), user)
        return await change_group(container, actor, frame)

    return [list_members, invite, set_role, remove]


def _build_own_membership_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/chats/{chat:str}/preview", opt={"rule": READ})
    async def get_group_preview(chat: PathId, actor: Actor) -> GroupPreview:
        """Return the name, topic and size of an open group, and whether the user is a member."""
        return await read_group_preview(container.memberships, ChatId(chat), actor)

    @post("/v1/chats/{chat:str}/join", status_code=200, opt={"rule": WRITE, "creates": True})
    async def join(
        chat: PathId, data: JSONBody[Reference], actor: Actor, request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Join an open group."""
        return await change_group(
            container, actor, build_frame(frames.Join, data, request, chat=chat)
        )

    @post(
        "/v1/chats/{chat:str}/leave",
        status_code=200,
        opt={"rule": WRITE, "creates": True, "protects": True},
    )
    async def leave(
        chat: PathId, data: JSONBody[Reference], actor: Actor, request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Leave a group."""
        return await change_group(
            container, actor, build_frame(frames.Leave, data, request, chat=chat)
        )

    return [get_group_preview, join, leave]


def _build_invitation_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/invitations", opt={"rule": READ})
    async def list_invitations(
        actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[frames.InvitationInfo]:
        """List the user's pending invitations to groups, sorted by chat id.

        A page with `next` may have fewer invitations than `limit`, or none.
        """
        place = f"invitations of {actor}"
        after = container.cursors.open(place, cursor, str)
        items, following = await container.invitations.list_pending(actor, after, limit)
        return Page(items, container.cursors.sign(place, following))

    @post(
        "/v1/invitations/{chat:str}/accept",
        status_code=200,
        opt={"rule": WRITE, "creates": True},
    )
    async def accept_invitation(
        chat: PathId, data: JSONBody[Reference], actor: Actor, request: Request[Any, Any, Any]
    ) -> frames.ChatInfo:
        """Accept an invitation and join the group."""
        frame = build_frame(frames.AcceptInvitation, data, request, chat=chat)
        return await change_group(container, actor, frame)

    @delete("/v1/invitations/{chat:str}", status_code=204, opt={"rule": WRITE})
    async def decline_invitation(chat: PathId, actor: Actor) -> None:
        """Decline an invitation without notifying anyone."""
        await container.invitations.decline(actor, ChatId(chat))

    return [list_invitations, accept_invitation, decline_invitation]
