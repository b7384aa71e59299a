"""Search over WebSocket: gateways call `worker search`, because they cannot read the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chatserver.domain.ids import UserId
from chatserver.errors import NotFound
from chatserver.features.search.model import DISABLED
from chatserver.features.search.settings import Search
from chatserver.protocol import frames
from chatserver.protocol.request_costs import ITEMS_PER_TOKEN, SEARCH
from chatserver.requests.operation import request

if TYPE_CHECKING:
    from chatserver.container.gateway import GatewayContainer


def _by_results(frame: frames.Search) -> int:
    return SEARCH + frame.limit // ITEMS_PER_TOKEN


@request(frames.Search, reply=frames.SearchPage, runs_in="gateway", cost=_by_results)
async def search(
    container: GatewayContainer, user: UserId, frame: frames.Search
) -> frames.SearchPage:
    """Find messages in the caller's chats."""
    if not container.settings.get(Search).index:
        raise NotFound(DISABLED)
    page = await container.warm.find_messages(user, frame)
    results = [msgspec.Raw(result) for result in page.results]
    return frames.SearchPage(frame.id, results, page.next is not None, page.next)
