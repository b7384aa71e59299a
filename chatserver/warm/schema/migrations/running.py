"""Migration runner: runs pending migrations in order, under one lock.

::

    expand    create the index online ─► wait until it is active     ─► version = number
    fill      scan the table and repair items                        ─► version = number
    contract  check for older processes ─► reject them from now on
              ─► wait until none is left ─► scan the table
              ─► switch the TTL attribute, if it changes             ─► version = number

A contract never follows another step in the same run, and only runs on request. Resumable after a
crash at any point: each step checks the current state and continues from it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.errors import Conflict
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.schema.active_version import (
    LOOKS_MISSED_MAX,
    SCHEMA_CHECK_S,
    Process,
    SchemaRows,
    SchemaState,
)
from chatserver.warm.schema.migrations import MIGRATIONS
from chatserver.warm.schema.migrations.filling import PAGE_ITEMS, Filling, Report
from chatserver.warm.schema.migrations.onlineindex import (
    is_index_there,
    start_index,
    wait_for_index,
)
from chatserver.warm.schema.migrations.pace import Pace
from chatserver.warm.schema.migrations.planning import describe
from chatserver.warm.schema.migrations.state import MigrationRows, run_locked
from chatserver.warm.schema.migrations.steps import Migration
from chatserver.warm.schema.migrations.ttlswitch import switch_expiry

GONE_POLL_S = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. Rates are capacity units per second of the whole run; None: unlimited."""

    write_units_max: float | None = None
    read_units_max: float | None = None
    segments: int = 8
    is_contract: bool = False
    index_timeout_s: float = 86_400.0
    page_items: int = PAGE_ITEMS


