"""`chatserver dead-letters`: list and replay messages that could not be persisted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import click

from chatserver.cli.process_setup import prepare, require_redis, run
from chatserver.command_options import with_options
from chatserver.config import Settings
from chatserver.domain.ids import ChatId
from chatserver.domain.quantities import format_count
from chatserver.errors import CorruptData

if TYPE_CHECKING:
    from chatserver.hot.chats.persist_backlog import Backlog, DeadLetter
    from chatserver.hot.chats.persist_backlog import CommittedMessage as Raw
    from chatserver.hot.redis.client import HotClient
    from chatserver.warm.messages.message_changes import MessageChanges
    from chatserver.warm.messages.messages import Messages

PAGE = 200
_TEXT_MAX = 300


@click.group("dead-letters")
def dead_letters() -> None:
    """List and replay messages that DynamoDB rejected."""


@dead_letters.command("list")
@with_options
def list_dead(
    *,
    limit: Annotated[
        int, click.IntRange(1, 100_000), "Maximum number of dead letters to print."
    ] = 100,
) -> None:
    """Print dead letters, oldest first: id, seq, reason, and the start of the raw message."""
    settings = prepare("dead-letters")
    require_redis(settings.redis)
    run(_list(settings, limit))


@dead_letters.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@with_options
def replay(
    ids: tuple[str, ...], *, is_all: Annotated[bool, "Replay all dead letters."] = False
) -> None:
    """Retry the messages with the given IDs, as printed by `list`.

    DynamoDB contains a tombstone in place of each rejected message. A message that can now be
    persisted replaces its tombstone, with all later changes applied. If the message has been
    deleted, or its tombstone may have been archived, the tombstone stays. A message that still
    cannot be persisted stays a dead letter.
    """
    if bool(ids) == is_all:
        raise click.UsageError("specify IDs or --all")
    settings = prepare("dead-letters")
    require_redis(settings.redis)
    run(_replay(settings, None if is_all else set(ids)))


async def _iter_dead(hot: HotClient) -> AsyncIterator[tuple[Backlog, DeadLetter]]:
    from chatserver.hot.chats.persist_backlog import Backlog

    for partition in range(hot.keys.partitions):
        backlog = Backlog(hot, partition)
        after = "0-0"
        while page := await backlog.list_dead(after, PAGE):
            for letter in page:
                yield backlog, letter
            after = page[-1].entry


async def _list(settings: Settings, limit: int) -> None:
    from chatserver.hot.redis.factory import open_hot

    count = 0
    async with open_hot(settings.redis) as hot:
        async for _, letter in _iter_dead(hot):
            if count == limit:
                click.echo(f"more than {limit} exist; raise --limit", err=True)
                return
            count += 1
            text = letter.message.tail[:_TEXT_MAX].decode(errors="replace")
            click.echo(f"{letter.id}\t{letter.message.seq}\t{letter.why}\t{text}")
    click.echo(format_count(count, "dead letter"), err=True)


async def _replay(settings: Settings, ids: set[str] | None) -> None:
    from chatserver.cold.client import open_s3
    from chatserver.cold.long_bodies import BodyFiles
    from chatserver.hot.redis.factory import open_hot
    from chatserver.warm.dynamo.connections import open_dynamodb
    from chatserver.warm.messages.long_bodies import LongBodies
    from chatserver.warm.messages.message_changes import MessageChanges
    from chatserver.warm.messages.messages import Messages
    from chatserver.warm.messages.sharded_chats import ShardedChats
    from chatserver.warm.messages.ttl import ItemRetention

    replayed, failed = set[str](), 0
    async with (
        open_hot(settings.redis) as hot,
        open_dynamodb(settings.warm) as dynamodb,
        open_s3(settings.cold) as store,
    ):
        client = dynamodb.for_feature("operations")
        shards = ShardedChats(client)
        bodies = LongBodies(client, settings.warm, BodyFiles(store, client.cipher), shards=shards)
        repository = Messages(client, shards=shards, bodies=bodies)
        changes = MessageChanges(
            client,
            shards=shards,
            retention=ItemRetention.by(settings.archive),
            bodies=bodies,
        )
        async for backlog, letter in _iter_dead(hot):
            if ids is not None and letter.id not in ids:
                continue
            replayed.add(letter.id)
            try:
                stored_in, outcome = await _replay_message(repository, changes, letter.message)
            except CorruptData as exc:
                failed += 1
                click.echo(f"{letter.id}: still cannot be persisted: {exc.message}", err=True)
                continue
            await backlog.remove_dead(letter, stored_in)
            click.echo(f"{letter.id}: {outcome}")
    missing = (ids or set()) - replayed
    if missing:
        raise click.ClickException(f"dead letters not found: {', '.join(sorted(missing))}")
    if failed:
        raise click.ClickException(f"{failed} of {len(replayed)} still cannot be persisted")
    click.echo(f"{len(replayed)} replayed", err=True)


async def _replay_message(
    repository: Messages, changes: MessageChanges, raw: Raw
) -> tuple[ChatId | None, str]:
    """Retry a message; return its chat if the message is now stored, and the outcome to print.

    Raises:
        CorruptData: `raw` is not a message.
    """
    import msgspec

    from chatserver.protocol import codec
    from chatserver.protocol.message_change_effects import apply_entry
    from chatserver.warm.messages.messages import PersistItem

    try:
        message = codec.decode_message(codec.join_message(raw.seq, raw.ts, raw.tail))
    except msgspec.MsgspecError as exc:
        raise CorruptData(f"not a message: {exc}") from exc
    # Apply later entries in the chat that change this message.
    after: int = raw.seq
    while page := await repository.list_after(message.chat, after, PAGE):
        for entry in page:
            if entry.target == raw.seq:
                message = apply_entry(message, entry)
        after = page[-1].seq
    if message.deleted:
        return ChatId(message.chat), "message was deleted; the tombstone stays"
    if await changes.replay(PersistItem(message, raw.receiver)):
        return ChatId(message.chat), "persisted"
    return None, "item was changed; not replayed"
