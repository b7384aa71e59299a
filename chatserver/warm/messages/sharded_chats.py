"""Write sharding: the list of sharded chats, shared by all processes that access messages.

Owns one item of `directory`:

    PK "shards"  SK "shards"  chats M {chat: "<ts>:<shards>,…"}  rev N  for_ms N

Few chats are ever sharded, so each process reads the whole item and caches it for `for_ms`, counted
from the start of the read. A new stretch (a range of ts with one number of shards) starts after
every ts that a process can see while it uses a cached copy without that stretch. All processes
therefore compute the same partition for an entry, without coordination.

`rev` extends this guarantee to paused writers. Each reader ensures that `rev` has changed within
the last two `for_ms`. A writer reads `rev`, computes the start of a stretch, and writes the stretch
only if `rev` is unchanged. A late write therefore fails, unless no process has read the item for
that long. In that case, no process uses an older copy either.

The age of the cached copy is measured with the monotonic clock. The start of a stretch is in Redis
time, because Redis assigns the ts of entries. `SLACK` allows for a Redis clock that is set forward.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

from chatserver.config import Warm
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.write_sharding import (
    SHARDS_MAX,
    STRETCHES_KEPT,
    STRETCHES_MAX,
    Layout,
    Layouts,
    ShardingPeriod,
    parse_layout,
)
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.row_fields import get_number
from chatserver.warm.schema.directory_attributes import ShardField as Field
from chatserver.warm.schema.tables import DIRECTORY

SHARD_REFRESH_S = 5.0  # how often a process reads the list of sharded chats

ROW: Final = "shards"
TEXT_MAX: Final = 200_000  # characters of all layouts and chat ids; the DynamoDB limit is 400 KB
# In multiples of `for_ms`:
STALE: Final = 2  # a reader updates `rev` if it has not changed for this long
SLACK: Final = 3  # allowance for clock changes
LEAD: Final = 1 + STALE + SLACK  # how far ahead a stretch starts
_LEVELS: Final = [2**n for n in range(SHARDS_MAX.bit_length())]

Outcome = Literal["moved", "waiting", "full", "raced"]


_KEY: Final[Item] = {Field.PK: {"S": ROW}, Field.SK: {"S": ROW}}


class _Row(NamedTuple):
    rev: int
    for_ms: int
    layouts: Layouts


class ShardList:
    """Cached copy of the sharding item. Use one instance per process."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._table = DIRECTORY.name_in(settings)
        self._layouts = Layouts()
        self._until = float("-inf")
        self._rev: int | None = None
        self._read_at = self._changed_at = float("-inf")  # `rev` changed at `_changed_at` or later
        self._reading = asyncio.Lock()

    async def get(self) -> Layouts:
        """Return the current layouts.

        An operation may use them for any length of time if it only accesses entries whose ts was
        known before this call.

        Guarantees:
            Cost: none, or one GetItem per `SHARD_REFRESH_S`, plus an UpdateItem if `rev` has not
            changed recently.

        Raises:
            Unavailable: the item cannot be read.
        """
        if self._clock.monotonic() < self._until:
            return self._layouts
        async with self._reading:
            if self._clock.monotonic() >= self._until:
                await self._read()
        return self._layouts

    async def _read(self) -> None:
        began = self._clock.monotonic()
        row = await self._get_row()
        if self._rev is not None and row.rev != self._rev:
            self._changed_at = self._read_at
        if began - self._changed_at > STALE * self._for_s(row):
            await self._touch(row)
            self._changed_at = began
            row = await self._get_row()
        self._rev, self._read_at = row.rev, began
        self._layouts, self._until = row.layouts, began + self._for_s(row)
        spread = collections.Counter(each.shards for each in row.layouts.of_chats.values())
        for shards in _LEVELS:
            metrics.CHAT_SHARDS.labels(str(shards)).set(spread[shards])

    async def _get_row(self) -> _Row:
        request = {"TableName": self._table, "Key": _KEY, "ConsistentRead": True}
        item: Item = (await self._client.call("get_item", request)).get("Item", {})
        if not item:
            return _Row(0, self._own_ms, Layouts())
        return _Row(
            get_number(item, Field.REV),
            get_number(item, Field.FOR_MS),
            Layouts(
                {chat: parse_layout(text["S"]) for chat, text in item[Field.CHATS]["M"].items()}
            ),
        )

    def _for_s(self, row: _Row) -> float:
        """Return for how many seconds to use a copy; never longer than the item's `for_ms`."""
        return min(self._own_ms, row.for_ms) / 1000

    async def _touch(self, row: _Row) -> None:
        """Change `rev`. A concurrent change by another process is equivalent."""
        with contextlib.suppress(ConditionFailed):
            await self._update(row.rev)

    async def _update(self, rev: int, chat: str = "", layout: Layout | None = None) -> None:
        """Update the item. Raises ConditionFailed if its `rev` has changed."""
        names = {"#rev": Field.REV, "#for": Field.FOR_MS, "#chats": Field.CHATS}
        values: dict[str, Any] = {
            ":next": {"N": str(rev + 1)},
        }
        if rev:
            values[":rev"] = {"N": str(rev)}
        if layout is None:
            change = "#for = if_not_exists(#for, :for), #chats = if_not_exists(#chats, :none)"
            values |= {":for": {"N": str(self._own_ms)}, ":none": {"M": {}}}
        else:
            change = "#chats.#chat = :layout"
            del names["#for"]
            names["#chat"] = chat
            values[":layout"] = {"S": layout.encode()}
        request = {
            "TableName": self._table,
            "Key": _KEY,
            "UpdateExpression": f"SET #rev = :next, {change}",
            "ConditionExpression": "#rev = :rev" if rev else "attribute_not_exists(#rev)",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        await self._client.call("update_item", request)

    @property
    def _own_ms(self) -> int:
        return max(1, int(SHARD_REFRESH_S * 1000))

    async def spread(
        self, chat: str, shards: int, find_newest_ts: Callable[[], Awaitable[int | None]]
    ) -> Outcome:
        """Shard the future entries of a chat over `shards` partitions.

        `find_newest_ts` returns an upper bound of the ts of all current entries of the chat, or
        None if it is unknown.

        Guarantees:
            No other process's stretch is overwritten, and no stretch that has started is changed.
            The stretch contains no entry that any process has seen or can see with an older copy.
            Bounded: at `STRETCHES_MAX` stretches per chat or `TEXT_MAX` in total, the result is
            "full" and the chat keeps its current sharding.
            Cancellation: safe; the stretch may be written.

        Raises:
            Unavailable: a store does not respond; the stretch may be written.
        """
        async with self._client.deadline():
            return await self._spread(chat, shards, find_newest_ts)

    async def _spread(
        self, chat: str, shards: int, find_newest_ts: Callable[[], Awaitable[int | None]]
    ) -> Outcome:
        # Read `rev` before the newest ts: the start of the stretch is valid only for this `rev`.
        row = await self._get_row()
        layout = row.layouts.of(chat)
        newest = await find_newest_ts() if row.rev else None
        if newest is None or layout.from_ts > newest or shards == layout.shards:
            return "waiting"
        kept = 0 if shards > layout.shards else STRETCHES_KEPT
        from_ts = newest + LEAD * row.for_ms * 1000
        wanted = Layout((*layout.stretches, ShardingPeriod(from_ts, shards)))
        sizes = sum(len(c) + len(each.encode()) for c, each in row.layouts.of_chats.items())
        size = sizes + len(chat) + len(wanted.encode()) - len(layout.encode())
        if len(wanted.stretches) > STRETCHES_MAX - kept or size > TEXT_MAX:
            return "full"
        failpoint("shards.before_spread")
        try:
            await self._update(row.rev, chat, wanted)
        except ConditionFailed:
            return "raced"
        failpoint("shards.after_spread")
        return "moved"