class Migrations:
    """A run of `chatserver migrate up`."""

    def __init__(
        self,
        client: DynamoClient,
        settings: Warm,
        clock: Clock,
        report: Report,
        options: Options,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._report = report
        self._options = options
        self._migrations = migrations
        self._rows = MigrationRows(client, settings)
        self._schema = SchemaRows(client, settings)
        self._reads = Pace(options.read_units_max, clock)
        self._writes = Pace(options.write_units_max, clock)

    async def up(self, holder: str) -> SchemaState:
        """Run the pending migrations and return the resulting schema.

        Guarantees:
            Idempotent and resumable. Of two concurrent runs one waits, and fails if the other
            continues.

        Raises:
            Conflict: a contract is next, and processes of older releases are still running.
            Unavailable: DynamoDB does not respond, an index is not ready in time, or another run is
                in progress; run it again.
        """
        await run_locked(self._rows, holder, self._clock, self._work)
        return await self._schema.get_state()

    async def _work(self, turn: int) -> None:
        state = await self._schema.get_state()
        is_first = True
        for migration in self._migrations:
            if migration.number <= state.version:
                continue
            is_contract = migration.kind == "contract"
            if is_contract and not (self._options.is_contract and is_first):
                self._report.say(
                    f"{migration.number} {migration.name}: not done. It is a contract: after it, "
                    "processes that act by a schema before "
                    f"{migration.oldest} are refused. Run `chatserver migrate up --contract` when "
                    "nobody will go back to them"
                )
                return
            if self._options.is_contract and not is_contract:
                if is_first:
                    self._say_done_or_refuse(state.version, migration)
                return
            await self._do(migration, turn)
            state = SchemaState(migration.number, max(state.oldest, migration.oldest))
            await self._schema.raise_state(state)
            failpoint("migrate.after_version")
            self._report.say(f"{migration.number} {migration.name}: done")
            is_first = False
        if is_first:
            self._report.say(f"nothing to do: schema {state.version}")

    def _say_done_or_refuse(self, version: int, next_one: Migration) -> None:
        """Report that no contract is next: the last run may have crashed after completing it."""
        wanted = f"{next_one.number} {next_one.name}"
        for each in self._migrations:
            if each.number == version and each.kind == "contract":
                self._report.say(
                    f"{each.number} {each.name}: done already. {wanted} is next, without --contract"
                )
                return
        raise Conflict(f"{wanted} comes first: run `chatserver migrate up` without --contract")

    async def _do(self, migration: Migration, turn: int) -> None:
        if migration.kind == "contract":
            await self._refuse_older(migration)
        now = self._clock.time()
        progress = await self._rows.begin(migration.number, self._options.segments, now)
        if migration.index is not None:
            await self._make_index(migration)
        if migration.mend is not None:
            filling = Filling(
                self._client,
                self._settings,
                migration,
                turn,
                self._reads,
                self._writes,
                self._report,
                self._options.page_items,
            )
            description = await describe(self._client, migration.table.name_in(self._settings))
            segments = await filling.run(progress.segments, int(description.get("ItemCount", 0)))
            read, filled = sum(s.read for s in segments), sum(s.filled for s in segments)
            self._report.say(
                f"{migration.number} {migration.name}: {read} items read, {filled} filled, "
                f"{sum(s.read_units for s in segments):.1f} read units, "
                f"{sum(s.write_units for s in segments):.1f} write units"
            )
        if migration.expiry is not None:
            name = migration.table.name_in(self._settings)
            what = f"{migration.number} {migration.name}: {name}"
            async with self._client.deadline(self._options.index_timeout_s, what):
                say = self._report.say
                await switch_expiry(self._client, name, migration.expiry, say, what)
        await self._rows.finish(migration.number, self._clock.time())

    async def _make_index(self, migration: Migration) -> None:
        assert migration.index is not None
        name = migration.table.name_in(self._settings)
        what = f"{migration.number} {migration.name}: index {migration.index.name} of {name}"
        description = await describe(self._client, name)
        if not is_index_there(description, migration.index):
            await start_index(self._client, migration.table, migration.index, self._settings)
            failpoint("migrate.after_index_begun")
            self._report.say(f"{what}: begun")
        async with self._client.deadline(self._options.index_timeout_s, what):
            await wait_for_index(self._client, name, migration.index, self._report.say, what)

    async def _refuse_older(self, migration: Migration) -> None:
        """Check that no older process is running, reject new ones, and check again.

        Raises:
            Conflict: older processes are running.
        """
        state = await self._schema.get_state()
        if state.oldest < migration.oldest:
            if older := await self._list_older(migration):
                raise Conflict(
                    f"{migration.number} {migration.name}: processes of older releases are there, "
                    f"replace them first: {_names_of(older)}"
                )
            state = SchemaState(state.version, migration.oldest)
            await self._schema.raise_state(state)
            failpoint("migrate.after_barred")
        # A process starting at this moment detects it at its next check and stops.
        looks_s = SCHEMA_CHECK_S * (LOOKS_MISSED_MAX + 1)
        what = f"{migration.number} {migration.name}: older processes to end"
        async with self._client.deadline(looks_s, what):
            while older := await self._list_older(migration):
                self._report.say(f"waiting for older processes to end: {_names_of(older)}")
                await asyncio.sleep(GONE_POLL_S)

    async def _list_older(self, migration: Migration) -> list[Process]:
        processes = await self._schema.list_processes(self._clock.time())
        return [each for each in processes if each.acts_by < migration.oldest]


def _names_of(processes: Sequence[Process]) -> str:
    return ", ".join(f"{each.name} (schema {each.acts_by})" for each in processes[:10])


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


async def list_standings(
    client: DynamoClient,
    settings: Warm,
    state: SchemaState,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> list[MigrationStatus]:
    """Return the progress of each migration."""
    rows = MigrationRows(client, settings)
    found = []
    for migration in migrations:
        progress = await rows.find_progress(migration.number)
        if migration.number <= state.version:
            finished = 0 if progress is None else progress.finished_ms
            found.append(MigrationStatus(migration, "done", finished))
        elif progress is None:
            found.append(MigrationStatus(migration, "to do"))
        else:
            numbers = range(progress.segments if migration.mend else 0)
            parts = [await rows.get_segment(migration.number, n) for n in numbers]
            found.append(
                MigrationStatus(
                    migration,
                    "begun",
                    segments=len(parts),
                    segments_done=sum(part.is_done for part in parts),
                    read=sum(part.read for part in parts),
                    filled=sum(part.filled for part in parts),
                )
            )
    return found
