"""`chatserver migrate`: online migration of the DynamoDB tables to the newest schema."""

from __future__ import annotations

import datetime
import os
import socket
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import WriteUnitsMax, handle_errors, with_options
from chatserver.errors import Conflict

if TYPE_CHECKING:
    from chatserver.warm.schema.active_version import SchemaProcess, SchemaState
    from chatserver.warm.schema.migrations.cost_estimate import MigrationEstimate
    from chatserver.warm.schema.migrations.runner import MigrationStatus


@click.group()
def migrate() -> None:
    """Migrate the DynamoDB tables to the newest schema, while they are in use."""


@migrate.command()
@with_options
async def status() -> None:
    """Show all migrations, and the schema version that each process uses."""
    from chatserver.domain.clock import SystemClock
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.schema.active_version import SchemaVersions
    from chatserver.warm.schema.migrations import MIGRATIONS
    from chatserver.warm.schema.migrations.progress_and_lock import MigrationProgress
    from chatserver.warm.schema.migrations.runner import list_statuses

    settings = prepare("migrate")
    now = SystemClock().time()
    async with open_dynamodb(settings.warm) as dynamodb:
        client = dynamodb.for_feature("migrate")
        rows = SchemaVersions(client)
        state = await rows.get_state()
        statuses = await list_statuses(client, settings.warm, state, MIGRATIONS)
        processes = await rows.list_processes(now)
        holder = await MigrationProgress(client).find_holder(now)
    for line in status_lines(state, statuses, processes, holder, now):
        click.echo(line)


@migrate.command()
@with_options
async def plan(
    *,
    max_write_units: Annotated[
        int | None,
        click.IntRange(1),
        "Write units per second that `up` may use; if set, the plan includes the duration.",
    ] = None,
) -> None:
    """Estimate the cost of pending migrations. Reads a sample; writes nothing."""
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.schema.active_version import SchemaVersions
    from chatserver.warm.schema.migrations import MIGRATIONS
    from chatserver.warm.schema.migrations.cost_estimate import estimate

    settings = prepare("migrate")
    async with open_dynamodb(settings.warm) as dynamodb:
        client = dynamodb.for_feature("migrate")
        state = await SchemaVersions(client).get_state()
        pending = [migration for migration in MIGRATIONS if migration.number > state.version]
        estimates = await estimate(client, settings.warm, pending)
    for line in plan_lines(estimates, max_write_units):
        click.echo(line)


@migrate.command()
@handle_errors(Conflict, is_resumable=True)
@with_options
async def up(
    *,
    max_write_units: WriteUnitsMax = None,
    max_read_units: Annotated[
        int | None, click.IntRange(1), "Maximum read capacity units per second; default: unlimited."
    ] = None,
    segments: Annotated[
        int, click.IntRange(1, 1000), "Number of table segments to scan in parallel."
    ] = 8,
    page_items: Annotated[
        int, click.IntRange(1, 1000), "Number of items between two checkpoints."
    ] = 200,
    contract: Annotated[
        int | None,
        click.IntRange(1),
        {"metavar": "NUMBER"},
        "Run only the contract migration with this number, which locks out old releases.",
    ] = None,
) -> None:
    """Run the pending migrations. If interrupted, run it again: it continues where it stopped."""
    from chatserver.cli.progress import open_report
    from chatserver.domain.clock import SystemClock
    from chatserver.telemetry.failpoints import arm_failpoint
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.schema.migrations import MIGRATIONS
    from chatserver.warm.schema.migrations.runner import MigrationOptions, MigrationRunner

    settings = prepare("migrate")
    arm_failpoint()
    clock = SystemClock()
    async with open_dynamodb(settings.warm) as dynamodb:
        with open_report(clock) as report:
            runner = MigrationRunner(
                dynamodb.for_feature("migrate"),
                settings.warm,
                clock=clock,
                report=report,
                options=MigrationOptions(
                    write_units_max=max_write_units,
                    read_units_max=max_read_units,
                    segments=segments,
                    contract=contract,
                    page_items=page_items,
                ),
                migrations=MIGRATIONS,
            )
            state = await runner.run(f"{socket.gethostname()}-{os.getpid()}")
    click.echo(f"schema {state.version}")


def status_lines(
    state: SchemaState,
    statuses: list[MigrationStatus],
    processes: list[SchemaProcess],
    holder: str | None,
    now: float,
) -> list[str]:
    """Return the lines that `status` prints. `now` is in Unix seconds."""
    newest = max((each.migration.number for each in statuses), default=state.version)
    lines = [f"schema {state.version} of {newest}; processes need schema {state.oldest} or newer"]
    for progress in statuses:
        migration, detail = progress.migration, progress.migration.why
        if progress.state == "begun" and progress.segments:
            detail = (
                f"{progress.segments_done} of {progress.segments} segments, "
                f"{progress.read} items read, {progress.filled} filled"
            )
        elif progress.finished_ms:
            finished = datetime.datetime.fromtimestamp(progress.finished_ms / 1000, datetime.UTC)
            detail += f" ({finished:%Y-%m-%d %H:%M} UTC)"
        lines.append(
            f"{migration.number:>3}  {migration.name:<16} {migration.kind:<9} {progress.state:<6} "
            f"{detail}"
        )
    lines += [
        f"process {process.name}: schema {process.schema_version}, seen "
        f"{max(0, round(now - process.seen_ms / 1000))} s ago"
        for process in processes
    ]
    lines.append(f"running: {holder}" if holder else "no `migrate up` is running")
    return lines


def plan_lines(estimates: list[MigrationEstimate], max_write_units: int | None) -> list[str]:
    """Return the lines that `plan` prints."""
    if not estimates:
        return ["nothing to do"]
    lines = []
    for estimate in estimates:
        migration = estimate.migration
        lines.append(f"{migration.number} {migration.name} ({migration.kind}): {migration.why}")
        if migration.index is not None:
            lines.append(
                f"    index {migration.index.name} of {migration.table.name}: DynamoDB reads "
                f"{estimate.items} items free of charge and uses one write unit per item with "
                f"`{migration.index.key.partition}`"
            )
        elif migration.repair is None:
            lines.append("    no units: existing items do not change")
        else:
            basis = "all read" if estimate.is_exact else f"from a sample of {estimate.sampled}"
            duration = ""
            if max_write_units:
                duration_s = estimate.write_units / max_write_units
                duration = f", {duration_s:.0f} s at {max_write_units} a second"
            lines.append(
                f"    {estimate.items} items, {estimate.bytes} bytes, "
                f"{estimate.share:.1%} to write ({basis})"
            )
            lines.append(
                f"    about {estimate.read_units:.0f} read units, "
                f"{estimate.write_units:.0f} write units{duration}"
            )
    return lines
