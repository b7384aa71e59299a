"""How far migrations are, and who carries them out.

Owns, in table `directory`, besides what `chatserver.warm.schema` has:

    PK "schema"  SK "lock"                     holder S  turn N  held_until N (ms)
    PK "schema"  SK "migration#<number>"       state S  started N  finished N (ms)  segments N
    PK "schema"  SK "segment#<number>#<n>"     place S (JSON)  done BOOL  read N  filled N
                                               read_units N  write_units N  turn N

One process holds the lock at a time. One that slept past its lease finds out when it renews it;
what it writes until then is refused, because the next holder's turn is a later one. Even without
that nothing would be lost: a segment that begins again finds its items filled.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.errors import ChatError, Unavailable
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.fields import SchemaField as Field
from chatserver.warm.schema import key_of
from chatserver.warm.tables import DIRECTORY

LOCK: Final = "lock"
POLL_S: Final = 0.2
RUNNING: Final = "running"
DONE: Final = "done"


class LockLost(Unavailable):
    """Another process has the lock, or may have it."""


class Progress(NamedTuple):
    """A migration that has begun. Times are in ms since 1970."""

    state: str
    started_ms: int
    finished_ms: int
    segments: int


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A part of a table, and how far it is done: up to `place`, the key of its last item."""

    number: int
    place: Item | None = None
    is_done: bool = False
    read: int = 0
    filled: int = 0
    read_units: float = 0.0
    write_units: float = 0.0


