"""`chatserver encryption`: data keys for client-side encryption."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.command_options import handle_errors, with_options
from chatserver.config import Settings
from chatserver.domain.quantities import format_count
from chatserver.encryption.plain_texts import list_plain_texts
from chatserver.errors import ConfigError

if TYPE_CHECKING:
    from chatserver.encryption.key_ring import KeyRing
    from chatserver.warm.encryption.data_keys import DataKeys
    from workers.archive.reencryption import ReencryptionCounts

NO_TENANT = "default"  # tenant name of a deployment without CHAT_WARM_TENANT


@click.group()
def encryption() -> None:
    """Manage the data keys of this tenant, which encrypt message bodies."""


@encryption.command(name="new-key")
def new_key() -> None:
    """Generate a key, and print it as a line for a key file."""
    from chatserver.encryption.key_file import new_line

    click.echo(new_line())


@encryption.command()
@with_options
async def status() -> None:
    """List the data key versions, newest first. The newest active version encrypts new data."""
    settings = prepare("encryption")
    async with _open_keys(settings) as (rows, _):
        click.echo(f"provider: {settings.encryption.provider}", err=True)
        for message, fix in list_plain_texts(settings):
            click.echo(f"not encrypted: {message}; {fix}", err=True)
        keys = await rows.list_all()
        if not keys:
            click.echo("no data keys; nothing has been encrypted yet", err=True)
        for key in keys:
            state = "deleted" if key.wrapped is None else "active "
            detail = (
                f"wrapped by {key.wrapped.by}"
                if key.wrapped
                else f"at {_format_date(key.deleted_ms)}"
            )
            click.echo(f"{key.version}  {state}  {_format_date(key.created_ms)}  {detail}")


@encryption.command()
@with_options
async def rotate() -> None:
    """Create a new version of the data key.

    Running processes start to use it after at most half of CHAT_ENCRYPTION_CACHE_S. Older versions
    still decrypt existing bodies; `reencrypt` re-encrypts these with the new version.
    """
    async with _open_keys(prepare("encryption")) as (_, ring):
        created = await _require_ring(ring).create_version()
        click.echo(f"created version {created.version}")


@encryption.command()
@with_options
async def rewrap() -> None:
    """Wrap all data keys with the current KMS key or the first key of the key file.

    Message bodies are not re-encrypted. The command needs the previous KMS key or key file, which
    is not needed afterward. If the command is interrupted, run it again.
    """
    async with _open_keys(prepare("encryption")) as (rows, ring):
        count = 0
        for key in await rows.list_all():
            if key.wrapped is not None:
                rewrapped = await _require_ring(ring).rewrap(key)
                count += await rows.replace(key.version, key.wrapped, rewrapped)
        click.echo(f"wrapped {format_count(count, 'data key')}")


@encryption.command()
@handle_errors(is_resumable=True)
@with_options
async def reencrypt(
    *,
    max_write_units: Annotated[
        int | None,
        click.IntRange(1),
        "Maximum DynamoDB write units per second; default: unlimited.",
    ] = None,
) -> None:
    """Encrypt all stored message bodies with the current data key.

    This includes the archive, and bodies that were stored before encryption was enabled. The server
    can keep running. If the command is interrupted, run it again to continue.
    """
    from chatserver.cli.progress import open_report
    from chatserver.container.storage import open_storage_container
    from chatserver.domain.clock import SystemClock
    from chatserver.telemetry.failpoints import arm_failpoint
    from chatserver.warm.dynamo.rate_limiter import RateLimiter
    from workers.archive.reencryption import Reencryption

    settings = prepare("encryption")
    if settings.encryption.provider == "none":
        raise ConfigError(_NOT_SET)
    arm_failpoint()
    clock = SystemClock()
    async with open_storage_container(role="worker", settings=settings, clock=clock) as container:
        job = Reencryption(container, RateLimiter(max_write_units, clock))
        with open_report(clock) as report:
            report.begin("reencrypt", 0)

            def on_progress(counts: ReencryptionCounts) -> None:
                report.show(counts.items_read, _describe(counts))

            done = await job.run(on_progress)
            report.end()
    click.echo(_describe(done))
    if done.refused:
        raise click.ClickException(f"{done.refused} values could not be re-encrypted; see the log")


@encryption.command()
@with_options
def shred(
    *,
    tenant: Annotated[str, f"Value of CHAT_WARM_TENANT, or `{NO_TENANT}` if it is not set."],
    yes: Annotated[bool, "Do not ask for confirmation."] = False,
) -> None:
    """Delete all data keys of this tenant. Its encrypted bodies can never be read again.

    First stop its processes and delete its Redis data, which is not encrypted. A running process
    may use a cached key for CHAT_ENCRYPTION_CACHE_S. If the tenant writes again, it gets a new key.
    """
    settings = prepare("encryption")
    own = settings.warm.tenant or NO_TENANT
    if tenant != own:
        raise click.UsageError(f"--tenant: must be the tenant of this deployment, {own!r}")
    if not yes:
        question = (
            f"This permanently deletes the data keys of tenant {own}. Enter its name to confirm"
        )
        if click.prompt(question, err=True) != own:
            raise click.ClickException("the name does not match; nothing was deleted")

    async def shred_keys() -> int:
        async with _open_keys(settings) as (rows, _):
            return await rows.shred(int(datetime.datetime.now(datetime.UTC).timestamp() * 1000))

    click.echo(f"deleted {format_count(run(shred_keys()), 'data key')} of {own}")


_NOT_SET = "encryption.provider (CHAT_ENCRYPTION_PROVIDER): must be file or kms"


def _require_ring(ring: KeyRing | None) -> KeyRing:
    if ring is None:
        raise ConfigError(_NOT_SET)
    return ring


def _format_date(ms: int | None) -> str:
    return f"{datetime.datetime.fromtimestamp((ms or 0) / 1000, datetime.UTC):%Y-%m-%d %H:%M}"


@contextlib.asynccontextmanager
async def _open_keys(settings: Settings) -> AsyncIterator[tuple[DataKeys, KeyRing | None]]:
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.encryption.cipher_factory import make_key_ring
    from chatserver.warm.encryption.data_keys import DataKeys

    async with open_dynamodb(settings.warm) as dynamodb, contextlib.AsyncExitStack() as stack:
        client = dynamodb.for_feature("operations")
        ring = make_key_ring(client, settings.warm, stack)
        yield DataKeys(client), ring


def _describe(counts: ReencryptionCounts) -> str:
    return (
        f"{format_count(counts.items, 'item')}, "
        f"{format_count(counts.objects, 'long body', 'long bodies')} and "
        f"{format_count(counts.segments, 'segment')} encrypted, "
        f"{counts.write_units:.0f} write units"
    )
