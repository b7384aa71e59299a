"""Checkpoints and shard leases for the Stream of table `messages`.

Owns, in table `directory`:

    PK "stream"  SK "shard#<stream>/<shard>"  parent S  position S  done BOOL  read_to N (ms)
                                              holder S  held_until N (ms)  turn N  expires_at N
    PK "stream"  SK "reader#<name>"           seen N (ms)  expires_at N

`position` is the sequence number of the last processed record. `read_to` is the time up to which
the shard has been read.

A reader holds the lease of a shard while it reads the shard. Each holder gets a higher fencing
token (`turn`). A checkpoint with a lower token is rejected, so a reader that was paused for longer
than its lease cannot write one. The next holder processes the records after the last checkpoint
again, so processing must be idempotent.

The item of a completed shard is kept for a week, longer than DynamoDB lists the shard. The item of
an incomplete shard is kept forever, so that the loss of unread records is detected.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chatserver.errors import Unavailable
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.dynamo.conditions import Add, Attr, Change, Default
from chatserver.warm.dynamo.item_attributes import find_number, find_text, get_number, get_text
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.directory_attributes import StreamField as Field
from chatserver.warm.schema.tables import DIRECTORY
from chatserver.warm.streams.shard_lineage import Shard, ShardProgress

_PARTITION: Final = "stream"
_SHARD: Final = "shard#"
_READER: Final = "reader#"
DONE_KEPT_S: Final = 7 * 86_400
READER_KEPT_S: Final = 86_400
_IS_OPEN: Final = Attr(Field.DONE).is_absent


class ShardLeaseLost(Unavailable):
    """Another reader holds the shard's lease."""


class ShardLease(NamedTuple):
    """A shard lease held by a reader."""

    name: str
    holder: str
    turn: int
    position: str | None
    read_to_ms: int


class StreamState(NamedTuple):
    """Progress of all shards, and the readers with a recent heartbeat."""

    progress: dict[str, ShardProgress]
    readers: set[str]


class StreamCheckpoints:
    """Repository of checkpoints, leases and readers. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, lease_s: float) -> None:
        self._table = Table(client, DIRECTORY)
        self._lease_s = lease_s

    async def get_state(self, now: float) -> StreamState:
        """Return the progress of all shards, and the live readers. Strongly consistent."""
        now_ms = int(now * 1000)
        state = StreamState({}, set())
        async for items in self._table.iter_query(Span(DIRECTORY, _PARTITION)):
            for item in items:
                sort = get_text(item, Field.SK)
                if sort.startswith(_READER):
                    if get_number(item, Field.SEEN) > now_ms - 1000 * self._lease_s:
                        state.readers.add(sort.removeprefix(_READER))
                    continue
                name = sort.removeprefix(_SHARD)
                is_held = (find_number(item, Field.HELD_UNTIL) or 0) > now_ms
                state.progress[name] = ShardProgress(
                    name,
                    find_text(item, Field.POSITION),
                    Field.DONE in item,
                    find_number(item, Field.READ_TO) or 0,
                    get_text(item, Field.HOLDER) if is_held else None,
                )
        return state

    async def put_reader(self, reader: str, now: float) -> None:
        attributes = {Field.SEEN: int(now * 1000), Field.EXPIRES_AT: int(now) + READER_KEPT_S}
        await self._table.put((_PARTITION, _READER + reader), attributes)

    async def remove_reader(self, reader: str) -> None:
        """Delete the item of a stopping reader. Idempotent."""
        await self._table.delete((_PARTITION, _READER + reader))

    async def claim(
        self, shard: Shard, reader: str, now: float, read_to_ms: int | None = None
    ) -> ShardLease | None:
        """Claim a shard; return None if another reader holds it, or if the shard is complete.

        `read_to_ms` is the time up to which the parent shard has been read (None: `now`). It
        becomes the shard's own `read_to` if the shard has none yet.
        """
        now_ms = int(now * 1000)
        until, holder = Attr(Field.HELD_UNTIL), Attr(Field.HOLDER)
        is_free = until.is_absent | (until <= now_ms) | (holder == reader)
        changes: dict[str, Change] = {
            Field.HOLDER: reader,
            Field.HELD_UNTIL: now_ms + int(self._lease_s * 1000),
            Field.READ_TO: Default(now_ms if read_to_ms is None else read_to_ms),
            Field.TURN: Add(1),
        }
        if shard.parent is not None:
            changes[Field.PARENT] = shard.parent
        try:
            item = await self._table.update(
                (_PARTITION, _SHARD + shard.name), changes, "new", if_=_IS_OPEN & is_free
            )
        except ConditionFailed:
            return None
        turn, read_to_ms = get_number(item, Field.TURN), get_number(item, Field.READ_TO)
        return ShardLease(shard.name, reader, turn, find_text(item, Field.POSITION), read_to_ms)

    async def save(
        self, hold: ShardLease, now: float, *, is_done: bool = False, keep: bool = True
    ) -> None:
        """Record the progress of a shard, and keep or release its lease.

        Raises:
            ShardLeaseLost: another reader holds the shard.
        """
        until_ms = int((now + self._lease_s) * 1000) if keep and not is_done else 0
        changes: dict[str, Change] = {
            Field.HELD_UNTIL: until_ms,
            Field.READ_TO: hold.read_to_ms,
        }
        if hold.position is not None:
            changes[Field.POSITION] = hold.position
        if is_done:
            changes |= _build_completion(now)
        is_own = (Attr(Field.TURN) == hold.turn) & (Attr(Field.HOLDER) == hold.holder)
        try:
            await self._table.update((_PARTITION, _SHARD + hold.name), changes, if_=is_own)
        except ConditionFailed as exc:
            raise ShardLeaseLost(f"shard {hold.name}: claimed by another reader") from exc

    async def close(self, progress: ShardProgress, now: float) -> bool:
        """Mark a shard that no longer exists as complete; return False if it already was."""
        key = (_PARTITION, _SHARD + progress.name)
        return await try_write(self._table.update(key, _build_completion(now), if_=_IS_OPEN))


def _build_completion(now: float) -> dict[str, Change]:
    return {Field.DONE: True, Field.EXPIRES_AT: int(now) + DONE_KEPT_S}