class MigrationRows:
    """Reads and writes the rows. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    # the lock

    async def claim(self, holder: str, now: float) -> int | None:
        """Take the lock and return the number of our turn; None while somebody has it."""
        request = self._hold(holder, now)
        # Our own: an earlier try, whose answer was lost.
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
            answer = await self._client.call("update_item", request)
        except ConditionFailed:
            return None
        return int(answer["Attributes"][Field.TURN]["N"])

    async def renew(self, holder: str, now: float) -> None:
        """Keep the lock. Raises LockLost."""
        request = self._hold(holder, now)
        request["ConditionExpression"] = "#holder = :holder"
        try:
            await self._client.call("update_item", request)
        except ConditionFailed as exc:
            raise LockLost("another `chatserver migrate` has taken the lock") from exc

    async def release(self, holder: str) -> None:
        """Give the lock back, if it is ours."""
        request = self._hold(holder, 0)
        request["ExpressionAttributeValues"][":until"] = {"N": "0"}
        request["ConditionExpression"] = "#holder = :holder"
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)

    async def find_holder(self, now: float) -> str | None:
        """Return who has the lock. Consistent."""
        item = await self._find(LOCK)
        if item is None or int(item[Field.HELD_UNTIL]["N"]) <= now * 1000:
            return None
        return str(item[Field.HOLDER]["S"])

    def _hold(self, holder: str, now: float) -> dict[str, Any]:
        until_ms = int((now + self._settings.migrate_lease_s) * 1000)
        return {
            "TableName": self._table,
            "Key": key_of(LOCK),
            "UpdateExpression": "SET #holder = :holder, #until = :until",
            "ExpressionAttributeNames": {"#holder": Field.HOLDER, "#until": Field.HELD_UNTIL},
            "ExpressionAttributeValues": {
                ":holder": {"S": holder},
                ":until": {"N": str(until_ms)},
            },
        }

    # migrations

    async def find_progress(self, number: int) -> Progress | None:
        """Return how far a migration is; None if it has not begun. Consistent."""
        item = await self._find(_migration_key(number))
        if item is None:
            return None
        return Progress(
            item[Field.STATE]["S"],
            int(item[Field.STARTED]["N"]),
            int(item.get(Field.FINISHED, {"N": "0"})["N"]),
            int(item[Field.SEGMENTS]["N"]),
        )

    async def begin(self, number: int, segments: int, now: float) -> Progress:
        """Note that a migration has begun, unless it has, and return how far it is.

        The number of segments is fixed by whoever begins: a segment's place is of no use in others.
        """
        item = key_of(_migration_key(number)) | {
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
        begun = await self.find_progress(number)
        assert begun is not None  # nobody removes these rows
        return begun

    async def finish(self, number: int, now: float) -> None:
        """Note that a migration is done. Idempotent."""
        request = {
            "TableName": self._table,
            "Key": key_of(_migration_key(number)),
            "UpdateExpression": "SET #state = :done, #finished = :now",
            "ExpressionAttributeNames": {"#state": Field.STATE, "#finished": Field.FINISHED},
            "ExpressionAttributeValues": {
                ":done": {"S": DONE},
                ":now": {"N": str(int(now * 1000))},
            },
        }
        await self._client.call("update_item", request)

    # segments

    async def get_segment(self, migration: int, number: int) -> Segment:
        """Return how far a segment is; at its beginning if nothing is known. Consistent."""
        item = await self._find(_segment_key(migration, number))
        if item is None:
            return Segment(number)
        return Segment(
            number=number,
            place=json.loads(item[Field.PLACE]["S"]),
            is_done=item[Field.DONE]["BOOL"],
            read=int(item[Field.READ]["N"]),
            filled=int(item[Field.FILLED]["N"]),
            read_units=float(item[Field.READ_UNITS]["N"]),
            write_units=float(item[Field.WRITE_UNITS]["N"]),
        )

    async def put_segment(self, migration: int, segment: Segment, turn: int) -> None:
        """Note how far a segment is.

        Raises:
            LockLost: a later holder of the lock has noted something.
        """
        item = key_of(_segment_key(migration, segment.number)) | {
            Field.PLACE: {"S": json.dumps(segment.place)},
            Field.DONE: {"BOOL": segment.is_done},
            Field.READ: {"N": str(segment.read)},
            Field.FILLED: {"N": str(segment.filled)},
            Field.READ_UNITS: {"N": str(segment.read_units)},
            Field.WRITE_UNITS: {"N": str(segment.write_units)},
            Field.TURN: {"N": str(turn)},
        }
        request = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#turn) OR #turn <= :turn",
            "ExpressionAttributeNames": {"#turn": Field.TURN},
            "ExpressionAttributeValues": {":turn": {"N": str(turn)}},
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed as exc:
            raise LockLost("another `chatserver migrate` goes on with this") from exc

    async def _find(self, sort: str) -> Item | None:
        request = {"TableName": self._table, "Key": key_of(sort), "ConsistentRead": True}
        item: Item | None = (await self._client.call("get_item", request)).get("Item")
        return item


def _migration_key(number: int) -> str:
    return f"migration#{number:04d}"


def _segment_key(migration: int, number: int) -> str:
    return f"segment#{migration:04d}#{number:04d}"


async def run_locked(
    rows: MigrationRows,
    settings: Warm,
    holder: str,
    clock: Clock,
    work: Callable[[int], Awaitable[None]],
) -> None:
    """Run `work`, with the number of our turn, while we hold the lock.

    Raises:
        Unavailable: another one holds it, for longer than one that died would.
        LockLost: it went to another one; what was under way is cancelled.
    """
    turn = await _wait_for_lock(rows, settings, holder, clock)

    async def keep() -> None:
        while True:
            await asyncio.sleep(settings.migrate_lease_s / 3)
            await rows.renew(holder, clock.time())

    try:
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(keep(), name="lock")
            try:
                await work(turn)
            finally:
                keeper.cancel()
    except* ChatError as failures:
        raise _first(failures) from None
    finally:
        with contextlib.suppress(Unavailable):  # then it ends by itself
            await rows.release(holder)


def _first(failures: BaseException) -> BaseException:
    while isinstance(failures, BaseExceptionGroup):
        failures = failures.exceptions[0]
    return failures


async def _wait_for_lock(rows: MigrationRows, settings: Warm, holder: str, clock: Clock) -> int:
    give_up = clock.monotonic() + settings.migrate_lease_s * 1.5
    while (turn := await rows.claim(holder, clock.time())) is None:
        if clock.monotonic() > give_up:
            other = await rows.find_holder(clock.time())
            raise Unavailable(f"another `chatserver migrate up` is running: {other}")
        await asyncio.sleep(POLL_S)
    return turn
