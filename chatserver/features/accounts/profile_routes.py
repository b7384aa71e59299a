"""Profile of the calling user."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, patch
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from chatserver.api.authorization import Actor, Caller, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.access.principals import Principal
from chatserver.features.accounts.container import AccountContainer


class Me(msgspec.Struct, frozen=True):
    """The calling user. `name` and `about` are in the public profile.

    `is_admin`: the user operates this installation and may see its statistics. `discoverable`:
    every user may find this user by name.
    """

    user: str
    name: str | None
    about: str | None = None
    is_admin: bool = False
    discoverable: bool = False


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Profile changes; null or an empty string removes a field."""

    name: Annotated[str, Meta(max_length=200)] | UnsetType | None = UNSET
    about: Annotated[str, Meta(max_length=1000)] | UnsetType | None = UNSET
    discoverable: bool | UnsetType = UNSET


def build_me_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the routes below ``/v1/me``."""
    profiles = container.get(AccountContainer).profiles

    def show(record: Any, principal: Principal) -> Me:
        is_discoverable = bool(record.words)
        return Me(record.user, record.name, record.about, principal.is_admin, is_discoverable)

    @get("/v1/me", opt={"rule": user_or_key("users:read")})
    async def get_me(actor: Actor, principal: Caller) -> Me:
        """Return the calling user; a user's first request creates the account."""
        return show(await profiles.get(actor), principal)

    @patch("/v1/me", opt={"rule": user_or_key("users:write")})
    async def change_me(data: JSONBody[Profile], actor: Actor, principal: Caller) -> Me:
        """Change the profile of the calling user."""
        wanted = {"name": data.name, "about": data.about}
        changes = {field: text for field, text in wanted.items() if text is not UNSET}
        is_discoverable = None if data.discoverable is UNSET else data.discoverable
        record = await profiles.put(actor, changes, is_discoverable=is_discoverable)
        return show(record, principal)

    return [get_me, change_me]
