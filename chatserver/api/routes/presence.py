"""Current presence of users; changes are published over the WebSocket."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.authorization import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.domain.presence import PresenceState
from chatserver.protocol import frames

Users = Annotated[
    list[frames.Id],
    QueryParameter(
        name="user",
        min_items=1,
        max_items=frames.WATCH_MAX,
        description="a user id; can be repeated",
    ),
]


class Presence(msgspec.Struct, frozen=True):
    """Presence of a user. `last_seen` (Unix µs) is set for offline users, if known."""

    user: str
    state: Literal["online", "away", "offline"]
    last_seen: int | None


class Presences(msgspec.Struct, frozen=True):
    """Presence of the requested users who share a chat with the caller."""

    items: list[Presence]


def build_presence_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/presence", opt={"rule": user_or_key("users:read")})
    async def get_presence(actor: Actor, users: Users) -> Presences:
        """Return the current presence of the users who share a chat with the caller."""
        sights = await container.presence_subscriptions.list_presence(actor, map(UserId, users))
        return Presences(
            [
                Presence(
                    user,
                    sight.state.value,
                    sight.last_ms * 1000
                    if sight.state is PresenceState.OFFLINE and sight.last_ms
                    else None,
                )
                for user, sight in sorted(sights.items())
            ]
        )

    return [get_presence]
