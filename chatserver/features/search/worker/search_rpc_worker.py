"""RPC worker that runs searches for gateways; see `chatserver.hot.bus.rpc`.

Searches have their own stream, read only by processes that have the index. Slow searches therefore
do not delay the RPC calls that load chats.
"""

from __future__ import annotations

import msgspec

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.features.search.container import SearchContainer
from chatserver.features.search.frames import Search, SearchPage
from chatserver.features.search.model import Order
from chatserver.hot.bus import rpc
from chatserver.hot.bus.rpc_queue import RpcQueue
from chatserver.protocol import codec
from chatserver.requests.registry import read_call
from chatserver.service.fair_semaphore import FairSemaphore
from workers.rpc import RpcWorker

CALLS_IN_FLIGHT_MAX = 256  # maximum accepted calls; `SEARCHES_MAX` run, others wait


class SearchRpcWorker(RpcWorker):
    """Runs searches for gateways."""

    def __init__(self, container: StorageContainer, name: str) -> None:
        queue = RpcQueue(
            hot=container.hot,
            consumer=name,
            clock=container.clock,
            key=container.hot.keys.search_calls(),
        )
        super().__init__(container, name, queue, CALLS_IN_FLIGHT_MAX)

    def _choose_slots(self, call: rpc.Call) -> FairSemaphore:
        return self._slots  # searches have fair slots of their own (`SearchContainer`)

    async def _perform(self, operation: rpc.AnyOperation) -> bytes:
        if not isinstance(operation, rpc.ForwardFrame):
            return await super()._perform(operation)
        query = read_call(operation)[1]
        assert isinstance(query, Search), "this queue has only searches"
        page, next_cursor = await self._container.get(SearchContainer).get_page(
            UserId(operation.user), query.q, Order(query.order), query.limit, query.after
        )
        results = [msgspec.Raw(result.encode()) for result in page]
        return codec.encode(SearchPage(query.id, results, next_cursor is not None, next_cursor))
