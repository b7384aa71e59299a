"""Queries for a chat's messages with attachments.

Owns attribute `files_of` of table `messages`: the chat id, set only on messages with attachments,
so that index `files` (`files_of`, `ts`) contains only these messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatserver.domain.clock import Clock, SystemClock
from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.paging import Page, Span, Token, read_page
from chatserver.warm.dynamo.table import Table
from chatserver.warm.messages.long_bodies import Bodies, NoBodies
from chatserver.warm.messages.message_indexes import ReaderView, apply_view, decode_present
from chatserver.warm.messages.seq_search import TS_MAX
from chatserver.warm.schema.tables import FILES_INDEX, MESSAGES
from chatserver.warm.schema.tables import MessageField as Field


class ChatFiles:
    """Lists messages with attachments."""

    def __init__(
        self,
        client: DynamoClient,
        clock: Clock | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._clock = clock or SystemClock()
        self._table = Table(client, MESSAGES)

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

        `view` is the viewer's visibility filter (`chatserver.warm.messages.message_indexes`).

        Guarantees:
            Eventually consistent; excludes expired and deleted messages.
            Cost: one Query and one BatchGetItem.

        Raises:
            BadRequest: the limit is out of range, or the token belongs to another chat.
            Unavailable: DynamoDB did not respond in time.
        """
        span = Span(MESSAGES, chat, FILES_INDEX, (from_ts, to_ts))
        now_s = int(self._clock.time())
        is_current = Attr(Field.EXPIRES_AT).is_absent | (Attr(Field.EXPIRES_AT) > now_s)
        query = self._table.build_query(span, where=is_current, is_newest_first=newest_first)

        async def load(rows: list[Item]) -> Sequence[Message | None]:
            return await apply_view(view, await self._load(rows))

        return await read_page(self._client, span, query, load, limit=limit, start=start)

    async def _load(self, rows: list[Item]) -> list[Message | None]:
        keys = [self._table.get_key(row) for row in rows]
        items_by_ts = {item[Field.TS]["N"]: item for item in await self._table.get_items(keys)}
        items = [items_by_ts.get(row[Field.TS]["N"]) for row in rows]
        with_files = [
            None if item is None or Field.ATTACHMENTS not in item else item for item in items
        ]
        return await decode_present(with_files, self._bodies)
