"""`chatserver tenants export` and `chatserver tenants restore`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import with_options
from chatserver.domain.quantities import format_bytes
from chatserver.operations.tenants.tenant_cli import (
    HasRedis,
    Progress,
    UnitsMax,
    handle_tenant_errors,
    open_tenant_of,
    tenant_argument,
)

if TYPE_CHECKING:
    from chatserver.operations.tenants.export_files import Manifest


@click.command("export")
@tenant_argument
@handle_tenant_errors
@with_options
async def export_command(
    tenant: str,
    *,
    place: Annotated[str, "--to", "Target: a directory, or s3://bucket/prefix."],
    verify: Annotated[bool, "Only verify a finished export."] = False,
    allow_unpersisted: Annotated[
        bool,
        "Export even if the newest messages are only in Redis; they may be missing "
        "from the exported items.",
    ] = False,
    max_units: UnitsMax = None,
    has_redis: HasRedis = True,
) -> None:
    """Export all data of TENANT. If interrupted, run it again: it continues where it stopped.

    For a consistent export, run `tenants block` first.
    """
    from chatserver.operations.tenants.export import Export, verify_export
    from chatserver.operations.tenants.export_files import open_target
    from chatserver.telemetry.failpoints import arm_failpoint

    settings = prepare("tenants")
    arm_failpoint()
    with Progress(f"export {tenant}") as progress:
        if not verify:
            async with (
                open_tenant_of(settings, tenant, max_units, has_redis=has_redis) as work,
                open_target(place, settings.cold) as target,
            ):
                export = Export(work, target, progress)
                manifest = await export.run(is_partial_allowed=allow_unpersisted)
            _print(f"tenant {tenant} is exported", manifest)
            return
        async with open_target(place, settings.cold) as target:
            problems = await verify_export(target, progress)
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(1)
    click.echo("the export is complete and unchanged")


@click.command("restore")
@tenant_argument
@handle_tenant_errors
@with_options
async def restore_command(
    tenant: str,
    *,
    place: Annotated[str, "--from", "The export: a directory, or s3://bucket/prefix."],
    max_units: UnitsMax = None,
    has_redis: HasRedis = True,
) -> None:
    """Restore TENANT from an export. If interrupted, run it again: it continues where it stopped.

    The tenant must have no data, and is blocked during the restore. Redis must be empty; the server
    later fills it from DynamoDB.
    """
    from chatserver.operations.tenants.export_files import open_target
    from chatserver.operations.tenants.restoration import Restoration
    from chatserver.telemetry.failpoints import arm_failpoint

    settings = prepare("tenants")
    arm_failpoint()
    with Progress(f"restore {tenant}") as progress:
        async with (
            open_tenant_of(settings, tenant, max_units, has_redis=has_redis) as work,
            open_target(place, settings.cold) as target,
        ):
            restored = await Restoration(work, target, progress).run()
    _print(f"tenant {tenant} is restored", restored)


def _print(title: str, manifest: Manifest) -> None:
    counts = ", ".join(f"{count:,} {name}" for name, count in manifest.counts.items()) or "nothing"
    click.echo(f"{title}: {counts}; {format_bytes(manifest.object_bytes)} of objects")
