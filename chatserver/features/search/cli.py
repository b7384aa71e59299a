"""`chatserver search`: query, check and rebuild the search index.

Exit codes: 0 success, 1 a service is unavailable, 2 an option or the query is invalid.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import click

from chatserver.cli.process_setup import prepare, require_redis
from chatserver.command_options import handle_errors, with_options
from chatserver.config import Settings
from chatserver.errors import BadRequest, ConfigError, NotFound
from chatserver.telemetry.printable_text import replace_unprintable

if TYPE_CHECKING:
    from chatserver.container.storage import StorageContainer
    from chatserver.features.search.worker.status import PartitionStatus

POLL_S = 1.0


@click.group()
def search() -> None:
    """Query, check and rebuild the search index."""


@search.command()
@click.argument("text")
@handle_errors(usage=(BadRequest, NotFound))
@with_options
async def query(
    text: str,
    *,
    user: Annotated[str, "--as", "User whose chats are searched."],
    limit: Annotated[int, click.IntRange(1, 50), "Maximum number of results."] = 20,
    relevance: Annotated[bool, "Sort by relevance instead of newest first."] = False,
) -> None:
    """Search as a user and print each result: time, chat, seq, sender and text."""
    from chatserver.domain.ids import UserId, parse_id
    from chatserver.features.search.container import SearchContainer
    from chatserver.features.search.model import Order
    from chatserver.protocol import codec

    settings = _prepare()
    viewer = UserId(parse_id(user, "--as"))
    order = Order.RELEVANCE if relevance else Order.NEWEST
    async with _open(settings) as container:
        service = container.get(SearchContainer).search
        page, next_position = await service.find(viewer, text, order, limit, None)
    for result in page:
        message = codec.decode_message(result.json)
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(message.ts / 1e6))
        snippet = replace_unprintable(
            "".join(segment.text for segment in result.snippet).replace("\n", " ")
        )
        click.echo(f"{when}  {message.chat}  {message.seq}  {message.sender}  {snippet}")
    click.echo(f"{len(page)} found" + ("; there are more" if next_position else ""), err=True)


@search.command()
@with_options
async def status(*, form: Annotated[Literal["text", "json"], "--format"] = "text") -> None:
    """Print the size and lag of the index, and the progress of a rebuild."""
    from chatserver.features.search.worker.status import read_status

    async with _open(_prepare()) as container:
        statuses = await read_status(container)
    for partition_status in statuses:
        is_json = form == "json"
        click.echo(
            json.dumps(_as_json(partition_status)) if is_json else _as_text(partition_status)
        )


def _as_json(status: PartitionStatus) -> dict[str, object]:
    rebuild = status.rebuild
    return {
        "partition": status.number,
        "documents": status.stats.documents,
        "bytes": status.stats.bytes,
        "lag_s": round(status.lag_s, 3),
        "generation": status.state.generation,
        "is_catching_up": status.state.catch_up is not None,
        "rebuild": None
        if rebuild is None
        else {
            "percent": 100 * rebuild.part // rebuild.parts,
            "chats": rebuild.chats,
            "messages": rebuild.messages,
        },
    }


def _as_text(status: PartitionStatus) -> str:
    text = (
        f"partition {status.number}: {status.stats.documents} messages, "
        f"{status.stats.bytes} bytes, {status.lag_s:.1f} s behind"
    )
    if status.state.catch_up is not None:
        text += ", catching up"
    if (rebuild := status.rebuild) is not None:
        text += (
            f", rebuild {100 * rebuild.part // rebuild.parts} % "
            f"({rebuild.chats} chats, {rebuild.messages} messages)"
        )
    return text


@search.command()
@with_options
async def rebuild(
    *, wait: Annotated[bool, "--wait/--no-wait", "Wait until the rebuild is complete."] = True
) -> None:
    """Rebuild the search index from the messages in DynamoDB and S3.

    `chatserver worker search` must be running; it rebuilds the index. Meanwhile, searches use the
    old index, and new messages are added to it. The rebuild continues if you stop this command or
    restart the worker.
    """
    from chatserver.domain.ids import new_id
    from chatserver.features.search.container import SearchContainer
    from chatserver.features.search.hot import IndexFeed
    from chatserver.features.search.worker.status import read_status

    settings = _prepare()
    request = new_id()
    async with _open(settings) as container:
        feed = IndexFeed(container.hot)
        for number in container.get(SearchContainer).partitions:
            await feed.request_rebuild(number, request)
        last_text = ""
        while wait:
            statuses = await read_status(container)
            own = [index_status.state.rebuild for index_status in statuses]
            for partition_status in statuses:
                if (text := _as_text(partition_status)) != last_text:
                    click.echo(last_text := text, err=True)
            if all(
                rebuild_state and rebuild_state.request == request and rebuild_state.finished_ms
                for rebuild_state in own
            ):
                messages = sum(rebuild_state.messages for rebuild_state in own if rebuild_state)
                click.echo(f"rebuilt: {messages} messages")
                return
            await asyncio.sleep(POLL_S)
    click.echo(f"requested: {request}")


def _prepare() -> Settings:
    from chatserver.features.search.engines.registry import check_engine, is_enabled

    settings = prepare("search")
    if not is_enabled(settings):
        raise ConfigError("CHAT_SEARCH_INDEX: missing; set it to a folder or s3 (docs/search.md)")
    check_engine(settings)
    require_redis(settings.redis)
    return settings


@asynccontextmanager
async def _open(settings: Settings) -> AsyncIterator[StorageContainer]:
    from chatserver.container.storage import open_storage_container
    from chatserver.domain.clock import SystemClock

    async with open_storage_container(
        role="worker", settings=settings, clock=SystemClock()
    ) as container:
        yield container
