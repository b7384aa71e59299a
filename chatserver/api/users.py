"""What users say of themselves, to those who share a chat with them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.parts import ApiParts
from chatserver.api.security import Actor, user_or_key
from chatserver.domain.ids import UserId
from chatserver.protocol import frames

Wanted = Annotated[
    list[frames.Id],
    QueryParameter(
        name="user", min_items=1, max_items=frames.WATCH_MAX, description="may be given repeatedly"
    ),
]


class Person(msgspec.Struct, frozen=True):
    """A user. `name` is what he chose to be called, `about` what he says of himself."""

    user: str
    name: str | None
    about: str | None


class Persons(msgspec.Struct, frozen=True):
    """Those of the users asked for who share a chat with the one who asks, by id."""

    items: list[Person]


def users_routes(parts: ApiParts) -> list[HTTPRouteHandler]:
    """Return ``GET /v1/users``."""

    @get("/v1/users", opt={"rule": user_or_key("users:read")})
    async def list_users(actor: Actor, wanted: Wanted) -> Persons:
        """Tell what users are called; those who share no chat, or are blocked, are passed over."""
        near = await parts.watching.find_near(actor, map(UserId, wanted))
        found = await parts.people.accounts.list_profiles(near)
        return Persons([Person(each.user, each.name, each.about) for each in found])

    return [list_users]
