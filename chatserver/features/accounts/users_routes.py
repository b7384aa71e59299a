"""User profiles, visible to users who share a chat."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.security import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.accounts.container import AccountContainer
from chatserver.protocol import frames

Wanted = Annotated[
    list[frames.Id],
    QueryParameter(
        name="user", min_items=1, max_items=frames.WATCH_MAX, description="can be repeated"
    ),
]


class Person(msgspec.Struct, frozen=True):
    """A user's profile: display name and description."""

    user: str
    name: str | None
    about: str | None


class Persons(msgspec.Struct, frozen=True):
    """The requested users who share a chat with the caller, sorted by id."""

    items: list[Person]


def users_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return ``GET /v1/users``."""

    @get("/v1/users", opt={"rule": user_or_key("users:read")})
    async def list_users(actor: Actor, wanted: Wanted) -> Persons:
        """List the profiles of users.

        Users who share no chat with the caller, or who are blocked, are omitted.
        """
        near = await container.presence_subscriptions.find_visible(actor, map(UserId, wanted))
        found = await container.get(AccountContainer).accounts.list_profiles(near)
        return Persons([Person(each.user, each.name, each.about) for each in found])

    return [list_users]
