"""Moderation routes: blocks, mutes, bans and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import (
    PathId,
    PathSeq,
    RefQuery,
    build_body_type,
    build_frame,
    get_ref,
)
from chatserver.api.routes.chats import change_group
from chatserver.api.routes.message_lists import Order
from chatserver.api.security import Actor, Caller, key, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.protocol import frames

READ, WRITE = user_or_key("chats:read"), user_or_key("chats:write")
MODERATE = user_or_key("moderate")

if TYPE_CHECKING:  # at runtime, these types are built from frame types
    Mute: TypeAlias = msgspec.Struct
    NewReport: TypeAlias = msgspec.Struct
else:
    Mute = build_body_type("Mute", frames.MuteMember, "chat", "user")
    NewReport = build_body_type("NewReport", frames.Report, "chat", "seq")


class BannedUser(msgspec.Struct, frozen=True):
    """A user who is banned from a chat; `since` is in Unix milliseconds."""

    user: str
    by: str
    since: int


class ReportInfo(msgspec.Struct, frozen=True):
    """A report about a message; `at` is in Unix milliseconds."""

    chat: str
    seq: int
    reporter: str
    reason: str
    at: int
    state: Annotated[str, msgspec.Meta(description="open or resolved")]
    resolved_by: str | None = None


def build_moderation_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [
        *_build_block_routes(container),
        *_build_member_routes(container),
        *_build_report_routes(container),
    ]


def _build_block_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/me/blocks", opt={"rule": user_or_key("users:read")})
    async def list_blocks(
        actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[frames.BlockedUser]:
        """List the users that the caller has blocked, sorted by id."""
        place = f"blocks of {actor}"
        after = container.cursors.open(place, cursor, str)
        items, following = await container.moderation.list_blocks(actor, after, limit)
        return Page(items, container.cursors.sign(place, following))

    @put(
        "/v1/me/blocks/{user:str}",
        status_code=204,
        opt={"rule": user_or_key("users:write"), "protects": True, "errors": (413,)},
    )
    async def block(user: PathId, actor: Actor) -> None:
        """Block another user. Neither user can send the other direct messages or invitations."""
        await container.moderation.block(actor, UserId(user))

    @delete("/v1/me/blocks/{user:str}", status_code=204, opt={"rule": user_or_key("users:write")})
    async def unblock(user: PathId, actor: Actor) -> None:
        """Unblock another user."""
        await container.moderation.unblock(actor, UserId(user))

    return [list_blocks, block, unblock]


def _build_member_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @put("/v1/chats/{chat:str}/members/{user:str}/mute", opt={"rule": WRITE, "protects": True})
    async def mute_member(
        chat: PathId,
        user: PathId,
        data: JSONBody[Mute],
        actor: Actor,
        request: Request[Any, Any, Any],
    ) -> frames.ChatInfo:
        """Mute a member of a group for `mute_s` seconds, or indefinitely; 0 unmutes."""
        frame = build_frame(frames.MuteMember, data, request, chat=chat, user=user)
        return await change_group(container, actor, frame)

    @get("/v1/chats/{chat:str}/bans", opt={"rule": READ})
    async def list_bans(
        chat: PathId, actor: Actor, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[BannedUser]:
        """List the users who are banned from a chat, sorted by id. Requires an owner or admin."""
        place = f"bans of {chat} for {actor}"
        after = container.cursors.open(place, cursor, str)
        bans, following = await container.moderation.list_bans(actor, ChatId(chat), after, limit)
        items = [BannedUser(ban.user, ban.by, ban.created_ms) for ban in bans]
        return Page(items, container.cursors.sign(place, following))

    @put("/v1/chats/{chat:str}/bans/{user:str}", opt={"rule": WRITE, "protects": True})
    async def ban_member(
        chat: PathId,
        user: PathId,
        actor: Actor,
        request: Request[Any, Any, Any],
        ref: RefQuery = None,
    ) -> frames.ChatInfo:
        """Remove a user from a group and prevent them from rejoining."""
        frame = frames.BanMember(0, chat, get_ref(ref, request), user)
        return await change_group(container, actor, frame)

    @delete("/v1/chats/{chat:str}/bans/{user:str}", status_code=200, opt={"rule": WRITE})
    async def unban_member(
        chat: PathId,
        user: PathId,
        actor: Actor,
        request: Request[Any, Any, Any],
        ref: RefQuery = None,
    ) -> frames.ChatInfo:
        """Allow a banned user to rejoin."""
        frame = frames.UnbanMember(0, chat, get_ref(ref, request), user)
        return await change_group(container, actor, frame)

    return [mute_member, list_bans, ban_member, unban_member]


def _build_report_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @put(
        "/v1/chats/{chat:str}/messages/{seq:int}/report",
        status_code=204,
        opt={"rule": user_or_key("messages:write"), "protects": True},
    )
    async def report(chat: PathId, seq: PathSeq, data: JSONBody[NewReport], actor: Actor) -> None:
        """Report a message to the admins of its chat and of the server."""
        reason: str = data.reason  # type: ignore[attr-defined]  # a frame field
        await container.moderation.report(actor, ChatId(chat), Seq(seq), reason)

    @get("/v1/chats/{chat:str}/reports", opt={"rule": MODERATE})
    async def list_reports(
        chat: PathId, principal: Caller, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[ReportInfo]:
        """List all reports in a chat. Requires an owner, an admin or the host application."""
        place = f"reports of {chat} for {principal.name}"
        after = container.cursors.open(place, cursor, str)
        reports, following = await container.moderation.list_reports(
            principal.user, ChatId(chat), after, limit
        )
        return Page(
            [_make_info(report) for report in reports], container.cursors.sign(place, following)
        )

    @post(
        "/v1/chats/{chat:str}/reports/{seq:int}/{user:str}/resolve",
        status_code=204,
        opt={"rule": MODERATE},
    )
    async def resolve_report(chat: PathId, seq: PathSeq, user: PathId, principal: Caller) -> None:
        """Mark a user's report as resolved."""
        await container.moderation.resolve(
            principal.user, _find_name(principal), ChatId(chat), Seq(seq), UserId(user)
        )

    @get("/v1/admin/reports", opt={"rule": key("moderate")})
    async def list_open_reports(
        order: Order = "oldest", limit: Limit = 50, cursor: Cursor = None
    ) -> Page[ReportInfo]:
        """List the open reports in all chats, sorted by time."""
        place = f"open reports, {order} first"
        after = container.cursors.open(place, cursor, str)
        reports, following = await container.moderation.list_open_reports(
            after, limit, is_newest_first=order == "newest"
        )
        return Page(
            [_make_info(report) for report in reports], container.cursors.sign(place, following)
        )

    return [report, list_reports, resolve_report, list_open_reports]


def _find_name(principal: Principal) -> str:
    return principal.user or principal.name


def _make_info(report: Any) -> ReportInfo:
    return ReportInfo(
        report.chat,
        report.seq,
        report.reporter,
        report.reason,
        report.created_ms,
        report.state,
        report.resolved_by,
    )
