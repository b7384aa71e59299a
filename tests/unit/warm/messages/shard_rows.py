"""A fake of the rows that list sharded chats, and a clock shared by several processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from chatserver.config import Warm
from chatserver.warm.dynamo.client import Action, ConditionFailed, Item
from chatserver.warm.messages.sharded_chats import LAYOUTS_KEY

US = 1_000_000


class Rows:
    """A fake DynamoDB client with both rows. Each call waits twice at `gate`, if it is set."""

    def __init__(self) -> None:
        self.settings = Warm()
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

    async def transact(self, actions: list[Action]) -> None:
        await self.call("transact_write_items", {"TransactItems": actions})

    def update_item(self, request: dict[str, Any]) -> dict[str, Any] | ConditionFailed:
        if request["Key"] == LAYOUTS_KEY:
            self.layouts = {"chats": {"M": {}}, "floors": {"M": {}}} | self.layouts
            return {}
        self.writes += 1
        values = _list_values(request)
        held = None if self.horizon is None else self.horizon["rev"]
        rev, *expected = values["rev"]
        if expected != ([] if held is None else [held]):
            return ConditionFailed("rev", [None])
        (changed,), (upto,) = values["changed"], values["upto"]
        if self.horizon is not None and "if_not_exists" in request["UpdateExpression"]:
            changed = self.horizon["changed"]
        self.horizon = {"rev": rev, "upto": upto, "changed": changed}
        return {}

    def transact_write_items(self, request: dict[str, Any]) -> dict[str, Any] | ConditionFailed:
        horizon, layouts = (action["Update"] for action in request["TransactItems"])
        response = self.update_item(horizon)
        if isinstance(response, Exception):
            return response
        values = _list_values(layouts)
        item = {**self.layouts, "changed": values.pop("changed")[0]}
        (chat,) = set(layouts["ExpressionAttributeNames"].values()) - {"changed", "chats", "floors"}
        for field, (value,) in values.items():
            item[field] = {"M": {**item[field]["M"], chat: value}}
        self.layouts = item
        return {}


def _list_values(request: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each attribute: first those in the update, then in the condition."""
    values: dict[str, list[Any]] = {}
    for placeholder, value in request["ExpressionAttributeValues"].items():
        name = request["ExpressionAttributeNames"][re.sub(r":(\d+).*", r"#\1", placeholder)]
        values.setdefault(name, []).append(value)
    return values


class Time:
    """The monotonic time of all processes, and the clock of Redis, which may jump."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.jumped_s = 0.0

    def time(self) -> float:
        return self.now_s + self.jumped_s

    def monotonic(self) -> float:
        return self.now_s
