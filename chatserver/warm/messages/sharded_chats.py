"""Write sharding: the list of sharded chats, shared by all processes that access messages.

Owns two items of `directory`:

    PK "shards"  SK "shards"   chats M {chat: "<ts>:<shards>,…"}
                               floors M {chat: "<until ts>:<shards>"}  changed N
    PK "shards"  SK "horizon"  upto N  rev N  changed N

The layout of a chat is a list of periods (`ShardingPeriod`), each with a first ts and a number of
shards. All processes must compute the same partition for an entry, without coordination. The
*horizon* ensures this: a period that starts at or before ts `upto` is never added.

- A copy of the layouts is therefore final up to the horizon that was read before the copy.
- A process writes an entry only if its copy is final for the entry's ts. If the ts is beyond the
  horizon, the process first moves the horizon to `EXTENSION_US` after the ts.
- Each write to the horizon increments `rev`, and is conditional on the `rev` that was read. The
  transaction that adds a period contains such a write. So it fails if another process has moved the
  horizon since then.

So the partition of an entry does not depend on any process's clock. For reads beyond the horizon, a
copy is used for at most `SHARD_REFRESH_S`. A new period starts at least `READ_LEAD_US` after the
chat's newest entry, so that readers have read the new layout before the period gets entries. If
Redis's clock jumps forward at that moment, a reader may miss the newest entries for
`SHARD_REFRESH_S`.

`changed` is the `rev` of the last change to a layout. The layouts, which may be large, are read
again only if `changed` differs.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple

from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.write_sharding import (
    PERIODS_MAX,
    PERIODS_RESERVED,
    SHARDS_MAX,
    Layout,
    Layouts,
    ShardFloor,
    ShardingPeriod,
    parse_floor,
    parse_layout,
)
from chatserver.errors import Unavailable
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Change, Changes, Condition, Default, Element
from chatserver.warm.dynamo.item_attributes import get_number
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.directory_attributes import ShardField as Field
from chatserver.warm.schema.tables import DIRECTORY

SHARD_REFRESH_S = 0.2  # maximum age of cached layouts, for reads beyond the horizon

EXTENSION_US: Final = 500_000  # the horizon is moved this far beyond an entry's ts
# A new sharding period starts at least this long after the chat's newest entry. Must be longer than
# `SHARD_REFRESH_S`.
READ_LEAD_US: Final = 300_000
TEXT_MAX: Final = 200_000  # maximum characters of all layouts and chat ids; DynamoDB allows 400 KB
_TRIES_MAX: Final = 20  # maximum attempts of an update, which fails after another process's update
_LEVELS: Final = [2**n for n in range(SHARDS_MAX.bit_length())]

Outcome = Literal["moved", "waiting", "full", "raced"]


LAYOUTS_KEY: Final[Item] = {Field.PK: {"S": "shards"}, Field.SK: {"S": "shards"}}
HORIZON_KEY: Final[Item] = {Field.PK: {"S": "shards"}, Field.SK: {"S": "horizon"}}


class _Horizon(NamedTuple):
    rev: int
    upto: int
    changed: int


class _Copy(NamedTuple):
    """Sharding layouts, final up to ts `upto`, as read at `read_at_s` (monotonic, s)."""

    layouts: Layouts
    upto: int
    read_at_s: float
    changed: int
    rev: int
    number: int  # number of this read: 1, 2, 3 …


_NO_COPY: Final = _Copy(
    layouts=Layouts(), upto=-1, read_at_s=float("-inf"), changed=0, rev=0, number=0
)


class ShardedChats:
    """Cached copy of all chats' sharding layouts. Use one instance per process."""

    def __init__(self, client: DynamoClient, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._table = Table(client, DIRECTORY)
        self._copy = _NO_COPY
        self._reading = asyncio.Lock()
        self._reads_begun = 0

    async def get_for_reading(self, upto_ts: int) -> Layouts:
        """Return the sharding layouts for reading a range of entries with a ts up to `upto_ts`.

        Guarantees:
            Cost: none if the cached layouts are final up to `upto_ts`. Otherwise, one GetItem per
            `SHARD_REFRESH_S`, and a second one if a layout has changed.

        Raises:
            Unavailable: the items cannot be read.
        """
        if self._is_fresh_for(upto_ts):
            return self._copy.layouts
        async with self._reading:
            if not self._is_fresh_for(upto_ts):
                await self._read()
        return self._copy.layouts

    async def get_for_keys(self, upto_ts: int) -> Layouts:
        """Return the sharding layouts for the keys of entries with a ts up to `upto_ts`.

        The keys are correct for all entries that were written before the call. Nothing is written,
        so clients can supply `upto_ts`. Unless the cached layouts are final up to `upto_ts`, each
        call reads, or shares a concurrent call's read. For errors, see `get_for_reading`.
        """
        arrived = self._reads_begun
        if upto_ts <= self._copy.upto:
            return self._copy.layouts
        async with self._reading:
            # A read that began after this call is new enough, even if another caller began it.
            if upto_ts > self._copy.upto and self._copy.number <= arrived:
                await self._read()
        return self._copy.layouts

    def _is_fresh_for(self, upto_ts: int) -> bool:
        age_s = self._clock.monotonic() - self._copy.read_at_s
        return upto_ts <= self._copy.upto or age_s < SHARD_REFRESH_S

    async def get_for_writing(self, upto_ts: int) -> Layouts:
        """Return the sharding layouts for writing entries with a ts up to `upto_ts`.

        The layouts never change for these entries, so the caller can keep them.

        Guarantees:
            Cost: none if the cached layouts are final up to `upto_ts`. Otherwise, one or two
            GetItems; all processes together also make about one UpdateItem per `EXTENSION_US`.

        Raises:
            Unavailable: the items cannot be read or written.
        """
        if upto_ts <= self._copy.upto:
            return self._copy.layouts
        async with self._reading:
            for _ in range(_TRIES_MAX):
                if upto_ts <= self._copy.upto:
                    return self._copy.layouts
                await self._read()
                if upto_ts > self._copy.upto:
                    await self._move_horizon(upto_ts + EXTENSION_US)
        if upto_ts <= self._copy.upto:
            return self._copy.layouts
        raise Unavailable("directory: the write sharding horizon changes too often; try again")

    async def _read(self) -> None:
        started_s = self._clock.monotonic()
        self._reads_begun += 1
        horizon = await self._get_horizon()
        layouts, changed = self._copy.layouts, self._copy.changed
        if changed < horizon.changed:
            # The layouts are read after the horizon, so they include all changes made before it was
            # read.
            layouts, changed = await self._get_layouts()
            if changed < horizon.changed:
                raise Unavailable("directory: the layouts of sharded chats are outdated; try again")
            spread = collections.Counter(layout.shards for layout in layouts.of_chats.values())
            for shards in _LEVELS:
                metrics.CHAT_SHARDS.labels(str(shards)).set(spread[shards])
        self._copy = _Copy(
            layouts=layouts,
            upto=horizon.upto,
            read_at_s=started_s,
            changed=changed,
            rev=horizon.rev,
            number=self._reads_begun,
        )

    async def _move_horizon(self, upto: int) -> None:
        rev = self._copy.rev
        changes = _change_horizon(rev, upto, Default(0))
        if await try_write(self._table.update(HORIZON_KEY, changes, if_=_has_rev(rev))):
            self._copy = self._copy._replace(upto=upto, rev=rev + 1)

    async def _get_horizon(self) -> _Horizon:
        item = await self._table.find(HORIZON_KEY) or {}
        if not item:
            return _Horizon(0, -1, 0)
        names = (Field.REV, Field.UPTO, Field.CHANGED)
        return _Horizon(*(get_number(item, name) for name in names))

    async def _get_layouts(self) -> tuple[Layouts, int]:
        """Return `(layouts, changed)`: the stored layouts, and the `rev` of their last change."""
        item = await self._table.find(LAYOUTS_KEY) or {}
        if Field.CHANGED not in item:
            return Layouts(), 0
        chats, floors = item[Field.CHATS]["M"], item[Field.FLOORS]["M"]
        layouts = Layouts(
            {chat: parse_layout(text["S"]) for chat, text in chats.items()},
            {chat: parse_floor(text["S"]) for chat, text in floors.items()},
        )
        return layouts, get_number(item, Field.CHANGED)

    async def reshard(
        self,
        chat: str,
        shards: int,
        find_newest_ts: Callable[[], Awaitable[int | None]],
        floor: ShardFloor | None = None,
    ) -> Outcome:
        """Add a period: distribute the future entries of a chat over `shards` partitions.

        `find_newest_ts` returns an upper bound for the ts of the chat's current entries, or None if
        it is unknown. `floor` is stored as the chat's minimum number of shards until a ts.

        Guarantees:
            Existing periods are not changed, even by concurrent calls.
            No entry in the new period has been or can be written with an older copy of the layouts.
            Bounded: `PERIODS_MAX` periods per chat and `TEXT_MAX` in total. Beyond these limits,
            nothing is changed and the result is "full".
            Cancellation: safe; the period may or may not have been added.

        Raises:
            Unavailable: DynamoDB or `find_newest_ts` failed; the period may have been added.
        """
        async with self._client.deadline():
            for _ in range(_TRIES_MAX):
                outcome = await self._try_reshard(chat, shards, find_newest_ts, floor)
                # Try again after a race: writers of entries often update the same item at the same
                # moment.
                if outcome != "raced":
                    break
            return outcome

    async def _try_reshard(
        self,
        chat: str,
        shards: int,
        find_newest_ts: Callable[[], Awaitable[int | None]],
        floor: ShardFloor | None,
    ) -> Outcome:
        # Read the horizon before the layouts. If another process then adds a period, the horizon's
        # `rev` changes, and `_put` fails.
        horizon = await self._get_horizon()
        layouts, _ = await self._get_layouts()
        layout = layouts.of(chat)
        newest = await find_newest_ts()
        is_same = shards == layout.shards
        if newest is None or (is_same and floor is None):
            return "waiting"
        upto = max(horizon.upto, newest + READ_LEAD_US)
        if layout.from_ts > upto and not is_same:
            return "waiting"
        new_layout = layout
        if not is_same:
            new_layout = Layout((*layout.periods, ShardingPeriod(upto + 1, shards)))
        reserved = 0 if shards >= layout.shards else PERIODS_RESERVED
        sizes = sum(len(c) + len(text.encode()) for c, text in layouts.of_chats.items())
        sizes += sum(len(c) + len(text.encode()) for c, text in layouts.floors.items())
        size = sizes + 2 * len(chat) + len(new_layout.encode()) - len(layout.encode())
        if len(new_layout.periods) > PERIODS_MAX - reserved or size > TEXT_MAX:
            return "full"
        failpoint("shards.before_reshard")
        try:
            await self._put(horizon, chat, new_layout, floor)
        except ConditionFailed:
            return "raced"
        failpoint("shards.after_reshard")
        return "moved"

    async def _put(
        self, horizon: _Horizon, chat: str, layout: Layout, floor: ShardFloor | None
    ) -> None:
        """Write a chat's layout. Raises ConditionFailed if `horizon` is outdated."""
        await self._prepare_layouts()
        rev = horizon.rev
        changes: dict[str, Change] = {Field.CHANGED: rev + 1}
        if layout:
            changes[Element(Field.CHATS, chat)] = layout.encode()
        if floor is not None:
            changes[Element(Field.FLOORS, chat)] = floor.encode()
        move = _change_horizon(rev, horizon.upto, rev + 1)
        actions: list[Action] = [
            self._table.update_action(HORIZON_KEY, move, if_=_has_rev(rev)),
            self._table.update_action(LAYOUTS_KEY, changes),
        ]
        await self._client.transact(actions)

    async def _prepare_layouts(self) -> None:
        changes: Changes = {Field.CHATS: Default({}), Field.FLOORS: Default({})}
        is_absent = Attr(Field.FLOORS).is_absent
        await try_write(self._table.update(LAYOUTS_KEY, changes, if_=is_absent))


def _change_horizon(rev: int, upto: int, changed: Change) -> Changes:
    return {Field.REV: rev + 1, Field.UPTO: upto, Field.CHANGED: changed}


def _has_rev(rev: int) -> Condition:
    return Attr(Field.REV).matches(rev or None)
