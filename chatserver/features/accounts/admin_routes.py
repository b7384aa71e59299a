"""Admin routes for accounts and their devices, for the host application's servers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import Meta

from chatserver.api.authorization import key
from chatserver.api.idempotency import record_subject
from chatserver.api.paging import Page, PageOf
from chatserver.api.request_bodies import PathId
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ID_PATTERN, UserId
from chatserver.errors import Forbidden
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.device_routes import Device, build_device_page
from chatserver.features.accounts.login_routes import DisplayName, Password

READ, WRITE = key("users:read"), key("users:write")
# A key that sets a password can log in as the user, so this is more than writing profiles.
IMPERSONATE = key("users:impersonate")


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user without a password. A password can be set later."""

    user: Annotated[str, Meta(pattern=ID_PATTERN)]
    name: DisplayName | None = None


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


def build_admin_accounts_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the account routes below ``/v1/admin/users``."""
    return [*_build_user_routes(container), *_build_device_routes(container)]


def _build_user_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    account_container = container.get(AccountContainer)
    profiles, password_logins = account_container.profiles, account_container.password_logins

    def show(record: Any) -> AnyUser:
        is_banned = record.banned_ms is not None
        return AnyUser(record.user, record.name, record.about, record.created_ms, is_banned)

    @post("/v1/admin/users", opt={"rule": WRITE, "creates": True})
    async def create_user(data: JSONBody[NewUser], request: Request[Any, Any, Any]) -> AnyUser:
        """Create a user."""
        record_subject(request, UserId(data.user))
        await profiles.create(UserId(data.user), data.name)
        return show(await profiles.get(UserId(data.user)))

    @get("/v1/admin/users/{user:str}", opt={"rule": READ})
    async def get_user(user: PathId) -> AnyUser:
        """Return a user."""
        return show(await profiles.get(UserId(user)))

    @put(
        "/v1/admin/users/{user:str}/password",
        status_code=204,
        opt={"rule": IMPERSONATE, "errors": (409,)},
    )
    async def set_password(user: PathId, data: JSONBody[NewPassword]) -> None:
        """Set a user's password and log out all devices. Refused for admins of the server."""
        if user in container.settings.auth.admins:
            raise Forbidden("admins' passwords can only be set with `chatserver password`")
        await password_logins.set_password(UserId(user), data.password)

    return [create_user, get_user, set_password]


def _build_device_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    logins = container.get(AccountContainer).logins

    @get("/v1/admin/users/{user:str}/devices", opt={"rule": READ})
    async def list_devices_of_user(user: PathId, page: PageOf) -> Page[Device]:
        """List a user's password logins, most recently used first."""
        return await build_device_page(container, UserId(user), None, page)

    @delete("/v1/admin/users/{user:str}/devices/{device:str}", opt={"rule": WRITE})
    async def end_device_of_user(user: PathId, device: PathId) -> None:
        """Log out one device of a user."""
        await logins.end_one(UserId(user), device, "ended by the host application")

    return [list_devices_of_user, end_device_of_user]
