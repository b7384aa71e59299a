"""Admin routes for users, for the servers of the host application."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import Meta

from chatserver.api.idempotency import tell_of
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import PathId
from chatserver.api.security import key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ID_PATTERN, UserId
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.routes import Device, Password, ShownName, page_of_devices
from chatserver.hot.users.live_sessions import LiveSessions

READ, WRITE = key("users:read"), key("users:write")


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user without a password; one may be set later."""

    user: Annotated[str, Meta(pattern=ID_PATTERN)]
    name: ShownName | None = None


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user's new password."""

    password: Password


class AnyUser(msgspec.Struct, frozen=True):
    """A user. `created` is in milliseconds since 1970."""

    user: str
    name: str | None
    about: str | None
    created: int
    is_banned: bool


class LiveSession(msgspec.Struct, frozen=True):
    """An open WebSocket session.

    `device` is the name that the client chose; `started` is in milliseconds since 1970.
    """

    session: str
    gateway: str
    device: str
    started: int


def admin_users_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the routes of users below ``/v1/admin``."""
    return [*_users(container), *_bans(container), *_sessions(container)]


def _users(container: StorageContainer) -> list[HTTPRouteHandler]:
    accounts = container.get(AccountContainer).accounts

    def shown(record: Any) -> AnyUser:
        is_banned = record.banned_ms is not None
        return AnyUser(record.user, record.name, record.about, record.created_ms, is_banned)

    @post("/v1/admin/users", opt={"rule": WRITE, "creates": True})
    async def create_user(data: JSONBody[NewUser], request: Request[Any, Any, Any]) -> AnyUser:
        """Create a user."""
        tell_of(request, UserId(data.user))
        await accounts.create(UserId(data.user), data.name)
        return shown(await accounts.get_profile(UserId(data.user)))

    @get("/v1/admin/users/{user:str}", opt={"rule": READ})
    async def get_user(user: PathId) -> AnyUser:
        """Return a user."""
        return shown(await accounts.get_profile(UserId(user)))

    @put("/v1/admin/users/{user:str}/password", status_code=204, opt={"rule": WRITE})
    async def set_password(user: PathId, data: JSONBody[NewPassword]) -> None:
        """Set a user's password and log out all devices."""
        await accounts.set_password(UserId(user), data.password)

    return [create_user, get_user, set_password]


def _bans(container: StorageContainer) -> list[HTTPRouteHandler]:
    revoking = container.revocation

    @put("/v1/admin/users/{user:str}/ban", status_code=204, opt={"rule": WRITE})
    async def ban_user(user: PathId) -> None:
        """Ban a user: close their sessions and reject all their tokens."""
        await revoking.ban(UserId(user))

    @delete("/v1/admin/users/{user:str}/ban", opt={"rule": WRITE})
    async def unban_user(user: PathId) -> None:
        """Lift a user's ban."""
        await revoking.unban(UserId(user))

    return [ban_user, unban_user]


def _sessions(container: StorageContainer) -> list[HTTPRouteHandler]:
    logins, revoking = container.get(AccountContainer).logins, container.revocation
    live = LiveSessions(container.hot)

    @get("/v1/admin/users/{user:str}/sessions", opt={"rule": READ})
    async def list_sessions(
        user: PathId, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[LiveSession]:
        """List a user's open WebSocket sessions, oldest first."""
        found, following = container.cursors.cut(
            f"sessions of {user}",
            await live.list_of(UserId(user)),
            lambda each: (each.started_ms, each.session),
            cursor,
            limit,
        )
        sockets = [
            LiveSession(each.session, each.gateway, each.device, each.started_ms) for each in found
        ]
        return Page(sockets, following)

    @get("/v1/admin/users/{user:str}/devices", opt={"rule": READ})
    async def list_devices_of_user(
        user: PathId, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Device]:
        """List a user's password logins, most recently used first."""
        return await page_of_devices(container, UserId(user), None, limit, cursor)

    @delete("/v1/admin/users/{user:str}/sessions", opt={"rule": WRITE})
    async def end_sessions(user: PathId) -> None:
        """Log a user out everywhere: close all sessions and reject tokens issued before."""
        await revoking.end_all(UserId(user), "ended by the application")

    @delete("/v1/admin/users/{user:str}/devices/{device:str}", opt={"rule": WRITE})
    async def end_device_of_user(user: PathId, device: PathId) -> None:
        """Log out one device of a user."""
        await logins.end_one(UserId(user), device, "ended by the application")

    return [list_sessions, list_devices_of_user, end_sessions, end_device_of_user]
