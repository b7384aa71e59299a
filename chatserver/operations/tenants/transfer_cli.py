"""`chatserver tenants export` and `chatserver tenants restore`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.config import Settings
from chatserver.domain.quantities import format_bytes
from chatserver.operations.tenants.tenant_cli import (
    Progress,
    handle_errors,
    open_tenant_of,
    redis_option,
    tenant_argument,
    units_option,
)

if TYPE_CHECKING:
    from chatserver.operations.tenants.export_files import Manifest


@click.command("export")
@tenant_argument
@click.option("--to", "place", required=True, help="Target: a directory, or s3://bucket/prefix.")
@click.option("--verify", is_flag=True, help="Only verify a finished export.")
@click.option(
    "--allow-unpersisted",
    is_flag=True,
    help="Export even if the newest messages are only in Redis; they may be missing "
    "from the exported items.",
)
@units_option
@redis_option
def export_command(
    tenant: str,
    place: str,
    verify: bool,
    allow_unpersisted: bool,
    max_units: int | None,
    has_redis: bool,
) -> None:
    """Export all data of TENANT. If interrupted, run it again: it continues where it stopped.

    For a consistent export, run `tenants block` first.
    """
    settings = prepare("tenants")
    from chatserver.telemetry.failpoints import arm_failpoint

    arm_failpoint()
    with handle_errors(), Progress(f"export {tenant}") as progress:
        if verify:
            problems = run(_verify(settings, place, progress))
        else:
            work = _export(
                settings,
                tenant,
                place,
                progress,
                is_partial_allowed=allow_unpersisted,
                max_units=max_units,
                has_redis=has_redis,
            )
            _print(f"tenant {tenant} is exported", run(work))
            return
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(1)
    click.echo("the export is complete and unchanged")


async def _export(
    settings: Settings,
    tenant: str,
    place: str,
    progress: Progress,
    *,
    is_partial_allowed: bool,
    max_units: int | None,
    has_redis: bool,
) -> Manifest:
    from chatserver.operations.tenants.export import Export
    from chatserver.operations.tenants.export_files import open_target

    async with (
        open_tenant_of(settings, tenant, max_units=max_units, has_redis=has_redis) as work,
        open_target(place, settings.cold) as target,
    ):
        export = Export(work, target, progress)
        return await export.run(is_partial_allowed=is_partial_allowed)


async def _verify(settings: Settings, place: str, progress: Progress) -> list[str]:
    from chatserver.operations.tenants.export import verify_export
    from chatserver.operations.tenants.export_files import open_target

    async with open_target(place, settings.cold) as target:
        return await verify_export(target, progress)


@click.command("restore")
@tenant_argument
@click.option(
    "--from", "place", required=True, help="The export: a directory, or s3://bucket/prefix."
)
@units_option
@redis_option
def restore_command(tenant: str, place: str, max_units: int | None, has_redis: bool) -> None:
    """Restore TENANT from an export. If interrupted, run it again: it continues where it stopped.

    The tenant must have no data, and is blocked during the restore. Redis must be empty; the server
    later fills it from DynamoDB.
    """
    settings = prepare("tenants")
    from chatserver.telemetry.failpoints import arm_failpoint

    arm_failpoint()
    with handle_errors(), Progress(f"restore {tenant}") as progress:
        restored = run(
            _restore(settings, tenant, place, progress, max_units=max_units, has_redis=has_redis)
        )
    _print(f"tenant {tenant} is restored", restored)


async def _restore(
    settings: Settings,
    tenant: str,
    place: str,
    progress: Progress,
    *,
    max_units: int | None,
    has_redis: bool,
) -> Manifest:
    from chatserver.operations.tenants.export_files import open_target
    from chatserver.operations.tenants.restoration import Restoration

    async with (
        open_tenant_of(settings, tenant, max_units=max_units, has_redis=has_redis) as work,
        open_target(place, settings.cold) as target,
    ):
        return await Restoration(work, target, progress).run()


def _print(title: str, manifest: Manifest) -> None:
    counts = ", ".join(f"{count:,} {name}" for name, count in manifest.counts.items()) or "nothing"
    click.echo(f"{title}: {counts}; {format_bytes(manifest.object_bytes)} of objects")
