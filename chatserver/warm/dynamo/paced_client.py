"""Rate-limited DynamoDB client: limits capacity units per second and counts them."""

from __future__ import annotations

from typing import Any

from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.rate_limiter import RateLimiter

# Operations that return consumed capacity. Batches use `call_once` and are not counted.
_METERED = {
    "get_item",
    "query",
    "scan",
    "put_item",
    "update_item",
    "delete_item",
    "transact_write_items",
}


class PacedClient(DynamoClient):
    """DynamoDB client with a capacity limit, shared by all repositories that use it."""

    def __init__(self, client: DynamoClient, pace: RateLimiter) -> None:
        super().__init__(client._sdk, client.settings, client._http)
        self.feature, self.meter, self.fence = client.feature, client.meter, client.fence
        self._encryption = client._encryption
        self._pace = pace
        self.units = 0.0

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Call one operation; see `DynamoClient.call`. The units consumed delay the next call."""
        if operation not in _METERED:
            return await super().call(operation, request)
        await self._pace.acquire(0.0)
        response = await super().call(operation, {"ReturnConsumedCapacity": "TOTAL", **request})
        consumed = response.get("ConsumedCapacity", [])
        units = sum(
            usage["CapacityUnits"]
            for usage in (consumed if isinstance(consumed, list) else [consumed])
        )
        self.units += units
        self._pace.adjust(units)
        return response
