"""Requests about the users who are banned from a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chatserver.domain.ids import ChatId, UserId
from chatserver.protocol.frames import ClientFrame, Id, Limit, RequestId, ServerFrame
from chatserver.protocol.request_costs import by_limit
from chatserver.requests.operation import Route, request

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer


class Bans(ClientFrame, tag="bans", frozen=True):
    """Lists the users who are banned from a group, by id; for its owner and admins."""

    id: RequestId
    chat: Id
    after: Id | None = None
    limit: Limit = 50


class BannedMember(msgspec.Struct, frozen=True):
    """A banned user; `since` is in milliseconds since 1970."""

    user: str
    since: int


class BansPage(ServerFrame, tag="page", frozen=True):
    """Response to `bans`."""

    id: int
    banned: list[BannedMember]
    more: bool
    next: str | None = None


@request(
    Bans,
    reply=BansPage,
    cost=by_limit,
    is_needed_when_full=True,
    http=Route("GET", "/v1/chats/{chat:str}/banned-members", "chats:read"),
)
async def list_banned_members(container: StorageContainer, user: UserId, frame: Bans) -> BansPage:
    """List the users who are banned from a group, sorted by id."""
    bans, following = await container.moderation.list_bans(
        user, ChatId(frame.chat), frame.after, frame.limit
    )
    banned = [BannedMember(ban.user, ban.created_ms) for ban in bans]
    return BansPage(frame.id, banned, following is not None, following)
