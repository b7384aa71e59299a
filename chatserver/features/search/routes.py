"""HTTP route for search."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from chatserver.api.authorization import Actor, user_or_key
from chatserver.api.disconnects import run_while_connected
from chatserver.api.paging import Cursor, Page
from chatserver.container.storage import StorageContainer
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.frames import (
    QUERY_CHARS_MAX,
    RESULTS_DEFAULT,
    RESULTS_MAX,
    SearchResult,
)
from chatserver.features.search.model import Order
from chatserver.protocol.frames import Message

READ = user_or_key("chats:read")

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
    Order,
    QueryParameter(
        required=False, description="order of results: `newest` first, or by `relevance`"
    ),
]


def build_search_routes(container: StorageContainer) -> list[HTTPRouteHandler]:
    @get("/v1/search", opt={"rule": READ})
    async def search(
        q: Text,
        actor: Actor,
        request: Request[Any, Any, Any],
        limit: Results = RESULTS_DEFAULT,
        order: OrderBy = Order.NEWEST,
        cursor: Cursor = None,
    ) -> Page[SearchResult]:
        """Find messages in the caller's chats.

        A page may have fewer results than `limit`, or none, and still have a `next`.
        """
        work = container.get(SearchContainer).get_page(actor, q, order, limit, cursor)
        page, next_cursor = await run_while_connected(request, work)
        items = [
            # `result.json` is already JSON; `Raw` avoids decoding and encoding it again.
            SearchResult(cast("Message", msgspec.Raw(result.json)), result.snippet)
            for result in page
        ]
        return Page(items, next_cursor)

    return [search]
