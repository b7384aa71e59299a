"""Moderation routes without an equivalent frame: lists of bans and reports."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import Actor, Caller, key, user_or_key
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId, PathSeq
from chatserver.api.routes.message_lists import Order
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
    async def list_bans(chat: PathId, actor: Actor, page: PageOf) -> Page[BannedUser]:
        """List the users who are banned from a chat, sorted by id. Requires an owner or admin."""
        bans, last = await container.moderation.list_bans(
            actor, ChatId(chat), page.open(str), page.limit
        )
        return page.build([BannedUser(ban.user, ban.by, ban.created_ms) for ban in bans], last)

    @get("/v1/chats/{chat:str}/reports", opt={"rule": MODERATE})
    async def list_reports(chat: PathId, principal: Caller, page: PageOf) -> Page[ReportInfo]:
        """List all reports in a chat. Requires an owner, an admin or the host application."""
        reports, last = await container.moderation.list_reports(
            principal.user, ChatId(chat), page.open(str), page.limit
        )
        return page.build(map(_make_info, reports), last)

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
    async def list_open_reports(page: PageOf, order: Order = "oldest") -> Page[ReportInfo]:
        """List the open reports in all chats, sorted by time."""
        page = page.narrow(order)
        reports, last = await container.moderation.list_open_reports(
            page.open(str), page.limit, is_newest_first=order == "newest"
        )
        return page.build(map(_make_info, reports), last)

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
