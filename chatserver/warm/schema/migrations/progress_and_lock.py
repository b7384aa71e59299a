"""Migration progress and lock: each migration's progress, and the lock of the current run.

Owns, in table `directory`, in addition to `chatserver.warm.schema.active_version`:

    PK "schema"  SK "lock"                     holder S  turn N  held_until N (ms)
    PK "schema"  SK "migration#<number>"       state S  started N  finished N (ms)  segments N
    PK "schema"  SK "segment#<number>#<n>"     progress S (JSON of `ScanSegment`)  turn N

One process holds the lock at a time. A process that was paused for longer than its lease detects
the loss at the next renewal. Until then, its checkpoints are rejected, because the next holder has
a higher fencing token (`turn`). Its repairs do no harm, because they are idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from chatserver.domain.clock import Clock
from chatserver.errors import Unavailable
from chatserver.task_groups import open_task_group
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Add, Attr, Changes, Condition, Value
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.active_version import build_key
from chatserver.warm.schema.directory_attributes import SchemaField as Field
from chatserver.warm.schema.tables import DIRECTORY

MIGRATE_LEASE_S = 30.0  # if a run dies, another run can take the lock after this time

LOCK: Final = "lock"
POLL_S: Final = 0.2
RUNNING: Final = "running"
DONE: Final = "done"


class LockLost(Unavailable):
    """Another process holds the lock, or may hold it."""


class MigrationRun(NamedTuple):
    """Progress of a migration that has started. Times are in ms since 1970."""

    state: str
    started_ms: int
    finished_ms: int
    segments: int


PROGRESS: Final = Codec(
    MigrationRun,
    "schema",
    "migration#{number:04d}",
    state=Field.STATE,
    started_ms=Field.STARTED,
    segments=Field.SEGMENTS,
    finished_ms=StoredField(Field.FINISHED, absent=0),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ScanSegment:
    """Progress of a scan segment. `last_key` is the key of the last item that was processed."""

    number: int
    last_key: Item | None = None
    is_done: bool = False
    read: int = 0
    filled: int = 0
    read_units: float = 0.0
    write_units: float = 0.0


class MigrationProgress:
    """Repository of the migration items. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    # Lock.

    async def claim(self, holder: str, now: float) -> int | None:
        """Acquire the lock and return its fencing token, or None while another process holds it."""
        # `holder` may already have the lock, if the response to an earlier attempt was lost.
        held_until = Attr(Field.HELD_UNTIL)
        is_free = held_until.is_absent | (held_until <= int(now * 1000)) | _is_held_by(holder)
        changes: Changes = {
            Field.HOLDER: holder,
            Field.HELD_UNTIL: _get_lease_end_ms(now),
            Field.TURN: Add(1),
        }
        try:
            item = await self._table.update(build_key(LOCK), changes, "new", if_=is_free)
        except ConditionFailed:
            return None
        return int(item[Field.TURN]["N"])

    async def renew(self, holder: str, now: float) -> None:
        """Renew the lock. Raises LockLost."""
        if not await self._set_lease_end(holder, _get_lease_end_ms(now)):
            raise LockLost("another `chatserver migrate` has acquired the lock")

    async def release(self, holder: str) -> None:
        """Release the lock, if `holder` holds it."""
        await self._set_lease_end(holder, 0)

    async def _set_lease_end(self, holder: str, until_ms: int) -> bool:
        changes = {Field.HELD_UNTIL: until_ms}
        update = self._table.update(build_key(LOCK), changes, if_=_is_held_by(holder))
        return await try_write(update)

    async def find_holder(self, now: float) -> str | None:
        """Return the holder of the lock, or None. Strongly consistent."""
        item = await self._table.find(build_key(LOCK))
        if item is None or int(item[Field.HELD_UNTIL]["N"]) <= now * 1000:
            return None
        return str(item[Field.HOLDER]["S"])

    # Migrations.

    async def find_progress(self, number: int) -> MigrationRun | None:
        """Return a migration's progress; None if it has not started. Strongly consistent."""
        item = await self._table.find(PROGRESS.key(number=number))
        return None if item is None else PROGRESS.decode(item)

    async def begin(self, number: int, segments: int, now: float) -> MigrationRun:
        """Record the start of a migration if it has not started; return its progress.

        A started migration keeps its number of segments, because its checkpoints depend on it.
        """
        item = PROGRESS.encode(MigrationRun(RUNNING, int(now * 1000), 0, segments), number=number)
        await try_write(self._table.put(item, if_=Attr(Field.PK).is_absent))
        progress = await self.find_progress(number)
        assert progress is not None  # these items are never removed
        return progress

    async def finish(self, number: int, now: float) -> None:
        """Record that a migration is done. Idempotent."""
        changes: Changes = {Field.STATE: DONE, Field.FINISHED: int(now * 1000)}
        await self._table.update(PROGRESS.key(number=number), changes)

    # Segments.

    async def get_segment(self, migration: int, number: int) -> ScanSegment:
        """Return a scan segment's progress, even if not started. Strongly consistent."""
        item = await self._table.find(build_key(segment_key(migration, number)))
        if item is None:
            return ScanSegment(number)
        return msgspec.json.decode(item[Field.PROGRESS]["S"], type=ScanSegment)

    async def put_segment(self, migration: int, segment: ScanSegment, token: int) -> None:
        """Record the progress of a segment of the table scan.

        Raises:
            LockLost: a later holder of the lock has recorded progress.
        """
        key = build_key(segment_key(migration, segment.number))
        progress = msgspec.json.encode(segment).decode()
        is_current = Attr(Field.TURN).is_absent | (Attr(Field.TURN) <= token)
        written: dict[str, Value | None] = {Field.PROGRESS: progress, Field.TURN: token}
        try:
            await self._table.put(key, written, if_=is_current)
        except ConditionFailed as exc:
            raise LockLost("another `chatserver migrate` has continued this migration") from exc


def _is_held_by(holder: str) -> Condition:
    return Attr(Field.HOLDER) == holder


def _get_lease_end_ms(now: float) -> int:
    return int((now + MIGRATE_LEASE_S) * 1000)


def segment_key(migration: int, number: int) -> str:
    return f"segment#{migration:04d}#{number:04d}"


async def run_locked(
    rows: MigrationProgress,
    holder: str,
    clock: Clock,
    work: Callable[[int], Awaitable[None]],
) -> None:
    """Acquire the lock, and run `work` with the fencing token while renewing the lock.

    Raises:
        Unavailable: another process kept renewing the lock.
        LockLost: another process acquired the lock; `work` is cancelled.
    """
    token = await _wait_for_lock(rows, holder, clock)

    async def renew_lock() -> None:
        while True:
            await asyncio.sleep(MIGRATE_LEASE_S / 3)
            await rows.renew(holder, clock.time())

    try:
        async with open_task_group() as group:
            renewal = group.create_task(renew_lock(), name="lock")
            try:
                await work(token)
            finally:
                renewal.cancel()
    finally:
        with contextlib.suppress(Unavailable):  # if the release fails, the lock expires by itself
            await rows.release(holder)


async def _wait_for_lock(rows: MigrationProgress, holder: str, clock: Clock) -> int:
    deadline_s = clock.monotonic() + MIGRATE_LEASE_S * 1.5
    while (token := await rows.claim(holder, clock.time())) is None:
        if clock.monotonic() > deadline_s:
            other = await rows.find_holder(clock.time())
            raise Unavailable(f"another `chatserver migrate up` is running: {other}")
        await asyncio.sleep(POLL_S)
    return token
