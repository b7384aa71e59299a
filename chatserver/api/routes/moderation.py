"""Moderation routes without an equivalent frame: lists of bans and reports."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import PathId, PathSeq
from chatserver.api.routes.message_lists import Order
from chatserver.api.security import Actor, Caller, key, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.access.principals import Principal
from chatserver.domain.ids import ChatId, Seq, UserId

READ, MODERATE = user_or_key("chats:read"), user_or_key("moderate")


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

    return [list_bans, list_reports, resolve_report, list_open_reports]


def _find_name(principal: Principal) -> str:
    return principal.user or principal.name


def _make_info(report: Any) -> ReportInfo:
    return ReportInfo(
        chat=report.chat,
        seq=report.seq,
        reporter=report.reporter,
        reason=report.reason,
        at=report.created_ms,
        state=report.state,
        resolved_by=report.resolved_by,
    )
