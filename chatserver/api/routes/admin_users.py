"""Admin routes to ban users and to list and close their sessions."""

from __future__ import annotations

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler

from chatserver.api.authorization import key
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.hot.users.live_sessions import LiveSessions

READ, WRITE = key("users:read"), key("users:write")


class LiveSession(msgspec.Struct, frozen=True):
    """An open WebSocket session.

    `device` is the name that the client chose; `started` is in Unix milliseconds.
    """

    session: str
    gateway: str
    device: str
    started: int


def build_admin_users_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    return [*_build_ban_routes(container), *_build_session_routes(container)]


def _build_ban_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    revoker = container.revocation

    @put("/v1/admin/users/{user:str}/ban", status_code=204, opt={"rule": WRITE})
    async def ban_user(user: PathId) -> None:
        """Ban a user: close their sessions and reject all their tokens."""
        await revoker.ban(UserId(user))

    @delete("/v1/admin/users/{user:str}/ban", opt={"rule": WRITE})
    async def unban_user(user: PathId) -> None:
        """Lift a user's ban."""
        await revoker.unban(UserId(user))

    return [ban_user, unban_user]


def _build_session_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    revoker = container.revocation
    live_sessions = LiveSessions(container.hot)

    @get("/v1/admin/users/{user:str}/sessions", opt={"rule": READ})
    async def list_sessions(user: PathId, page: PageOf) -> Page[LiveSession]:
        """List a user's open WebSocket sessions, oldest first."""
        return page.slice(
            await live_sessions.list_sessions(UserId(user)),
            lambda each: (each.started_ms, each.session),
            lambda each: LiveSession(each.session, each.gateway, each.device, each.started_ms),
        )

    @delete("/v1/admin/users/{user:str}/sessions", opt={"rule": WRITE})
    async def end_sessions(user: PathId) -> None:
        """Log a user out everywhere: close all sessions and reject all tokens issued until now."""
        await revoker.end_all(UserId(user), "ended by the host application")

    return [list_sessions, end_sessions]
