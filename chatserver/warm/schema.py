"""Which schema DynamoDB's tables have, and which processes act by which.

Owns, in table `directory`:

    PK "schema"  SK "schema"            version N  oldest N
    PK "schema"  SK "process#<name>"    acts_by N  seen N (ms)  expires_at N

A process writes its row before it reads the schema's. So whoever raises `oldest` and then looks for
older processes sees each of them, or that process sees the new `oldest` and does not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import structlog

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import ConfigError, Unavailable
from chatserver.warm import versions
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.fields import SchemaField as Field
from chatserver.warm.tables import DIRECTORY
from chatserver.warm.versions import SCHEMA_KEY

log = structlog.get_logger()

PROCESS_PREFIX: Final = "process#"
AFTER_PROCESSES: Final = "process$"  # '$' follows '#'
PROCESSES_MAX: Final = 10_000
# A process that missed so many of its looks is dead.
LOOKS_MISSED_MAX: Final = 3
KEPT_S: Final = 86_400
LOOK_TIMEOUT_S: Final = 2.0
NEXT_LOOK_S: Final = 2.0  # while nothing is known


class SchemaState(NamedTuple):
    """The last migration that is done, and the oldest schema that processes may act by."""

    version: int = 0
    oldest: int = 0


class Process(NamedTuple):
    """A process that uses the tables: its schema, and when it was last heard of (ms)."""

    name: str
    acts_by: int
    seen_ms: int


def check_schema(state: SchemaState, acts_by: int, settings: Warm) -> None:
    """See that a process may use the tables.

    Raises:
        ConfigError: they are of a schema that its own is too old for.
    """
    if acts_by >= state.oldest:
        return
    told = "" if settings.schema_version is None else ", as warm.schema_version tells it to"
    raise ConfigError(
        [
            f"DynamoDB tables {settings.table_prefix}*: their schema is {state.version}, for "
            f"processes that act by schema {state.oldest} or newer; this one acts by {acts_by}"
            f"{told}. Deploy a newer release{', or unset CHAT_WARM_SCHEMA_VERSION' if told else ''}"
        ]
    )


class SchemaRows:
    """Reads and writes the rows. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._settings = settings
        self._table = DIRECTORY.name_in(settings)

    async def get_state(self) -> SchemaState:
        """Return the schema of the tables; consistent. Without the row it is 0, for everybody."""
        request = {"TableName": self._table, "Key": key_of(SCHEMA_KEY), "ConsistentRead": True}
        item: Item | None = (await self._client.call("get_item", request)).get("Item")
        if item is None:
            return SchemaState()
        return SchemaState(int(item[Field.VERSION]["N"]), int(item[Field.OLDEST]["N"]))

    async def raise_state(self, state: SchemaState) -> None:
        """Raise version and oldest, which never fall. Idempotent."""
        request = {
            "TableName": self._table,
            "Key": key_of(SCHEMA_KEY),
            "UpdateExpression": "SET #version = :version, #oldest = :oldest",
            "ConditionExpression": (
                "attribute_not_exists(#version) OR (#version <= :version AND #oldest <= :oldest)"
            ),
            "ExpressionAttributeNames": {"#version": Field.VERSION, "#oldest": Field.OLDEST},
            "ExpressionAttributeValues": {
                ":version": {"N": str(state.version)},
                ":oldest": {"N": str(state.oldest)},
            },
        }
        with contextlib.suppress(ConditionFailed):
            await self._client.call("update_item", request)

    async def put_process(self, name: str, acts_by: int, now: float) -> None:
        """Note that a process is there."""
        item = key_of(PROCESS_PREFIX + name) | {
            Field.ACTS_BY: {"N": str(acts_by)},
            Field.SEEN: {"N": str(int(now * 1000))},
            Field.EXPIRES_AT: {"N": str(int(now) + KEPT_S)},
        }
        await self._client.call("put_item", {"TableName": self._table, "Item": item})

    async def remove_process(self, name: str) -> None:
        """Note that a process has ended."""
        key = key_of(PROCESS_PREFIX + name)
        await self._client.call("delete_item", {"TableName": self._table, "Key": key})

    async def list_processes(self, now: float) -> list[Process]:
        """Return the processes that live, by name; consistent."""
        since_ms = (now - self._settings.schema_check_s * LOOKS_MISSED_MAX) * 1000
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :low AND :high",
            "ExpressionAttributeNames": {"#pk": Field.PK, "#sk": Field.SK},
            "ExpressionAttributeValues": {
                ":pk": {"S": SCHEMA_KEY},
                ":low": {"S": PROCESS_PREFIX},
                ":high": {"S": AFTER_PROCESSES},
            },
            "ConsistentRead": True,
        }
        found: list[Process] = []
        while len(found) < PROCESSES_MAX:
            answer = await self._client.call("query", request)
            found += [_process_of(item) for item in answer["Items"]]
            if (last := answer.get("LastEvaluatedKey")) is None:
                break
            request["ExclusiveStartKey"] = last
        return [process for process in found if process.seen_ms > since_ms]


