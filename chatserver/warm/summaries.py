"""What companions remember of sessions: rows of table `directory`, one a session.

    PK "c#<chat>"  SK "summary#<chat>"  first N  upto N (chat seqs)  text S  rev N

Invariant: `text` was made of the messages from `first` to `upto`, none of which was changed or
deleted since; who changes one has the row dropped (`workers.remembering`). A row is written on the
condition that it still is the one that was read, so a repeat, or a worker that slept, does nothing.
"""

from __future__ import annotations

from typing import Final

from chatserver.config import Warm
from chatserver.domain.companions import Memory
from chatserver.domain.ids import ChatId, Seq
from chatserver.errors import CorruptData
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.fields import SummaryField as Field
from chatserver.warm.records import chat_key, row_key
from chatserver.warm.tables import DIRECTORY

PREFIX: Final = "summary#"


class Summaries:
    """Reads and writes the rows."""

    def __init__(self, client: DynamoClient, settings: Warm) -> None:
        self._client = client
        self._table = DIRECTORY.name_in(settings)

    async def find(self, chat: ChatId) -> Memory | None:
        """Return what is remembered of a session. Consistent, one GetItem."""
        request = {"TableName": self._table, "Key": _key(chat), "ConsistentRead": True}
        item = (await self._client.call("get_item", request)).get("Item")
        if item is None:
            return None
        try:
            return Memory(
                Seq(int(item[Field.FIRST]["N"])),
                Seq(int(item[Field.UPTO]["N"])),
                item[Field.TEXT]["S"],
                int(item[Field.REV]["N"]),
            )
        except (KeyError, ValueError) as exc:
            raise CorruptData(f"directory: the summary of {chat} is none: {exc!r}") from exc

    async def put(self, chat: ChatId, memory: Memory) -> bool:
        """Write what is remembered, in the place of the one with the `rev` before.

        Returns False if another one is there by now; nothing is written.
        """
        item = _key(chat) | {
            Field.FIRST: {"N": str(memory.first)},
            Field.UPTO: {"N": str(memory.upto)},
            Field.TEXT: {"S": memory.text},
            Field.REV: {"N": str(memory.rev)},
        }
        request = {
            "TableName": self._table,
            "Item": item,
            # Also if it is there as it is to be: this try may be the second one.
            "ConditionExpression": "#rev = :before OR (#rev = :rev AND #text = :text)"
            if memory.rev > 1
            else "attribute_not_exists(#rev) OR (#rev = :rev AND #text = :text)",
            "ExpressionAttributeNames": {"#rev": Field.REV, "#text": Field.TEXT},
            "ExpressionAttributeValues": {
                ":rev": {"N": str(memory.rev)},
                ":text": {"S": memory.text},
            }
            | ({":before": {"N": str(memory.rev - 1)}} if memory.rev > 1 else {}),
        }
        try:
            await self._client.call("put_item", request)
        except ConditionFailed:
            return False
        return True

    async def drop(self, chat: ChatId) -> None:
        """Forget what is remembered of a session. Idempotent."""
        await self._client.call("delete_item", {"TableName": self._table, "Key": _key(chat)})


def _key(chat: ChatId) -> Item:
    return row_key(chat_key(chat), f"{PREFIX}{chat}")
