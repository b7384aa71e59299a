"""`chatserver shards`: set the write shards of a chat before a planned event."""

from __future__ import annotations

import asyncio
import datetime
import functools
from typing import TYPE_CHECKING, Annotated, Final

import click

from chatserver.cli.process_setup import prepare
from chatserver.cli.restore import parse_duration
from chatserver.command_options import handle_errors, with_options
from chatserver.domain.ids import ChatId, parse_id
from chatserver.domain.quantities import format_count
from chatserver.domain.write_sharding import SHARDS_MAX, ShardFloor
from chatserver.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer

_TRIES_MAX: Final = 20
_PAUSE_S: Final = 0.25  # pause between attempts; an earlier change takes effect in a second
_SHARDS = [str(2**n) for n in range(SHARDS_MAX.bit_length())]


@click.group()
def shards() -> None:
    """Set the number of write shards of a chat. Workers shard busy chats automatically."""


@shards.command(name="set")
@click.argument("chat")
@click.argument("number", metavar="SHARDS", type=click.Choice(_SHARDS))
@handle_errors(NotFound, usage=(BadRequest,))
@with_options
async def set_(
    chat: str,
    number: str,
    *,
    duration: Annotated[
        str, "--for", "How long the chat keeps at least this many shards, such as 12h or 7d."
    ] = "24h",
) -> None:
    """Shard new entries of CHAT across SHARDS DynamoDB partitions, before a planned event.

    A partition accepts about 1,000 write units per second. The change takes effect within a second.
    Workers may add shards; they remove shards only after the time set with --for, once the chat is
    less busy. Repeating the command extends the time.
    """
    from chatserver.container.storage import open_storage_container
    from chatserver.domain.clock import SystemClock

    settings = prepare("shards")
    name, duration_s = ChatId(parse_id(chat, "CHAT")), parse_duration(duration)
    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        floor = await set_shards(container, name, int(number), duration_s)
    ends = datetime.datetime.fromtimestamp(floor.until_ts / 1e6, datetime.UTC)
    click.echo(f"{chat}: {format_count(int(number), 'shard')}, until {ends:%Y-%m-%d %H:%M} UTC")


async def set_shards(
    container: StorageContainer, chat: ChatId, number: int, duration_s: int
) -> ShardFloor:
    """Shard a chat over at least `number` DynamoDB partitions for `duration_s` seconds.

    Raises:
        NotFound: there is no such chat.
        click.ClickException: the list of sharded chats is full, the chat was resharded too often,
            or an earlier change is still pending.
    """
    await container.memberships.get_chat(chat)
    floor = ShardFloor(int((container.clock.time() + duration_s) * 1e6), number)
    for _ in range(_TRIES_MAX):
        await container.chat_loader.load_chat(chat)
        find = functools.partial(container.chat_log.find_newest_ts, chat)
        match await container.write_shards.reshard(chat, number, find, floor):
            case "moved":
                return floor
            case "full":
                raise click.ClickException(
                    "the list of sharded chats is full, or the chat was resharded too often; "
                    "try again later"
                )
            case "waiting" | "raced":
                await asyncio.sleep(_PAUSE_S)
    raise click.ClickException("an earlier change to the shards is still pending; try again")
