"""Session summaries: one item per session in the `directory` table.

    PK "c#<chat>"  SK "summary#<chat>"  first N  upto N (chat seqs)  text S  rev N  expires_at N

`text` summarizes the messages from `first` to `upto`. If one of these messages is edited, is
deleted or expires, the item is deleted (`worker/session_summaries.py`). A write is conditional on
the `rev` that was read, so a repeated or delayed write has no effect.
"""

from __future__ import annotations

from typing import Final

from chatserver.config import Warm
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import CorruptData
from chatserver.features.companions.model import SessionSummary
from chatserver.features.companions.tables import SummaryField as Field
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.schema.tables import DIRECTORY

PREFIX: Final = "summary#"


class Summaries:
    """Reads and writes summary items."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def find(self, chat: ChatId) -> SessionSummary | None:
        """Return a session's summary, or None. Strongly consistent. Cost: one GetItem."""
        item = await find_item(self._client, self._table, _key(chat))
        if item is None:
            return None
        try:
            return SessionSummary(
                Seq(int(item[Field.FIRST]["N"])),
                Seq(int(item[Field.UPTO]["N"])),
                item[Field.TEXT]["S"],
                int(item[Field.REV]["N"]),
                int(item[Field.EXPIRES_AT]["N"]) if Field.EXPIRES_AT in item else None,
            )
        except (KeyError, ValueError) as exc:
            raise CorruptData(f"table directory: summary of {chat} is invalid: {exc!r}") from exc

    async def put(self, chat: ChatId, summary: SessionSummary) -> bool:
        """Store a summary if the stored `rev` is one less or, with `rev` 1, if none is stored.

        Otherwise, return False.
        """
        request = {
            "TableName": self._table,
            "Item": encode_summary(chat, summary),
            # A stored item with the same `rev` and text is accepted, too: this may be a retry.
            "ConditionExpression": "#rev = :before OR (#rev = :rev AND #text = :text)"
            if summary.rev > 1
            else "attribute_not_exists(#rev) OR (#rev = :rev AND #text = :text)",
            "ExpressionAttributeNames": {"#rev": Field.REV, "#text": Field.TEXT},
            "ExpressionAttributeValues": {
                ":rev": {"N": str(summary.rev)},
                ":text": {"S": summary.text},
            }
            | ({":before": {"N": str(summary.rev - 1)}} if summary.rev > 1 else {}),
        }
        return await write_conditionally(self._client, "put_item", request)

    async def drop(self, chat: ChatId) -> None:
        """Delete a session's summary. Idempotent."""
        await self._client.call("delete_item", {"TableName": self._table, "Key": _key(chat)})


def encode_summary(chat: ChatId, summary: SessionSummary) -> Item:
    item = _key(chat) | {
        Field.FIRST: {"N": str(summary.first)},
        Field.UPTO: {"N": str(summary.upto)},
        Field.TEXT: {"S": summary.text},
        Field.REV: {"N": str(summary.rev)},
    }
    if summary.expires_at is not None:
        item[Field.EXPIRES_AT] = {"N": str(summary.expires_at)}
    return item


def _key(chat: ChatId) -> Item:
    return row_key(chat_key(chat), f"{PREFIX}{chat}")
