"""The user who asks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, patch
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from chatserver.api.parts import ApiParts
from chatserver.api.security import Actor, Asker, user_or_key
from chatserver.domain.principals import Principal


class Me(msgspec.Struct, frozen=True):
    """Who one is. `name`, if one has chosen one, and `about` are what those see one chats with.

    `is_admin`: one operates this installation, and may see its figures.
    """

    user: str
    name: str | None
    about: str | None = None
    is_admin: bool = False


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shall be different; null or an empty text takes something away."""

    name: Annotated[str, Meta(max_length=200)] | UnsetType | None = UNSET
    about: Annotated[str, Meta(max_length=1000)] | UnsetType | None = UNSET


def me_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return the routes below ``/v1/me``."""
    accounts = parts.people.accounts

    def shown(record: Any, principal: Principal) -> Me:
        return Me(record.user, record.name, record.about, principal.is_admin)

    @get("/v1/me", opt={"rule": user_or_key("users:read")})
    async def get_me(actor: Actor, principal: Asker) -> Me:
        """Tell who one is; the first sight of a user makes the account."""
        return shown(await accounts.get_profile(actor), principal)

    @patch("/v1/me", opt={"rule": user_or_key("users:write")})
    async def change_me(data: JSONBody[Profile], actor: Actor, principal: Asker) -> Me:
        """Change what others see of one."""
        wanted = {"name": data.name, "about": data.about}
        changes = {field: text for field, text in wanted.items() if text is not UNSET}
        return shown(await accounts.put_profile(actor, changes), principal)

    return [get_me, change_me]
