"""Which chats are spread over shards, as every process knows it that touches messages.

Owns one row of `directory`:

    PK "shards"  SK "shards"  chats M {chat: "<ts>:<shards>,…"}  rev N  for_ms N

Few chats are ever spread, so a process reads the whole row and acts by it for `for_ms`, counted
from before it was read. A stretch begins later than anything that a process can know of while it
still acts by a row without it: then all who meet an entry put it, and look for it, in one place,
without telling each other anything.

That holds however long a writer sleeps, by `rev`. Who reads the row sees to it that `rev` has
changed within the last two `for_ms`; a stretch is written on condition of the `rev` that was read
before its begin was reckoned. So what is written late fails, unless no process has read the row for
that time, and then none acts by an older one.

Time here is the monotonic clock for how old the row is, and the clock of Redis, which gives entries
their ts, for where a stretch begins. `SLACK` is left for a Redis whose clock is put forward.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

from chatserver.config import Warm
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.shards import (
    SHARDS_MAX,
    STRETCHES_KEPT,
    STRETCHES_MAX,
    Layout,
    Layouts,
    Stretch,
    parse_layout,
)
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.fields import ShardField as Field
from chatserver.warm.rows import get_number
from chatserver.warm.tables import DIRECTORY

ROW: Final = "shards"
TEXT_MAX: Final = 200_000  # characters of all layouts, with their chats; DynamoDB: 400 KB
# In times of `for_ms`:
STALE: Final = 2  # who sees no change of `rev` for so long makes one
SLACK: Final = 3  # for clocks
LEAD: Final = 1 + STALE + SLACK  # so far ahead begins a stretch
_LEVELS: Final = [2**n for n in range(SHARDS_MAX.bit_length())]

Outcome = Literal["moved", "waiting", "full", "raced"]


_KEY: Final[Item] = {Field.PK: {"S": ROW}, Field.SK: {"S": ROW}}


class _Row(NamedTuple):
    rev: int
    for_ms: int
    layouts: Layouts


class ShardList:
    """The row, as a process knows it; one for a process."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock | None = None) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock or SystemClock()
        self._table = DIRECTORY.name_in(settings)
        self._layouts = Layouts()
        self._until = float("-inf")
        self._rev: int | None = None
        self._read_at = self._changed_at = float("-inf")  # `rev` changed then, or later
        self._reading = asyncio.Lock()

    async def get(self) -> Layouts:
        """Return the layouts to act by now.

        What is done by them may take as long as it likes, if all that is done was known before.

        Guarantees:
            Cost: nothing, or one GetItem in `shard_refresh_s`; an UpdateItem besides if nobody
            made one lately.

        Raises:
            Unavailable: they cannot be read.
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
        """Return how long to act by a row: where stretches begin is reckoned from its own time."""
        return min(self._own_ms, row.for_ms) / 1000

    async def _touch(self, row: _Row) -> None:
        """Change `rev`; that somebody else did is as good."""
        with contextlib.suppress(ConditionFailed):
            await self._update(row.rev)

    async def _update(self, rev: int, chat: str = "", layout: Layout | None = None) -> None:
        """Raises ConditionFailed: the row is not at `rev` any more."""
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
        return max(1, int(self._settings.shard_refresh_s * 1000))

    async def spread(
        self, chat: str, shards: int, find_newest_ts: Callable[[], Awaitable[int | None]]
    ) -> Outcome:
        """Have what a chat says from soon on spread over so many shards.

        `find_newest_ts` tells, now, which ts no entry of the chat is beyond; None: it cannot.

        Guarantees:
            Nobody's stretch is overwritten, and none that began is changed.
            Nothing that any process knows of, or comes to know by an older row, is in the stretch.
            Bound: `STRETCHES_MAX` for a chat and `TEXT_MAX` for all, then it is "full"; who is
            spread stays so.
            Cancellation: safe; it is written or it is not.

        Raises:
            Unavailable: a store does not answer; it may be written.
        """
        async with self._client.deadline():
            return await self._spread(chat, shards, find_newest_ts)

    async def _spread(
        self, chat: str, shards: int, find_newest_ts: Callable[[], Awaitable[int | None]]
    ) -> Outcome:
        # In this order: what `find_newest_ts` says is reckoned from the time of this `rev`.
        row = await self._get_row()
        layout = row.layouts.of(chat)
        newest = await find_newest_ts() if row.rev else None
        if newest is None or layout.from_ts > newest or shards == layout.shards:
            return "waiting"
        kept = 0 if shards > layout.shards else STRETCHES_KEPT
        from_ts = newest + LEAD * row.for_ms * 1000
        wanted = Layout((*layout.stretches, Stretch(from_ts, shards)))
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
