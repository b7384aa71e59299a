"""HTTP routes for user search, and for profiles of users who share a chat with the caller."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.authorization import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.accounts.container import AccountContainer
from chatserver.features.accounts.search_words import QUERY_CHARS_MAX
from chatserver.features.accounts.service.user_search import RESULTS_MAX
from chatserver.protocol import frames

Wanted = Annotated[
    list[frames.Id],
    QueryParameter(
        name="user",
        min_items=1,
        max_items=frames.WATCH_MAX,
        description="a user id; can be repeated",
    ),
]

SearchText = Annotated[
    str,
    QueryParameter(
        name="q",
        min_length=1,
        max_length=QUERY_CHARS_MAX,
        description="beginnings of words in a name or id",
    ),
]
SearchLimit = Annotated[int, QueryParameter(ge=1, le=RESULTS_MAX)]


class Person(msgspec.Struct, frozen=True):
    """A user's profile: display name and description."""

    user: str
    name: str | None
    about: str | None


class Persons(msgspec.Struct, frozen=True):
    """Users that the caller may see."""

    items: list[Person]


def build_users_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return ``GET /v1/users``."""

    @get("/v1/users", opt={"rule": user_or_key("users:read")})
    async def list_users(actor: Actor, wanted: Wanted) -> Persons:
        """List the profiles of users, sorted by id.

        Users who share no chat with the caller, or who are blocked, are omitted.
        """
        near = await container.presence_subscriptions.find_visible(actor, map(UserId, wanted))
        profiles = await container.get(AccountContainer).profiles.list_existing(near)
        return Persons([Person(profile.user, profile.name, profile.about) for profile in profiles])

    @get("/v1/user-search", opt={"rule": user_or_key("users:read")})
    async def search_users(
        actor: Actor, wanted_text: SearchText, limit: SearchLimit = RESULTS_MAX
    ) -> Persons:
        """Find discoverable users by display name or id.

        Each word of `q` is the beginning of a word of the name or id. Letter case and accents are
        ignored. Users who block the caller, or are blocked, are omitted.
        """
        users = await container.get(AccountContainer).user_search.find(actor, wanted_text, limit)
        return Persons([Person(user.user, user.name, user.about) for user in users])

    return [list_users, search_users]
