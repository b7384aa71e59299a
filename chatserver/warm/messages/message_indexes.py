"""Queries on the `messages` table: by chat, sender, receiver, status or files, in a time range.

| query                             | on               | condition                                |
|-----------------------------------|------------------|------------------------------------------|
| messages of a chat                | the table        | `chatid`, `ts` between                   |
| sent by a user                    | index `sender`   | `sender_id`, `ts` between                |
| received by a user (direct chats) | index `receiver` | `receiver_id`, `ts` between              |
| active messages of a chat         | index `status`   | `chatid`, `status_ts` begins `active#`   |
| messages of a chat with files     | index `files`    | `files_of`, `ts` between                 |
| messages by key                   | the table        | `chatid` and `ts`                        |

Times are in microseconds; ranges are inclusive. Each query runs in either direction, page by page.
Pages are full while more messages exist (`chatserver.warm.dynamo.paging`). They skip expired items,
outdated index rows and messages that a `ReaderView` hides. Index rows are eventually consistent;
the items are then read with strong consistency.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NotRequired, Protocol, TypedDict, Unpack

from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import BadRequest
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import QueryPage, Span, Token, read_page
from chatserver.warm.dynamo.table import Selection, Table
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads, get_row_chat
from chatserver.warm.messages.long_bodies import Bodies, NoBodies
from chatserver.warm.messages.messages import (
    STATUS_ACTIVE,
    decode_each,
    decode_items,
    get_status_ts,
)
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.tables import (
    FILES_INDEX,
    MESSAGES,
    RECEIVER_INDEX,
    SENDER_INDEX,
    STATUS_INDEX,
    Index,
)
from chatserver.warm.schema.tables import MessageField as Field

EVER = (0, TS_MAX)


class ReaderView(Protocol):
    """Visibility filter of one viewer. `select_chats` is called before `filter_messages`."""

    async def select_chats(self, chats: Collection[str]) -> Collection[str]:
        """Return which of `chats` the viewer may see. Called before items are read."""

    async def filter_messages(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        """Return messages as the viewer sees them, with None in place of hidden messages."""


class Paging(TypedDict):
    """Page options for a query. Without `view`, no message is hidden."""

    limit: int
    start: NotRequired[Token | None]
    newest_first: NotRequired[bool]
    view: NotRequired[ReaderView | None]


class MessageIndexes:
    """Queries on the `messages` table and its indexes."""

    def __init__(
        self,
        client: DynamoClient,
        clock: Clock | None = None,
        shards: ShardedChats | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._clock = clock or SystemClock()
        self._table = Table(client, MESSAGES)
        self._rows = ChatPartitionReads(client, self._clock, shards)

    async def list_chat(
        self, chat: str, from_ts: int = EVER[0], to_ts: int = EVER[1], **paging: Unpack[Paging]
    ) -> QueryPage[Message]:
        """Return a page of a chat's messages in ``[from_ts, to_ts]``."""
        span = Span(MESSAGES, chat, between=_range(from_ts, to_ts))
        return await self._list(span, **paging)

    async def list_sent(
        self, user: str, from_ts: int = EVER[0], to_ts: int = EVER[1], **paging: Unpack[Paging]
    ) -> QueryPage[Message]:
        """Return a page of the messages that a user sent to any chat in ``[from_ts, to_ts]``."""
        span = Span(MESSAGES, user, SENDER_INDEX, _range(from_ts, to_ts))
        return await self._list(span, **paging)

    async def list_received(
        self, user: str, from_ts: int = EVER[0], to_ts: int = EVER[1], **paging: Unpack[Paging]
    ) -> QueryPage[Message]:
        """Return a page of the direct messages that a user received in ``[from_ts, to_ts]``."""
        span = Span(MESSAGES, user, RECEIVER_INDEX, _range(from_ts, to_ts))
        return await self._list(span, **paging)

    async def list_active(
        self, chat: str, from_ts: int = EVER[0], to_ts: int = EVER[1], **paging: Unpack[Paging]
    ) -> QueryPage[Message]:
        """Return a page of a chat's messages that are not deleted."""
        if (from_ts, to_ts) == EVER:
            span = Span(MESSAGES, chat, STATUS_INDEX, prefix=f"{STATUS_ACTIVE}#")
        else:
            low, high = (get_status_ts(STATUS_ACTIVE, ts) for ts in _range(from_ts, to_ts))
            span = Span(MESSAGES, chat, STATUS_INDEX, between=(low, high))
        return await self._list(span, **paging)

    async def list_with_files(
        self, chat: str, from_ts: int = EVER[0], to_ts: int = EVER[1], **paging: Unpack[Paging]
    ) -> QueryPage[Message]:
        """Return a page of a chat's messages that have attachments."""
        span = Span(MESSAGES, chat, FILES_INDEX, _range(from_ts, to_ts))
        return await self._list(span, **paging)

    async def get_many(
        self, positions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], Message]:
        """Return the current messages by their ``(chat, ts)``.

        Guarantees:
            Strongly consistent; expired messages are not returned.
            Cost: one BatchGetItem per 100 keys.
        """
        keys = await self._rows.list_keys(dict.fromkeys(positions))
        now_s = int(self._clock.time())
        items = await self._table.get_items(keys)
        unexpired = [item for item in items if not _has_expired(item, now_s)]
        messages = await decode_items(unexpired, self._bodies)
        return {(message.chat, message.ts): message for message in messages}

    async def _list(
        self,
        span: Span,
        limit: int,
        start: Token | None = None,
        newest_first: bool = True,
        view: ReaderView | None = None,
    ) -> QueryPage[Message]:
        """Return a page of the unexpired messages in a key range; see `read_page`."""
        now_s = int(self._clock.time())
        expiry = Attr(Field.EXPIRES_AT)
        options: Selection = {
            "where": expiry.is_absent | (expiry > now_s),
            "is_newest_first": newest_first,
            # A viewer must not see stale items. After a Query on an index, `_load` reads the
            # current items.
            "is_consistent": view is not None,
        }

        async def choose(rows: list[Item]) -> list[Item]:
            if view is None:
                return rows
            chats = set(await view.select_chats({get_row_chat(row) for row in rows}))
            return [row for row in rows if get_row_chat(row) in chats]

        async def load(rows: list[Item]) -> Sequence[Message | None]:
            if span.index is None:
                return await apply_view(view, await decode_present(rows, self._bodies))
            return await apply_view(view, await self._load(rows, span.index, now_s))

        is_by_chat = span.index in (None, STATUS_INDEX)
        query = self._table.build_query(span, **options)
        source = await self._rows.open(span, start, **options) if is_by_chat else None
        return await read_page(
            self._client, span, query, load, limit=limit, start=start, choose=choose, source=source
        )

    async def _load(self, rows: list[Item], index: Index, now_s: int) -> list[Message | None]:
        """Return the current messages for index rows, with None for outdated or expired rows.

        A row is outdated if its item no longer has the same index key. The items are read with
        strong consistency, because other reads may miss an item that already has an index row.
        """
        keys = [{name: row[name] for name in MESSAGES.key.names} for row in rows]
        items = await self._table.get_items(keys)
        items_by_key = {_get_key(item): item for item in items if not _has_expired(item, now_s)}
        still = [
            item
            if (item := items_by_key.get(_get_key(row))) is not None
            and all(item.get(name) == row[name] for name in index.key.names)
            else None
            for row in rows
        ]
        return await decode_present(still, self._bodies)


