"""Migration progress and lock: each migration's progress, and the lock of the current run.

Owns, in table `directory`, in addition to `chatserver.warm.schema.active_version`:

    PK "schema"  SK "lock"                     holder S  turn N  held_until N (ms)
    PK "schema"  SK "migration#<number>"       state S  started N  finished N (ms)  segments N
    PK "schema"  SK "segment#<number>#<n>"     progress S (JSON of `Segment`)  turn N

One process holds the lock at a time. A process that was paused for longer than its lease detects
the loss at the next renewal. Until then, its checkpoints are rejected, because the next holder has
a higher fencing token (`turn`). Its repairs do no harm, because they are idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.errors import Unavailable
from chatserver.task_groups import open_task_group
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.items import find_item
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


class Progress(NamedTuple):
    """Progress of a migration that has started. Times are in ms since 1970."""

    state: str
    started_ms: int
    finished_ms: int
    segments: int


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """Progress of a scan segment. `place` is the key of the last item that was processed."""

    number: int
    place: Item | None = None
    is_done: bool = False
    read: int = 0
    filled: int = 0
    read_units: float = 0.0
    write_units: float = 0.0


class MigrationRows:
    """Repository of the migration items. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    # Lock.

    async def claim(self, holder: str, now: float) -> int | None:
        """Acquire the lock and return its fencing token, or None while another process holds it."""
        request = self._make_lock_update(holder, now)
        # `holder` may already have the lock, if the response to an earlier attempt was lost.
        request["ConditionExpression"] = (
            "attribute_not_exists(#until) OR #until <= :now OR #holder = :holder"
        )
        request["UpdateExpression"] += " ADD #turn :one"
        request["ExpressionAttributeNames"] |= {"#turn": Field.TURN}
        request["ExpressionAttributeValues"] |= {
            ":now": {"N": str(int(now * 1000))},
            ":one": {"N": "1"},
        }
        request["ReturnValues"] = "ALL_NEW"
        try:
            response = await self._client.call("update_item", request)
        except ConditionFailed:
            return None
        return int(response["Attributes"][Field.TURN]["N"])

    async def renew(self, holder: str, now: float) -> None:
        """Renew the lock. Raises LockLost."""
        request = self._make_lock_update(holder, now)
        request["ConditionExpression"] = "#holder = :holder"
        try:
            await self._client.call("update_item", request)
        except ConditionFailed as exc:
            raise LockLost("another `chatserver migrate` has acquired the lock") from exc

    async def release(self, holder: str) -> None:
        """Release the lock, if `holder` holds it."""
        request = self._make_lock_update(holder, 0)
        request["ExpressionAttributeValues"][":until"] = {"N": "0"}
        request["ConditionExpression"] = "#holder = :holder"
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)

    async def find_holder(self, now: float) -> str | None:
        """Return the holder of the lock, or None. Strongly consistent."""
        item = await self._find(LOCK)
        if item is None or int(item[Field.HELD_UNTIL]["N"]) <= now * 1000:
            return None
        return str(item[Field.HOLDER]["S"])

    def _make_lock_update(self, holder: str, now: float) -> dict[str, Any]:
        until_ms = int((now + MIGRATE_LEASE_S) * 1000)
        return {
            "TableName": self._table,
            "Key": build_key(LOCK),
            "UpdateExpression": "SET #holder = :holder, #until = :until",
            "ExpressionAttributeNames": {"#holder": Field.HOLDER, "#until": Field.HELD_UNTIL},
            "ExpressionAttributeValues": {
                ":holder": {"S": holder},
                ":until": {"N": str(until_ms)},
            },
        }

    # Migrations.

    async def find_progress(self, number: int) -> Progress | None:
        """Return a migration's progress; None if it has not started. Strongly consistent."""
        item = await self._find(migration_key(number))
        if item is None:
            return None
        return Progress(
            item[Field.STATE]["S"],
            int(item[Field.STARTED]["N"]),
            int(item.get(Field.FINISHED, {"N": "0"})["N"]),
            int(item[Field.SEGMENTS]["N"]),
        )

    async def begin(self, number: int, segments: int, now: float) -> Progress:
        """Record the start of a migration if it has not started; return its progress.

        A started migration keeps its number of segments, because its checkpoints depend on it.
        """
        item = build_key(migration_key(number)) | {
            Field.STATE: {"S": RUNNING},
            Field.STARTED: {"N": str(int(now * 1000))},
            Field.SEGMENTS: {"N": str(segments)},
        }
        request = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("put_item", request)
        progress = await self.find_progress(number)
        assert progress is not None  # these items are never removed
        return progress

    async def finish(self, number: int, now: float) -> None:
        """Record that a migration is done. Idempotent."""
        request = {
            "TableName": self._table,
            "Key": build_key(migration_key(number)),
            "UpdateExpression": "SET #state = :done, #finished = :now",
            "ExpressionAttributeNames": {"#state": Field.STATE, "#finished": Field.FINISHED},
            "ExpressionAttributeValues": {
                ":done": {"S": DONE},
                ":now": {"N": str(int(now * 1000))},
            },
        }
        await self._client.call("update_item", request)

    # Segments.

    async def get_segment(self, migration: int, number: int) -> Segment:
        """Return a scan segment's progress, even if not started. Strongly consistent."""
        item = await self._find(segment_key(migration, number))
        if item is None:
            return Segment(number)
        return msgspec.json.decode(item[Field.PROGRESS]["S"], type=Segment)

    async def put_segment(self, migration: int, segment: Segment, token: int) -> None:
        """Record the progress of a segment of the table scan.

        Raises:
            LockLost: a later holder of the lock has recorded progress.
        """
        item = build_key(segment_key(migration, segment.number)) | {
            Field.PROGRESS: {"S": msgspec.json.encode(segment).decode()},
            Field.TURN: {"N": str(token)},
        }
        request = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#turn) OR #turn <= :turn",
            "ExpressionAttributeNames": {"#turn": Field.TURN},
            "ExpressionAttributeValues": {":turn": {"N": str(token)}},
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed as exc:
            raise LockLost("another `chatserver migrate` has continued this migration") from exc

    async def _find(self, sort: str) -> Item | None:
        return await find_item(self._client, self._table, build_key(sort))


def migration_key(number: int) -> str:
    return f"migration#{number:04d}"


def segment_key(migration: int, number: int) -> str:
    return f"segment#{migration:04d}#{number:04d}"


async def run_locked(
    rows: MigrationRows,
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


async def _wait_for_lock(rows: MigrationRows, holder: str, clock: Clock) -> int:
    deadline_s = clock.monotonic() + MIGRATE_LEASE_S * 1.5
    while (token := await rows.claim(holder, clock.time())) is None:
        if clock.monotonic() > deadline_s:
            other = await rows.find_holder(clock.time())
            raise Unavailable(f"another `chatserver migrate up` is running: {other}")
        await asyncio.sleep(POLL_S)
    return token
