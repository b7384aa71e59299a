"""Messages of a chat with attachments, newest first.

Owns attribute `files_of` of table `messages`: the chat id, set only on messages with attachments,
so that index `files` (`files_of`, `ts`) contains only them.

Until migration 4 is done, some items may lack it: old ones, and those written by an older release
that still runs. Until then the list reads all messages of the chat, at a cost proportional to its
length, and repairs the items it finds. From then on the index is complete and is the only source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import structlog

from chatserver.config import Warm
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.write_sharding import chat_of
from chatserver.errors import ChatError
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.batches import get_items
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.paging import Page, Span, Token, read_page
from chatserver.warm.messages.chat_rows import ChatRows, chat_in
from chatserver.warm.messages.item_repair import Mend, mend_item
from chatserver.warm.messages.long_bodies import Bodies, NoBodies
from chatserver.warm.messages.message_queries import ReaderView, decode_present, show
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.messages.write_shards import ShardList
from chatserver.warm.schema import versions
from chatserver.warm.schema.active_version import KnownSchema
from chatserver.warm.schema.tables import FILES_INDEX, MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

log = structlog.get_logger()

MENDS_IN_FLIGHT_MAX: Final = 8
# Attributes that `mend_files` reads, including the key.
MENDED_BY: Final = (Field.CHAT, Field.TS, Field.REV, Field.ATTACHMENTS, Field.FILES_OF)


def mend_files(item: Item) -> Mend | None:
    """Return the repair that adds an item to index `files` or removes it, or None."""
    if Field.REV not in item:  # a marker
        return None
    wanted = {"S": chat_in(item)} if Field.ATTACHMENTS in item else None
    if item.get(Field.FILES_OF) == wanted:
        return None
    return Mend({}, (Field.FILES_OF,)) if wanted is None else Mend({Field.FILES_OF: wanted})


class ChatFiles:
    """Lists messages with attachments."""

    def __init__(
        self,
        client: DynamoClient,
        settings: Warm,
        clock: Clock | None = None,
        shards: ShardList | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._settings = settings
        self._clock = clock or SystemClock()
        self._table = MESSAGES.name_in(settings)
        self._rows = ChatRows(client, settings, self._clock, shards)
        self._acts_by = versions.acting_version(settings)
        self._known = KnownSchema(client, settings, self._clock)

    async def list_with_files(
        self,
        chat: str,
        from_ts: int = 0,
        to_ts: int = TS_MAX,
        *,
        limit: int,
        start: Token | None = None,
        newest_first: bool = True,
        view: ReaderView | None = None,
    ) -> Page[Message]:
        """Return a page of a chat's messages in ``[from_ts, to_ts]`` that have attachments.

        `view` is the viewer's visibility filter (`chatserver.warm.messages.message_queries`).

        Guarantees:
            Eventually consistent; excludes expired and deleted messages.
            Cost: with the index, one Query and one BatchGetItem. Until the index is complete,
            Queries through the chat until the page is full or reaches its work limit (`read_page`),
            and one write for each unrepaired message on the page.

        Raises:
            BadRequest: the limit is out of range, or the token belongs to another chat.
            Unavailable: DynamoDB did not respond in time.
        """
        if await self._is_complete():
            span = Span(MESSAGES, chat, FILES_INDEX, (from_ts, to_ts))
        else:
            span = Span(MESSAGES, chat, between=(from_ts, to_ts))
        start = await self._start_in(span, chat, start)
        now = {":now": {"N": str(int(self._clock.time()))}}
        query: dict[str, Any] = span.query(self._settings) | {"ScanIndexForward": not newest_first}
        query["ExpressionAttributeNames"] |= {"#expiry": Field.EXPIRES_AT}
        query["ExpressionAttributeValues"] |= now
        alive = "(attribute_not_exists(#expiry) OR #expiry > :now)"
        if span.index is None:
            query["FilterExpression"] = alive + " AND attribute_exists(#files)"
            query["ExpressionAttributeNames"] |= {"#files": Field.ATTACHMENTS}
            return await self._read_through(span, query, limit, start, view)
        query["FilterExpression"] = alive

        async def load(rows: list[Item]) -> Sequence[Message | None]:
            return await show(view, await self._load(rows))

        return await read_page(self._client, span, query, load, limit=limit, start=start)

    async def _start_in(self, span: Span, chat: str, start: Token | None) -> Token | None:
        """Convert a token to this span: the source may have changed since the first page."""
        if start is None or not isinstance(start.get(Field.TS), int):
            return start  # a foreign token is rejected when it is used
        if chat_of(str(start.get(Field.CHAT))) != chat:
            return start
        ts = int(start[Field.TS])
        if span.index is None:
            return {Field.CHAT: chat, Field.TS: ts}
        partition = (await self._rows.layouts()).partition_of(chat, ts)
        return {Field.FILES_OF: chat, **start, Field.CHAT: partition}

    async def _is_complete(self) -> bool:
        """Return whether this process may rely on the index being complete."""
        if self._acts_by < versions.FILES_ONLY:
            return False
        return await self._known.get_version() >= versions.FILES_ONLY

    async def _load(self, rows: list[Item]) -> list[Message | None]:
        """Return the current messages of index entries."""
        keys = [{name: row[name] for name in MESSAGES.key.names} for row in rows]
        found = {
            item[Field.TS]["N"]: item for item in await get_items(self._client, self._table, keys)
        }
        items = [found.get(row[Field.TS]["N"]) for row in rows]
        with_files = [
            None if item is None or Field.ATTACHMENTS not in item else item for item in items
        ]
        return await decode_present(with_files, self._bodies)

    async def _read_through(
        self,
        span: Span,
        query: dict[str, Any],
        limit: int,
        start: Token | None,
        view: ReaderView | None,
    ) -> Page[Message]:
        """Return a page by reading the table, and repair the items on it."""
        held: dict[int, Item] = {}

        async def load(rows: list[Item]) -> Sequence[Message | None]:
            messages = await decode_present(rows, self._bodies)
            pairs = zip(messages, rows, strict=True)
            held.update((each.seq, row) for each, row in pairs if each is not None)
            return await show(view, messages)

        source = await self._rows.open(span, query, start)
        page = await read_page(
            self._client, span, query, load, limit=limit, start=start, source=source
        )
        if self._acts_by >= versions.FILES:
            shown = [held[message.seq] for message in page.items]
            await self._repair([row for row in shown if mend_files(row) is not None])
        return page

    async def _repair(self, rows: list[Item]) -> None:
        """Repair items. A failure is logged and does not fail the read."""
        slots = asyncio.Semaphore(MENDS_IN_FLIGHT_MAX)

        async def repair(row: Item) -> None:
            async with slots:
                await mend_item(self._client, MESSAGES, self._table, row, mend_files)

        for outcome in await asyncio.gather(*map(repair, rows), return_exceptions=True):
            if isinstance(outcome, ChatError):
                log.warning("files.repair_failed", error=outcome.message)
            elif isinstance(outcome, BaseException):
                raise outcome