async def decode_present(items: Sequence[Item | None], bodies: Bodies) -> list[Message | None]:
    """Decode items in order; None items are returned as None."""
    existing = [item for item in items if item is not None]
    messages_by_key = {
        _get_key(item): message
        for item, message in zip(existing, await decode_each(existing, bodies), strict=True)
    }
    return [None if item is None else messages_by_key[_get_key(item)] for item in items]


async def apply_view(
    view: ReaderView | None, messages: Sequence[Message | None]
) -> Sequence[Message | None]:
    """Return messages as the viewer sees them, in order; without `view`, unchanged."""
    if view is None:
        return messages
    visible = iter(
        await view.filter_messages([message for message in messages if message is not None])
    )
    return [None if message is None else next(visible) for message in messages]


def _range(from_ts: int, to_ts: int) -> tuple[int, int]:
    if not 0 <= from_ts <= to_ts <= TS_MAX:
        raise BadRequest("from, to: must be timestamps in microseconds; from must not be after to")
    return from_ts, to_ts


def _get_key(item: Item) -> tuple[str, str]:
    return item[Field.CHAT]["S"], item[Field.TS]["N"]


def _has_expired(item: Item, now_s: int) -> bool:
    ends = item.get(Field.EXPIRES_AT)
    return ends is not None and int(ends["N"]) <= now_s
