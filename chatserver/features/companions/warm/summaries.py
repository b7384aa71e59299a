"""Session summaries: one item per session in the `directory` table.

    PK "c#<chat>"  SK "summary#<chat>"  first N  upto N (chat seqs)  text S  rev N  expires_at N

`text` summarizes the messages from `first` to `upto`. If one of these messages is edited, is
deleted or expires, the item is deleted (`worker/session_summaries.py`). A write is conditional on
the `rev` that was read, so a repeated or delayed write has no effect.
"""

from __future__ import annotations

from typing import Final

from chatserver.domain.ids import ChatId
from chatserver.features.companions.model import SessionSummary
from chatserver.features.companions.tables import SummaryField as Field
from chatserver.warm.dynamo.client import DynamoClient
from chatserver.warm.dynamo.codecs import Codec
from chatserver.warm.dynamo.conditions import Attr
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.schema.tables import DIRECTORY

PREFIX: Final = "summary#"
SUMMARY: Final = Codec(
    SessionSummary,
    "c#{chat}",
    PREFIX + "{chat}",
    first=Field.FIRST,
    upto=Field.UPTO,
    text=Field.TEXT,
    rev=Field.REV,
    expires_at=Field.EXPIRES_AT,
)


class Summaries:
    """Reads and writes summary items."""

    def __init__(self, client: DynamoClient) -> None:
        self._table = Table(client, DIRECTORY)

    async def find(self, chat: ChatId) -> SessionSummary | None:
        """Return a session's summary, or None. Strongly consistent. Cost: one GetItem."""
        item = await self._table.find(SUMMARY.key(chat=chat))
        return None if item is None else SUMMARY.decode(item)

    async def put(self, chat: ChatId, summary: SessionSummary) -> bool:
        """Store a summary if the stored `rev` is one less or, with `rev` 1, if none is stored.

        Otherwise, return False.
        """
        # A stored item with the same `rev` and text is accepted, too: this may be a retry.
        is_same = (Attr(Field.REV) == summary.rev) & (Attr(Field.TEXT) == summary.text)
        is_next = Attr(Field.REV).matches(summary.rev - 1 or None)
        item = SUMMARY.encode(summary, chat=chat)
        return await try_write(self._table.put(item, if_=is_next | is_same))

    async def drop(self, chat: ChatId) -> None:
        """Delete a session's summary. Idempotent."""
        await self._table.delete(SUMMARY.key(chat=chat))
