"""HTTP route of search."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.paging import Cursor, Page
from chatserver.api.security import Actor, user_or_key
from chatserver.container.storage import StorageContainer
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.model import Order
from chatserver.features.search.query import QUERY_CHARS_MAX, Segment
from chatserver.features.search.service import Position
from chatserver.protocol import frames

RESULTS_MAX = 50
RESULTS_DEFAULT = 20
READ = user_or_key("chats:read")


class SearchResult(msgspec.Struct, frozen=True):
    """A message that matches. `snippet`: a part of its text, as plain text in segments."""

    message: frames.Message
    snippet: list[Segment]


Text = Annotated[
    str,
    QueryParameter(
        name="q",
        min_length=1,
        max_length=QUERY_CHARS_MAX,
        description='words, "phrases", from:, in:, has:file, before:, after: (docs/search.md)',
    ),
]
Results = Annotated[
    int,
    QueryParameter(ge=1, le=RESULTS_MAX, required=False, description="maximum number of results"),
]
OrderBy = Annotated[
    Order, QueryParameter(required=False, description="`newest` first, or by `relevance`")
]


def search_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    """Return the route of search."""

    @get("/v1/search", opt={"rule": READ})
    async def search(
        q: Text,
        actor: Actor,
        limit: Results = RESULTS_DEFAULT,
        order: OrderBy = Order.NEWEST,
        cursor: Cursor = None,
    ) -> Page[SearchResult]:
        """Find messages in the caller's chats.

        A page may have fewer results than `limit`, or none, and still have a `next`.
        """
        place = f"search for {q} by {actor} {order}"
        start = container.cursors.open(place, cursor, Position)
        found, following = await container.get(SearchContainer).search.find(
            actor, q, order, limit, start
        )
        items = [
            # Already JSON of this type: avoid decoding and encoding it again.
            SearchResult(cast("frames.Message", msgspec.Raw(each.json)), each.snippet)
            for each in found
        ]
        return Page(items, None if following is None else container.cursors.seal(place, following))

    return [search]
