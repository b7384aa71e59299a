"""Search over WebSocket: gateways call `worker search`, because they cannot read the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from chatserver.domain.ids import UserId
from chatserver.errors import NotFound
from chatserver.features.search.frames import Search, SearchPage
from chatserver.features.search.model import DISABLED
from chatserver.features.search.settings import Search as SearchSettings
from chatserver.protocol.request_costs import ITEMS_PER_TOKEN, SEARCH
from chatserver.requests.operation import request
from chatserver.requests.registry import make_call

if TYPE_CHECKING:
    from chatserver.container.gateway import GatewayContainer


def _by_results(frame: Search) -> int:
    return SEARCH + frame.limit // ITEMS_PER_TOKEN


@request(Search, reply=SearchPage, runs_in="gateway", cost=_by_results)
async def search(container: GatewayContainer, user: UserId, frame: Search) -> msgspec.Raw:
    """Find messages in the caller's chats."""
    if not container.settings.get(SearchSettings).index:
        raise NotFound(DISABLED)
    call = make_call(user, frame)
    key = container.hot.keys.search_calls()
    return msgspec.Raw(
        await container.warm.forward_frame(call, is_needed=True, key=key, worker="search")
    )