def key_of(sort: str) -> Item:
    """Return the key of a row about the schema."""
    return {Field.PK: {"S": SCHEMA_KEY}, Field.SK: {"S": sort}}


def _process_of(item: Item) -> Process:
    name = item[Field.SK]["S"].removeprefix(PROCESS_PREFIX)
    return Process(name, int(item[Field.ACTS_BY]["N"]), int(item[Field.SEEN]["N"]))


class KnownSchema:
    """The schema of the tables as it was not long ago; it only ever rises."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock) -> None:
        self._rows = SchemaRows(client, settings)
        self._for_s = settings.schema_check_s
        self._clock = clock
        self._state = SchemaState()
        self._until = float("-inf")

    async def get_version(self) -> int:
        """Return the last migration that was done at most `schema_check_s` ago."""
        now = self._clock.monotonic()
        if now >= self._until:
            self._state = await self._rows.get_state()
            self._until = now + self._for_s
        return self._state.version

    async def reads_ttl(self) -> bool:
        """Tell whether DynamoDB's TTL reads `ttl` of messages, and whoever changes one knows it."""
        return await self.get_version() >= versions.TTL_ONLY


@contextlib.asynccontextmanager
async def watch_schema(
    client: DynamoClient, settings: Warm, what: str, clock: Clock
) -> AsyncIterator[None]:
    """See that this process may use the tables, and let others see it, while the block runs.

    Guarantees:
        A process that may not use the tables any more gets SIGTERM within `schema_check_s`.
        While DynamoDB is down, or may not be asked, nothing is known and nothing refused.

    Raises:
        ConfigError: the tables are of a schema that this process is too old for.
    """
    acts_by = versions.acting_version(settings)
    name = f"{what}-{socket.gethostname()}-{os.getpid()}-{new_id()}"
    rows = SchemaRows(client, settings)

    async def look() -> bool:
        try:
            async with client.deadline(LOOK_TIMEOUT_S):
                await rows.put_process(name, acts_by, clock.time())
                state = await rows.get_state()
        except (Unavailable, ConfigError) as exc:
            log.warning("schema.unknown", error=exc.message)
            return False
        check_schema(state, acts_by, settings)
        if acts_by != state.version:
            log.debug("schema.other", acts_by=acts_by, tables=state.version)
        return True

    async def keep_looking(is_known: bool) -> None:
        while True:
            await asyncio.sleep(settings.schema_check_s if is_known else NEXT_LOOK_S)
            try:
                is_known = await look()
            except ConfigError as exc:
                log.error("schema.too_old", problems=exc.problems)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    try:
        task = asyncio.create_task(keep_looking(await look()), name="schema")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
    finally:
        with contextlib.suppress(Unavailable, ConfigError):
            async with client.deadline(LOOK_TIMEOUT_S):
                await rows.remove_process(name)
