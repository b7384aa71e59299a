"""Migration runner: runs pending migrations in order, under one lock.

::

    expand    create the index online ─► wait until it is active     ─► version = number
    fill      scan the table and repair items                        ─► version = number
    contract  check for older processes ─► reject them from now on
              ─► wait until none is left ─► scan the table
              ─► switch the TTL attribute, if it changes             ─► version = number

A contract runs only if it is requested by number, and never together with other migrations. After a
crash at any point, a run can be restarted: each step continues from the current state. If the
requested contract is already complete, a run does not continue with the next one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import attrs

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.errors import Conflict
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.rate_limiter import RateLimiter
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.active_version import (
    HEARTBEATS_MISSED_MAX,
    SCHEMA_CHECK_S,
    SchemaProcess,
    SchemaState,
    SchemaVersions,
)
from chatserver.warm.schema.migrations.backfill import PAGE_ITEMS, Backfill, MigrationReport
from chatserver.warm.schema.migrations.migration import Migration
from chatserver.warm.schema.migrations.online_changes import (
    change_ttl_attribute,
    describe_table,
    has_index,
    start_index,
    wait_for_index,
)
from chatserver.warm.schema.migrations.progress_and_lock import MigrationProgress, run_locked
from chatserver.warm.schema.tables import Index

OLDER_POLL_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationOptions:
    """Options of a run. Rates are capacity units per second for the whole run; None: unlimited.

    `contract`: the number of the contract to run; None: all other pending migrations.
    """

    write_units_max: float | None = None
    read_units_max: float | None = None
    segments: int = 8
    contract: int | None = None
    index_timeout_s: float = 86_400.0
    page_items: int = PAGE_ITEMS


@attrs.define(eq=False, repr=False)
class MigrationRunner:
    """A run of `chatserver migrate up`."""

    _client: DynamoClient
    _settings: Warm
    _clock: Clock = attrs.field(kw_only=True)
    _report: MigrationReport = attrs.field(kw_only=True)
    _options: MigrationOptions = attrs.field(kw_only=True)
    _migrations: Sequence[Migration] = attrs.field(kw_only=True)
    _rows: MigrationProgress = attrs.field(init=False)
    _schema: SchemaVersions = attrs.field(init=False)
    _reads: RateLimiter = attrs.field(init=False)
    _writes: RateLimiter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rows = MigrationProgress(self._client)
        self._schema = SchemaVersions(self._client)
        self._reads = RateLimiter(self._options.read_units_max, self._clock)
        self._writes = RateLimiter(self._options.write_units_max, self._clock)

    async def run(self, holder: str) -> SchemaState:
        """Run the pending migrations and return the resulting schema.

        Guarantees:
            Idempotent and resumable. A run waits for a concurrent run, and fails if that run does
            not end in time.

        Raises:
            Conflict: a contract was requested, but no contract has this number, processes of older
                releases are running, or another migration must run first.
            Unavailable: DynamoDB does not respond, an index is not ready in time, or another run is
                in progress; run it again.
        """
        await run_locked(self._rows, holder, self._clock, self._run_pending)
        return await self._schema.get_state()

    async def _run_pending(self, token: int) -> None:
        state = await self._schema.get_state()
        if self._options.contract is not None:
            await self._run_contract(self._options.contract, state, token)
            return
        pending = [candidate for candidate in self._migrations if candidate.number > state.version]
        if not pending:
            self._report.print_line(f"nothing to do: schema {state.version}")
        for migration in pending:
            if migration.kind == "contract":
                self._report.print_line(
                    f"{migration.title}: not done. It is a contract: after it, processes with a "
                    f"schema version below {migration.oldest} are rejected. Run `chatserver "
                    f"migrate up --contract {migration.number}` when they are no longer needed"
                )
                return
            state = await self._run_migration(migration, state, token)

    async def _run_contract(self, number: int, state: SchemaState, token: int) -> None:
        numbered = {candidate.number: candidate for candidate in self._migrations}
        migration = numbered.get(number)
        if migration is None or migration.kind != "contract":
            contracts = [str(key) for key in numbered if numbered[key].kind == "contract"]
            raise Conflict(
                f"migration {number} is not a contract; contracts: {', '.join(contracts) or 'none'}"
            )
        if number <= state.version:
            self._report.print_line(f"{migration.title}: done already")
            return
        first = min(key for key in numbered if key > state.version)
        if first != number:
            option = f" --contract {first}" if numbered[first].kind == "contract" else ""
            raise Conflict(
                f"{numbered[first].title} must run first: run `chatserver migrate up{option}`"
            )
        await self._run_migration(migration, state, token)

    async def _run_migration(
        self, migration: Migration, state: SchemaState, token: int
    ) -> SchemaState:
        if migration.kind == "contract":
            await self._reject_older(migration)
        started = await self._rows.begin(
            migration.number, self._options.segments, self._clock.time()
        )
        name = migration.table.name_in(self._settings)
        if migration.index is not None:
            await self._create_index(migration, migration.index, name)
        if migration.repair is not None:
            await self._backfill(migration, token, started.segments)
        if migration.expiry is not None:
            subject = f"{migration.title}: {name}"
            async with self._client.deadline(self._options.index_timeout_s, subject):
                await change_ttl_attribute(
                    self._client, name, migration.expiry, self._report.print_line, subject
                )
        await self._rows.finish(migration.number, self._clock.time())
        state = SchemaState(migration.number, max(state.oldest, migration.oldest))
        await self._schema.raise_state(state)
        failpoint("migrate.after_version")
        self._report.print_line(f"{migration.title}: done")
        return state

    async def _create_index(self, migration: Migration, index: Index, name: str) -> None:
        subject = f"{migration.title}: index {index.name} of {name}"
        if not has_index(await describe_table(self._client, name), index):
            await start_index(self._client, migration.table, index, self._settings)
            failpoint("migrate.after_index_begun")
            self._report.print_line(f"{subject}: started")
        async with self._client.deadline(self._options.index_timeout_s, subject):
            await wait_for_index(self._client, name, index, self._report.print_line, subject)

    async def _backfill(self, migration: Migration, token: int, segments: int) -> None:
        table = Table(self._client, migration.table)
        backfill = Backfill(
            table=table,
            migration=migration,
            rows=self._rows,
            token=token,
            reads=self._reads,
            writes=self._writes,
            report=self._report,
            page_items=self._options.page_items,
        )
        items = int((await describe_table(self._client, table.name)).get("ItemCount", 0))
        done = await backfill.run(segments, items)
        self._report.print_line(
            f"{migration.title}: {sum(s.read for s in done)} items read, "
            f"{sum(s.filled for s in done)} filled, "
            f"{sum(s.read_units for s in done):.1f} read units, "
            f"{sum(s.write_units for s in done):.1f} write units"
        )

    async def _reject_older(self, migration: Migration) -> None:
        """From now on, reject processes with an older schema version; wait until none is running.

        Raises:
            Conflict: older processes were already running.
        """
        state = await self._schema.get_state()
        if state.oldest < migration.oldest:
            if older := await self._list_older(migration):
                raise Conflict(
                    f"{migration.title}: processes of older releases are running; replace them "
                    f"first: {_format_processes(older)}"
                )
            await self._schema.raise_state(SchemaState(state.version, migration.oldest))
            failpoint("migrate.after_older_rejected")
        # An older process that is just starting stops at its next check of the schema version.
        timeout_s = SCHEMA_CHECK_S * (HEARTBEATS_MISSED_MAX + 1)
        subject = f"{migration.title}: older processes to end"
        async with self._client.deadline(timeout_s, subject):
            while older := await self._list_older(migration):
                self._report.print_line(
                    f"waiting for older processes to end: {_format_processes(older)}"
                )
                await asyncio.sleep(OLDER_POLL_S)

    async def _list_older(self, migration: Migration) -> list[SchemaProcess]:
        processes = await self._schema.list_processes(self._clock.time())
        return [process for process in processes if process.schema_version < migration.oldest]


def _format_processes(processes: Sequence[SchemaProcess]) -> str:
    return ", ".join(
        f"{process.name} (schema {process.schema_version})" for process in processes[:10]
    )


@dataclasses.dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Progress of a migration, as shown by `status`."""

    migration: Migration
    state: str
    finished_ms: int = 0
    segments: int = 0
    segments_done: int = 0
    read: int = 0
    filled: int = 0


async def list_statuses(
    client: DynamoClient,
    settings: Warm,
    state: SchemaState,
    migrations: Sequence[Migration],
) -> list[MigrationStatus]:
    rows = MigrationProgress(client)
    statuses = []
    for migration in migrations:
        progress = await rows.find_progress(migration.number)
        if migration.number <= state.version:
            finished = 0 if progress is None else progress.finished_ms
            statuses.append(MigrationStatus(migration, "done", finished))
        elif progress is None:
            statuses.append(MigrationStatus(migration, "to do"))
        else:
            numbers = range(progress.segments if migration.repair else 0)
            parts = [await rows.get_segment(migration.number, n) for n in numbers]
            statuses.append(
                MigrationStatus(
                    migration,
                    "begun",
                    segments=len(parts),
                    segments_done=sum(part.is_done for part in parts),
                    read=sum(part.read for part in parts),
                    filled=sum(part.filled for part in parts),
                )
            )
    return statuses
