"""`chatserver keys`: create, list, rotate and revoke API keys of the host application."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from chatserver.cli.process_setup import prepare, run
from chatserver.config import Settings
from chatserver.errors import ClientError

if TYPE_CHECKING:
    from chatserver.service.access.api_keys import ApiKeys


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys for the host application."""


@keys.command()
@click.option("--name", required=True, help="Name that describes what the key is for.")
@click.option(
    "--scope", "scopes", multiple=True, required=True, help="Scope of the key; can be repeated."
)
def create(name: str, scopes: tuple[str, ...]) -> None:
    """Create a key and print it. It is not stored, and cannot be shown again."""

    async def work(api_keys: ApiKeys) -> None:
        key, text = await api_keys.create(name, scopes)
        click.echo(f"key {key}; it is shown only once:", err=True)
        click.echo(text)

    _run_with_keys(work)


@keys.command(name="list")
def list_keys() -> None:
    """List all keys: id, state, creation date, scopes, name."""

    async def work(api_keys: ApiKeys) -> None:
        rows = await api_keys.list_all()
        if not rows:
            click.echo("no keys; create one with `chatserver keys create`", err=True)
        for row in rows:
            created = datetime.datetime.fromtimestamp(row.created_ms / 1000, datetime.UTC)
            state = "active " if row.ended_ms is None else "revoked"
            scopes = ",".join(sorted(row.scopes))
            click.echo(f"{row.key}  {state}  {created:%Y-%m-%d}  {scopes}  {row.name}")

    _run_with_keys(work)


@keys.command()
@click.argument("key")
@click.option(
    "--overlap",
    "overlap_s",
    default=3600,
    show_default=True,
    help="Seconds for which the old secret stays valid.",
)
def rotate(key: str, overlap_s: int) -> None:
    """Create a new secret for a key and print it. The old one stays valid for --overlap seconds."""

    async def work(api_keys: ApiKeys) -> None:
        click.echo(await api_keys.rotate(key, overlap_s))

    _run_with_keys(work)


@keys.command()
@click.argument("key")
def revoke(key: str) -> None:
    """Revoke a key: it is rejected within seconds."""

    async def work(api_keys: ApiKeys) -> None:
        await api_keys.revoke(key)
        click.echo(f"revoked {key}")

    _run_with_keys(work)


def _run_with_keys(work: Callable[[ApiKeys], Awaitable[None]]) -> None:
    settings = prepare("keys")
    try:
        run(_with_keys(settings, work))
    except ClientError as exc:
        raise click.UsageError(exc.message) from None


async def _with_keys(settings: Settings, work: Callable[[ApiKeys], Awaitable[None]]) -> None:
    from chatserver.container.storage import make_api_keys
    from chatserver.domain.clock import SystemClock
    from chatserver.warm.dynamo.client import open_dynamodb

    async with open_dynamodb(settings.warm) as dynamodb:
        await work(make_api_keys(dynamodb, settings, SystemClock()))
