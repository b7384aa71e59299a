"""`chatserver keys`: create, list, rotate and revoke API keys of the host application."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare
from chatserver.command_options import handle_errors, with_options
from chatserver.errors import ClientError

if TYPE_CHECKING:
    from chatserver.service.access.api_keys import ApiKeys


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys for the host application."""


@contextlib.asynccontextmanager
async def _open_keys() -> AsyncIterator[ApiKeys]:
    from chatserver.container.storage import make_api_keys
    from chatserver.domain.clock import SystemClock
    from chatserver.warm.dynamo.connections import open_dynamodb

    settings = prepare("keys")
    with handle_errors(usage=(ClientError,)):
        async with open_dynamodb(settings.warm) as dynamodb:
            yield make_api_keys(dynamodb, settings, SystemClock())


@keys.command()
@with_options
async def create(
    *,
    name: Annotated[str, "Name that describes what the key is for."],
    scopes: Annotated[tuple[str, ...], "--scope", "Scope of the key; can be repeated."],
) -> None:
    """Create a key and print it. It is not stored, and cannot be shown again."""
    async with _open_keys() as api_keys:
        key, text = await api_keys.create(name, scopes)
    click.echo(f"key {key}; it is shown only once:", err=True)
    click.echo(text)


@keys.command(name="list")
@with_options
async def list_keys() -> None:
    """List all keys: id, state, creation date, scopes, name."""
    async with _open_keys() as api_keys:
        rows = await api_keys.list_all()
    if not rows:
        click.echo("no keys; create one with `chatserver keys create`", err=True)
    for row in rows:
        created = datetime.datetime.fromtimestamp(row.created_ms / 1000, datetime.UTC)
        state = "active " if row.ended_ms is None else "revoked"
        scopes = ",".join(sorted(row.scopes))
        click.echo(f"{row.key}  {state}  {created:%Y-%m-%d}  {scopes}  {row.name}")


@keys.command()
@click.argument("key")
@with_options
async def rotate(
    key: str,
    *,
    overlap_s: Annotated[int, "--overlap", "Seconds for which the old secret stays valid."] = 3600,
) -> None:
    """Create a new secret for a key and print it. The old one stays valid for --overlap seconds."""
    async with _open_keys() as api_keys:
        click.echo(await api_keys.rotate(key, overlap_s))


@keys.command()
@click.argument("key")
@with_options
async def revoke(key: str) -> None:
    """Revoke a key: it is rejected within seconds."""
    async with _open_keys() as api_keys:
        await api_keys.revoke(key)
    click.echo(f"revoked {key}")
