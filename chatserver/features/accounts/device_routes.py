"""Account HTTP routes: devices and passwords."""

from __future__ import annotations

import msgspec
from litestar import delete, get, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from chatserver.api.authorization import USER, Caller
from chatserver.api.paging import Page, PageOf, PageQuery
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.login_routes import Password


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


def build_devices_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the device and password routes; none if local accounts are disabled."""
    if not container.settings.auth.local_accounts:
        return []
    password_logins, logins = (
        container.get(AccountContainer).password_logins,
        container.get(AccountContainer).logins,
    )

    @get("/v1/me/devices", opt={"rule": USER})
    async def list_devices(principal: Caller, page: PageOf) -> Page[Device]:
        """List the user's logins, most recently used first."""
        assert principal.user is not None
        return await build_device_page(container, principal.user, principal.device, page)

    @delete("/v1/me/devices/{device:str}", opt={"rule": USER})
    async def end_device(device: PathId, principal: Caller) -> None:
        """Log out a device of the user: close its sessions and revoke its tokens."""
        assert principal.user is not None
        await logins.end_one(principal.user, device)

    @put(
        "/v1/me/password",
        status_code=204,
        opt={"rule": USER, "protects": True, "errors": (404, 409)},
    )
    async def change_password(data: JSONBody[PasswordChange], principal: Caller) -> None:
        """Change the password and log out all other devices."""
        assert principal.user is not None
        await password_logins.change_password(
            principal.user, data.current, data.password, principal.device
        )

    return [list_devices, end_device, change_password]


async def build_device_page(
    container: StorageContainer, user: UserId, current: str | None, page: PageQuery
) -> Page[Device]:
    """Return a page of a user's logins; `current` is the caller's device."""
    return page.slice(
        await container.get(AccountContainer).logins.list_live(user),
        lambda row: (-row.seen_ms, row.login),
        lambda row: Device(row.login, row.name, row.created_ms, row.seen_ms, row.login == current),
    )
