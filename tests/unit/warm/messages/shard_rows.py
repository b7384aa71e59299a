"""A fake of the rows that list sharded chats, and a clock shared by several processes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from chatserver.warm.dynamo.client import ConditionFailed, Item
from chatserver.warm.messages.sharded_chats import LAYOUTS_KEY

US = 1_000_000


class Rows:
    """A fake DynamoDB client with both rows. Each call waits twice at `gate`, if it is set."""

    def __init__(self) -> None:
        self.horizon: Item | None = None
        self.layouts: Item = {}
        self.gate: Callable[[bool], Awaitable[None]] | None = None
        self.writes = self.reads = self.layout_reads = 0

    @contextlib.asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        yield

    async def _wait(self, operation: str) -> None:
        if self.gate is not None:
            await self.gate(operation == "transact_write_items")

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        await self._wait(operation)
        response = getattr(self, operation)(request)
        await self._wait(operation)
        if isinstance(response, Exception):
            raise response
        return cast(dict[str, Any], response)

    def get_item(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["ConsistentRead"]
        self.reads += 1
        if request["Key"] == LAYOUTS_KEY:
            self.layout_reads += 1
            return {"Item": self.layouts} if self.layouts else {}
        return {} if self.horizon is None else {"Item": self.horizon}

    def update_item(self, request: dict[str, Any]) -> dict[str, Any] | ConditionFailed:
        values = request["ExpressionAttributeValues"]
        if request["Key"] == LAYOUTS_KEY:
            self.layouts = {"chats": {"M": {}}, "floors": {"M": {}}} | self.layouts
            return {}
        self.writes += 1
        held = None if self.horizon is None else self.horizon["rev"]
        if held != values.get(":rev"):
            return ConditionFailed("rev", [None])
        changed = values[":next"]
        if ":zero" in values:
            changed = self.horizon["changed"] if self.horizon else values[":zero"]
        self.horizon = {"rev": values[":next"], "upto": values[":upto"], "changed": changed}
        return {}

    def transact_write_items(self, request: dict[str, Any]) -> dict[str, Any] | ConditionFailed:
        horizon, layouts = (action["Update"] for action in request["TransactItems"])
        response = self.update_item(horizon)
        if isinstance(response, Exception):
            return response
        names, values = layouts["ExpressionAttributeNames"], layouts["ExpressionAttributeValues"]
        item = {**self.layouts, "changed": values[":next"]}
        for field, value in (("chats", ":layout"), ("floors", ":floor")):
            if value in values:
                item[field] = {"M": {**item[field]["M"], names["#chat"]: values[value]}}
        self.layouts = item
        return {}


class Time:
    """The monotonic time of all processes, and the clock of Redis, which may jump."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.jumped_s = 0.0

    def time(self) -> float:
        return self.now_s + self.jumped_s

    def monotonic(self) -> float:
        return self.now_s
