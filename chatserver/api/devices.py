"""The devices of the user who asks: where he is logged in with his password."""

from __future__ import annotations

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.accounts import Password
from chatserver.api.bodies import PathId
from chatserver.api.paging import Cursor, Limit, Page
from chatserver.api.parts import ApiParts
from chatserver.api.security import USER, Asker
from chatserver.domain.ids import UserId


class Device(msgspec.Struct, frozen=True):
    """A log in. Times are in milliseconds since 1970; `seen` is as of the last refresh."""

    device: str
    name: str | None
    created: int
    seen: int
    is_current: bool


class PasswordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password as it is, and as it shall be."""

    current: Password
    password: Password


def devices_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return the routes of devices and of the password; none, without local accounts."""
    if not parts.settings.auth.local_accounts:
        return []
    accounts, logins = parts.people.accounts, parts.people.logins

    @get("/v1/me/devices", opt={"rule": USER})
    async def list_devices(
        principal: Asker, limit: Limit = 50, cursor: Cursor = None
    ) -> Page[Device]:
        """List where the user is logged in, the one used last first."""
        assert principal.user is not None
        return await page_of_devices(parts, principal.user, principal.device, limit, cursor)

    @delete("/v1/me/devices/{device:str}", opt={"rule": USER})
    async def end_device(device: PathId, principal: Asker) -> None:
        """Log a device of the user out: its sessions are closed, its tokens hold no more."""
        assert principal.user is not None
        await logins.end_one(principal.user, device)

    @put("/v1/me/password", status_code=204, opt={"rule": USER})
    async def change_password(data: JSONBody[PasswordChange], principal: Asker) -> None:
        """Change the password, and log all other devices out."""
        assert principal.user is not None
        await accounts.change_password(
            principal.user, data.current, data.password, principal.device
        )

    return [list_devices, end_device, change_password]


async def page_of_devices(
    parts: ApiParts, user: UserId, current: str | None, limit: int, cursor: str | None
) -> Page[Device]:
    """Return a page of where a user is logged in; `current` is the device that asks."""
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
