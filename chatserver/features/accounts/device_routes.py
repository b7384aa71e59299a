"""Routes for devices, that is logins with a password, and for changing the password."""

from __future__ import annotations

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.container import ApiContainer
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.request_bodies import PathId
from chatserver.api.security import USER, Asker
from chatserver.domain.ids import UserId
from chatserver.features.accounts.routes import Password


class Device(msgspec.Struct, frozen=True):
    """A login. Times are in milliseconds since 1970; `seen` is the time of the last refresh."""

    device: str
    name: str | None
    created: int
    seen: int
    is_current: bool


class PasswordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The current and the new password."""

    current: Password
    password: Password


def devices_routes(parts: ApiContainer) -> list[HTTPRouteHandler]:
    """Return the routes of devices and passwords; none if local accounts are disabled."""
    if not parts.settings.auth.local_accounts:
        return []
    accounts, logins = parts.people.accounts, parts.people.logins

    @get("/v1/me/devices", opt={"rule": USER})
    async def list_devices(
        principal: Asker, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Device]:
        """List the user's logins, most recently used first."""
        assert principal.user is not None
        return await page_of_devices(parts, principal.user, principal.device, limit, cursor)

    @delete("/v1/me/devices/{device:str}", opt={"rule": USER})
    async def end_device(device: PathId, principal: Asker) -> None:
        """Log out a device of the user: close its sessions and revoke its tokens."""
        assert principal.user is not None
        await logins.end_one(principal.user, device)

    @put("/v1/me/password", status_code=204, opt={"rule": USER})
    async def change_password(data: JSONBody[PasswordChange], principal: Asker) -> None:
        """Change the password and log out all other devices."""
        assert principal.user is not None
        await accounts.change_password(
            principal.user, data.current, data.password, principal.device
        )

    return [list_devices, end_device, change_password]


async def page_of_devices(
    parts: ApiContainer, user: UserId, current: str | None, limit: int, cursor: str | None
) -> Page[Device]:
    """Return a page of a user's logins; `current` is the device of the caller."""
    rows, following = parts.cursors.cut(
        f"devices of {user}",
        await parts.people.logins.list_live(user),
        lambda row: (-row.seen_ms, row.login),
        cursor,
        limit,
    )
    return Page(
        [
            Device(row.login, row.name, row.created_ms, row.seen_ms, row.login == current)
            for row in rows
        ],
        following,
    )
