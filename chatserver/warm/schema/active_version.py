"""Schema version of the tables, and the versions of the running processes.

Version 1 is the first schema; version N is the schema after migration N
(`chatserver.warm.schema.migrations`). A process uses the newest version of its release, or an older
one set with `warm.schema_version`.

Owns, in table `directory`:

    PK "schema"  SK "schema"            version N  oldest N  blocked S
    PK "schema"  SK "process#<name>"    acts_by N  seen N (ms)  expires_at N

`version` is the tables' version, `oldest` the minimum version of processes, and `acts_by` the
version of one process. A process writes its own item before it reads the first one (the schema
version item). So after `oldest` is raised, a check finds the items of all older processes that are
running, and older processes that start later are rejected.

`blocked` is the reason why an operator blocked the tenant (`chatserver tenants`). While it is set,
no process starts. A running process removes its own item, and does not call DynamoDB or S3.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import structlog

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import ConfigError, Unavailable
from chatserver.task_groups import run_in_background
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr, Changes
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.directory_attributes import SchemaField as Field
from chatserver.warm.schema.tables import DIRECTORY

log = structlog.get_logger()

FIRST: Final = 1  # schema version of tables for which no version is recorded
NEWEST = 1
OLDEST = 1  # minimum version of processes that use newly created tables
SCHEMA_KEY: Final = "schema"  # partition key of all schema items in `directory`

SCHEMA_CHECK_S = 20.0  # how often a process reads the schema version

PROCESS_PREFIX: Final = "process#"
AFTER_PROCESSES: Final = "process$"  # '$' follows '#'
PROCESSES_MAX: Final = 10_000
# A process that missed this many heartbeats is considered dead.
HEARTBEATS_MISSED_MAX: Final = 3
KEPT_S: Final = 86_400
CHECK_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 2.0  # retry interval while the schema version cannot be read


class SchemaState(NamedTuple):
    """Number of the last completed migration, and the minimum schema version of processes.

    `blocked`: why the tenant is blocked, or an empty string.
    """

    version: int = FIRST
    oldest: int = FIRST
    blocked: str = ""


class SchemaProcess(NamedTuple):
    """A process that uses the tables: its schema version and its last heartbeat (ms)."""

    name: str
    schema_version: int
    seen_ms: int


PROCESS: Final = Codec(
    SchemaProcess, "schema", "process#{name}", schema_version=Field.ACTS_BY, seen_ms=Field.SEEN
)


def get_process_version(settings: Warm) -> int:
    """Return the schema version of this process.

    Raises:
        ConfigError: the configured version is unknown to this release.
    """
    version = settings.schema_version
    if version is None:
        return NEWEST
    if version > NEWEST:
        raise ConfigError(
            f"warm.schema_version (CHAT_WARM_SCHEMA_VERSION): is {version}, but must be at "
            f"most {NEWEST}, the newest version of this release"
        )
    return version


def make_schema_item() -> Item:
    """Return the `directory` item that records the newest schema version."""
    return build_key(SCHEMA_KEY) | {
        Field.VERSION: {"N": str(NEWEST)},
        Field.OLDEST: {"N": str(OLDEST)},
    }


def check_schema(state: SchemaState, schema_version: int, settings: Warm) -> None:
    """Check that a process may use the tables.

    Raises:
        ConfigError: the tables require a newer schema version than the process has.
    """
    if schema_version >= state.oldest:
        return
    is_set = settings.schema_version is not None
    raise ConfigError(
        f"DynamoDB tables {settings.table_prefix}* have schema {state.version}, which requires "
        f"processes of schema {state.oldest} or newer; this one has {schema_version}. "
        f"Deploy a newer release{', or unset CHAT_WARM_SCHEMA_VERSION' if is_set else ''}"
    )


class SchemaVersions:
    """Repository of the schema version and process items. `now` is in seconds since 1970."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def get_state(self) -> SchemaState:
        """Return the recorded state; without one, the first version. Strongly consistent."""
        item = await self._table.find(build_key(SCHEMA_KEY))
        if item is None:
            return SchemaState()
        version, oldest = (
            int(item[name]["N"]) if name in item else FIRST
            for name in (Field.VERSION, Field.OLDEST)
        )
        return SchemaState(version, oldest, item.get(Field.BLOCKED, {"S": ""})["S"])

    async def is_used(self) -> bool:
        """Return whether the schema version item or the item of any process exists."""
        span = Span(DIRECTORY, SCHEMA_KEY)
        return bool(await self._table.query(span, limit=1, is_consistent=False))

    async def set_blocked(self, blocked: str) -> None:
        """Block the tenant with reason `blocked`; an empty reason ends the block. Idempotent."""
        await self._table.update(build_key(SCHEMA_KEY), {Field.BLOCKED: blocked or None})

    async def raise_state(self, state: SchemaState) -> None:
        """Raise `version` and `oldest`; neither is ever lowered. Idempotent."""
        version, oldest = Attr(Field.VERSION), Attr(Field.OLDEST)
        is_raised = version.is_absent | ((version <= state.version) & (oldest <= state.oldest))
        changes: Changes = {Field.VERSION: state.version, Field.OLDEST: state.oldest}
        await try_write(self._table.update(build_key(SCHEMA_KEY), changes, if_=is_raised))

    async def put_process(self, name: str, schema_version: int, now: float) -> None:
        process = SchemaProcess(name, schema_version, int(now * 1000))
        await self._table.put(PROCESS.encode(process), {Field.EXPIRES_AT: int(now) + KEPT_S})

    async def remove_process(self, name: str) -> None:
        """Delete the item of a stopping process."""
        await self._table.delete(PROCESS.key(name=name))

    async def list_processes(self, now: float) -> list[SchemaProcess]:
        """Return the live processes, by name. Strongly consistent."""
        since_ms = (now - SCHEMA_CHECK_S * HEARTBEATS_MISSED_MAX) * 1000
        span = Span(DIRECTORY, SCHEMA_KEY, between=(PROCESS_PREFIX, AFTER_PROCESSES))
        processes: list[SchemaProcess] = []
        async for items in self._table.iter_query(span):
            processes += map(PROCESS.decode, items)
            if len(processes) >= PROCESSES_MAX:
                break
        return [process for process in processes if process.seen_ms > since_ms]


