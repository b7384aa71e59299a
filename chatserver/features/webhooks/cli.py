"""`chatserver webhooks`: list and replay dead letters."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated

import click

from chatserver.cli.process_setup import prepare, require_redis
from chatserver.command_options import with_options
from chatserver.config import Settings
from chatserver.domain.quantities import format_count
from chatserver.features.webhooks.hot import PENDING_MAX, DeadEvent, WebhookQueue

PAGE = 500


@click.group()
def webhooks() -> None:
    """List and replay webhook events that could not be delivered (dead letters)."""


async def iter_dead(settings: Settings) -> AsyncGenerator[tuple[WebhookQueue, DeadEvent]]:
    from chatserver.hot.redis.factory import open_hot

    async with open_hot(settings.redis) as hot:
        for partition in range(hot.keys.partitions):
            events = WebhookQueue(hot, partition, PENDING_MAX)
            after = "0-0"
            while page := await events.list_dead(after, PAGE):
                for dead in page:
                    yield events, dead
                after = page[-1].id.partition(":")[2]


@webhooks.command("list")
@with_options
async def list_dead(
    *,
    limit: Annotated[
        int, click.IntRange(1, 100_000), "Maximum number of dead letters to print."
    ] = 100,
) -> None:
    """Print the dead letters, oldest first: id, attempts, reason, event."""
    settings = prepare("webhooks")
    require_redis(settings.redis)
    count = 0
    async with contextlib.aclosing(iter_dead(settings)) as dead_events:
        async for _, dead in dead_events:
            if count == limit:
                click.echo(f"there are more than {limit} dead letters; raise --limit", err=True)
                return
            count += 1
            text = dead.event.decode(errors="replace")
            click.echo(f"{dead.id}\t{dead.attempts}\t{dead.why}\t{text}")
    click.echo(format_count(count, "dead letter"), err=True)


@webhooks.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@with_options
async def replay(
    ids: tuple[str, ...], *, is_all: Annotated[bool, "Replay all dead letters."] = False
) -> None:
    """Deliver the dead letters with the given IDs, as printed by `list`."""
    if bool(ids) == is_all:
        raise click.UsageError("specify IDs or --all")
    settings = prepare("webhooks")
    require_redis(settings.redis)
    requested, replayed = set(ids), []
    async with contextlib.aclosing(iter_dead(settings)) as dead_events:
        async for events, dead in dead_events:
            if is_all or dead.id in requested:
                await events.replay(dead)
                replayed.append(dead.id)
    click.echo(f"{len(replayed)} replayed")
    missing = requested.difference(replayed)
    if missing:
        raise click.ClickException(f"dead letters not found: {', '.join(sorted(missing))}")
