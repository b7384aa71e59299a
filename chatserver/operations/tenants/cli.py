"""`chatserver tenants`: list, measure, block, export, delete, audit and restore tenants.

Exit codes: 0 success, 1 some tenant data is left or a store does not respond, 2 invalid option.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.command_options import with_options
from chatserver.domain.quantities import format_bytes
from chatserver.errors import Conflict, NotFound
from chatserver.operations.tenants.tenant_cli import (
    HasRedis,
    TenantProgress,
    UnitsMax,
    handle_tenant_errors,
    open_tenant_of,
    tenant_argument,
)
from chatserver.operations.tenants.tenant_list_cli import list_command, measure_command

if TYPE_CHECKING:
    from chatserver.operations.tenants.export_files import Manifest
    from chatserver.operations.tenants.tenant_audit import StoreAudit
    from chatserver.operations.tenants.tenant_stores import OpenTenant
    from chatserver.warm.tenant_states import State

SHOWN_MAX: Final = 20  # maximum remaining items, objects or keys printed per store


@click.group()
def tenants() -> None:
    """Manage the tenants that share the tables and the bucket (docs/tenants.md)."""


for command in (list_command, measure_command):
    tenants.add_command(command)


@tenants.command()
@tenant_argument
@handle_tenant_errors
@with_options
async def block(
    tenant: str,
    *,
    reason: Annotated[str, "Reason that is shown to clients."] = "by the operator",
    has_redis: HasRedis = True,
) -> None:
    """Block TENANT: close its sessions, refuse its requests, stop its workers."""
    from chatserver.operations.tenants import tenant_block as blocks

    settings = prepare("tenants")
    with TenantProgress("block") as progress:
        async with open_tenant_of(settings, tenant, has_redis=has_redis) as work:
            record = await work.records.find(tenant)
            if record is not None and record.state in {"deleting", "deleted", "restoring"}:
                raise Conflict(f"tenant {tenant} is {record.state}")
            await _require_tenant(work)
            await blocks.block(work, reason)
            await _record(work, "blocked")
            await blocks.wait_for_processes(work, lambda text: progress(text, 0))
    click.echo(f"tenant {tenant} is blocked")


@tenants.command()
@tenant_argument
@handle_tenant_errors
@with_options
async def unblock(
    tenant: str,
    *,
    deleted: Annotated[
        bool, "Also unblock a deleted tenant, so that its name can be used again."
    ] = False,
    has_redis: HasRedis = True,
) -> None:
    """Unblock TENANT; its running processes resume within seconds."""
    from chatserver.operations.tenants import tenant_block as blocks

    async with open_tenant_of(prepare("tenants"), tenant, has_redis=has_redis) as work:
        record = await work.records.find(tenant)
        allowed = {"active", "blocked"} | ({"deleted"} if deleted else set())
        if record is not None and record.state not in allowed:
            raise Conflict(f"tenant {tenant} is {record.state}; see docs/tenants.md")
        await blocks.unblock(work)
        await _record(work, "active")
    click.echo(f"tenant {tenant} is not blocked")


async def _record(work: OpenTenant, state: State) -> None:
    record = await work.records.find(work.tenant)
    await work.record(state, receipt="" if record is None else record.receipt)


async def _require_tenant(work: OpenTenant) -> None:
    """Check that a tenant has data, to detect a mistyped name. Raises NotFound."""
    if work.redis is not None and (await work.redis.get_owner()).tenant is not None:
        return
    if await work.records.find(work.tenant) or await work.schema.is_used():
        return
    async for _ in work.objects.iter_pages():
        return
    raise NotFound(
        f"tenant {work.tenant} has no data; see `chatserver tenants list`, or use --force"
    )


@tenants.command()
@tenant_argument
@handle_tenant_errors
@with_options
def delete(
    tenant: str,
    *,
    confirm: Annotated[
        str | None, "The tenant's name, as confirmation. In a terminal, you are prompted for it."
    ] = None,
    force: Annotated[bool, "Delete even if the tenant seems to have no data."] = False,
    again: Annotated[bool, "Delete again, even if the tenant has a receipt."] = False,
    receipt: Annotated[Path | None, "Also write the receipt to this file."] = None,
    max_units: UnitsMax = None,
    has_redis: HasRedis = True,
) -> None:
    """Delete TENANT from Redis, DynamoDB and S3, and print a receipt. There is no undo.

    If the command is interrupted, run it again: it continues where it stopped.
    """
    settings = prepare("tenants")
    if confirm is None and sys.stdin.isatty():
        click.echo(f"This deletes all data of tenant {tenant} and can't be undone.", err=True)
        confirm = click.prompt("Enter the tenant's name to delete it", err=True)
    if confirm != tenant:
        raise click.UsageError(f"--confirm: must be the tenant's name, {tenant}")
    from chatserver.operations.tenants.deletion import Deletion
    from chatserver.telemetry.failpoints import arm_failpoint

    arm_failpoint()

    async def delete_tenant() -> dict[str, Any]:
        with TenantProgress(f"delete {tenant}") as progress:
            async with open_tenant_of(settings, tenant, max_units, has_redis=has_redis) as work:
                if not force:
                    await _require_tenant(work)
                return await Deletion(work, progress).run(is_again=again)

    text = json.dumps(run(delete_tenant()), indent=2)
    if receipt is not None:
        receipt.write_text(f"{text}\n", "utf-8")
    click.echo(text)


@tenants.command()
@tenant_argument
@handle_tenant_errors
@with_options
async def receipt(tenant: str) -> None:
    """Print the deletion receipt of TENANT."""
    async with open_tenant_of(prepare("tenants"), tenant, has_redis=False) as work:
        record = await work.records.find(tenant)
    if record is None or not record.receipt:
        raise NotFound(f"tenant {tenant} has no deletion receipt")
    click.echo(json.dumps(json.loads(record.receipt), indent=2))


@tenants.command()
@tenant_argument
@handle_tenant_errors
@with_options
async def audit(
    tenant: str,
    *,
    texts: Annotated[
        tuple[str, ...], "--find", "Also search other tenants' data for this text; can be repeated."
    ] = (),
    find_file: Annotated[
        Path | None,
        click.Path(exists=True, dir_okay=False, path_type=Path),
        "Also search for each string in this file, one per line (at most 1,000).",
    ] = None,
    contents: Annotated[bool, "Also search the contents of other tenants' objects."] = False,
    is_json: Annotated[bool, "Print one JSON object per store."] = False,
    max_units: UnitsMax = None,
    has_redis: HasRedis = True,
) -> None:
    """Check that no data of TENANT is left, and list remaining data. Exit code 1: data is left.

    Scans all tables, including the items of other tenants.
    """
    from chatserver.operations.tenants.tenant_audit import audit_tenant, parse_texts

    settings = prepare("tenants")
    searched = [*texts, *(find_file.read_text("utf-8").splitlines() if find_file else ())]
    with TenantProgress(f"audit {tenant}") as progress:
        async with open_tenant_of(settings, tenant, max_units, has_redis=has_redis) as work:
            results = await audit_tenant(
                work, texts=parse_texts(searched), has_contents=contents, report=progress
            )
    for result in results:
        click.echo(_format(result, is_json=is_json))
    if not has_redis:
        click.echo("redis: not checked", err=True)
    if any(store_result.left for store_result in results):
        sys.exit(1)


def _format(store: StoreAudit, *, is_json: bool) -> str:
    if is_json:
        return json.dumps({"store": store.store, "checked": store.checked, "left": store.left})
    if not store.left:
        return f"{store.store}: nothing is left ({store.checked:,} checked)"
    lines = [
        f"{store.store}: data is left",
        *(f"    {name}" for name in store.left[:SHOWN_MAX]),
    ]
    if len(store.left) > SHOWN_MAX:
        lines.append(f"    and more ({len(store.left)} listed with --json)")
    return "\n".join(lines)


@tenants.command("export")
@tenant_argument
@handle_tenant_errors
@with_options
async def export(
    tenant: str,
    *,
    location: Annotated[str, "--to", "Target: a directory, or s3://bucket/prefix."],
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
    from chatserver.operations.tenants.export import TenantExport, verify_export
    from chatserver.operations.tenants.export_files import open_target
    from chatserver.telemetry.failpoints import arm_failpoint

    settings = prepare("tenants")
    arm_failpoint()
    with TenantProgress(f"export {tenant}") as progress:
        if not verify:
            async with (
                open_tenant_of(settings, tenant, max_units, has_redis=has_redis) as work,
                open_target(location, settings.cold) as target,
            ):
                export = TenantExport(work, target, progress)
                manifest = await export.run(is_partial_allowed=allow_unpersisted)
            _print_transfer(f"tenant {tenant} is exported", manifest)
            return
        async with open_target(location, settings.cold) as target:
            problems = await verify_export(target, progress)
    for problem in problems:
        click.echo(problem)
    if problems:
        sys.exit(1)
    click.echo("the export is complete and unchanged")


@tenants.command("restore")
@tenant_argument
@handle_tenant_errors
@with_options
async def restore(
    tenant: str,
    *,
    location: Annotated[str, "--from", "The export: a directory, or s3://bucket/prefix."],
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
    with TenantProgress(f"restore {tenant}") as progress:
        async with (
            open_tenant_of(settings, tenant, max_units, has_redis=has_redis) as work,
            open_target(location, settings.cold) as target,
        ):
            restored = await Restoration(work, target, progress).run()
    _print_transfer(f"tenant {tenant} is restored", restored)


def _print_transfer(title: str, manifest: Manifest) -> None:
    counts = ", ".join(f"{count:,} {name}" for name, count in manifest.counts.items()) or "nothing"
    click.echo(f"{title}: {counts}; {format_bytes(manifest.object_bytes)} of objects")