def build_key(sort: str) -> Item:
    return {Field.PK: {"S": SCHEMA_KEY}, Field.SK: {"S": sort}}


class SchemaVersionCache:
    """Cached schema version of the tables, which never decreases."""

    def __init__(self, client: DynamoClient, clock: Clock) -> None:
        self._rows = SchemaVersions(client)
        self._clock = clock
        self._state = SchemaState()
        self._expires_s = float("-inf")

    async def get_version(self) -> int:
        """Return the number of the last completed migration, at most `SCHEMA_CHECK_S` old."""
        now = self._clock.monotonic()
        if now >= self._expires_s:
            self._state = await self._rows.get_state()
            self._expires_s = now + SCHEMA_CHECK_S
        return self._state.version


@contextlib.asynccontextmanager
async def watch_schema(
    client: DynamoClient, settings: Warm, process_name: str, clock: Clock
) -> AsyncIterator[None]:
    """Check that this process may use the tables, and send heartbeats until the context exits.

    Guarantees:
        A process that may no longer use the tables receives SIGTERM within `SCHEMA_CHECK_S`.
        While the tenant is blocked, the client rejects calls, and this process has no item.
        While DynamoDB is unavailable or denies access, the process starts and keeps running.

    Raises:
        ConfigError: the tables require a newer schema version than this process has, or the tenant
            is blocked.
    """
    schema_version = get_process_version(settings)
    name = f"{process_name}-{socket.gethostname()}-{os.getpid()}-{new_id()}"
    rows = SchemaVersions(client)

    async def check() -> bool:
        try:
            async with client.deadline(CHECK_TIMEOUT_S):
                if not client.fence.reason:
                    await rows.put_process(name, schema_version, clock.time())
                state = await rows.get_state()
                client.fence.set("schema", state.blocked)
                if client.fence.reason:
                    await rows.remove_process(name)
        except (Unavailable, ConfigError) as exc:
            log.warning("schema.check_failed", error=exc.message)
            return False
        check_schema(state, schema_version, settings)
        if schema_version != state.version:
            log.debug(
                "schema.version_mismatched", schema_version=schema_version, tables=state.version
            )
        return True

    async def check_repeatedly(is_known: bool) -> None:
        while True:
            await client.fence.wait_changed(SCHEMA_CHECK_S if is_known else RETRY_S)
            try:
                is_known = await check()
            except ConfigError as exc:
                log.error("schema.version_rejected", problems=exc.problems)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    try:
        is_known = await check()
        if client.fence.reason:
            raise ConfigError(f"{client.fence.reason}; see `chatserver tenants list`")
        async with run_in_background(check_repeatedly(is_known), name="schema"):
            yield
    finally:
        with contextlib.suppress(Unavailable, ConfigError):
            async with client.deadline(CHECK_TIMEOUT_S):
                await rows.remove_process(name)
