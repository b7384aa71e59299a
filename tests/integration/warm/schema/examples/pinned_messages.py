"""Worked example 2: a new entity in an existing table.

Pinned messages are items of `directory` with the sort key prefix ``pin#``; their messages have the
flag `pinned`. Both are written in one transaction.

    PK "c#<chat>"  SK "pin#<seq, 20 digits>#<chat>"  ts N

No query of an older release covers the prefix: members are between ``c#`` and ``m$``. The key ends
with the chat, because index `by_member` inverts it: a common sort key would be one partition there.
"""

from __future__ import annotations

from typing import Any

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import Unavailable
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table
from chatserver.warm.schema.active_version import SchemaVersionCache
from chatserver.warm.schema.migrations.migration import Migration
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES

PIN_MIGRATION = Migration(
    number=6,
    name="pins",
    kind="expand",
    change="pinned messages",
    table=DIRECTORY,
    why="items of pinned messages",
)


class Pins:
    """Pinned messages of chats."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._known = SchemaVersionCache(client, clock)

    async def pin(self, chat: str, seq: int, ts: int) -> bool:
        """Pin a message; return False if it is pinned already or does not exist.

        Raises:
            Unavailable: the message may be pinned, or not; or migration 6 is not done.
        """
        item = self._key(chat, seq) | {"ts": {"N": str(ts)}}
        put = {"Item": item, "ConditionExpression": "attribute_not_exists(PK)"}
        return await self._write({"Put": put}, chat, ts, "SET pinned = :yes")

    async def unpin(self, chat: str, seq: int, ts: int) -> bool:
        """Unpin a message; return False if it is not pinned. Raises as `pin`."""
        delete = {"Key": self._key(chat, seq), "ConditionExpression": "attribute_exists(PK)"}
        return await self._write({"Delete": delete}, chat, ts, "REMOVE pinned")

    async def list_pins(self, chat: str) -> list[int]:
        """Return the seqs of the pinned messages."""
        span = Span(DIRECTORY, chat_key(chat), between=("pin#", "pin$"))  # '$' follows '#'
        rows = await Table(self._client, DIRECTORY).query(span)
        return [int(row["SK"]["S"].split("#")[1]) for row in rows]

    async def _write(self, entity: dict[str, Any], chat: str, ts: int, flag: str) -> bool:
        if (version := await self._known.get_version()) < PIN_MIGRATION.number:
            raise Unavailable(
                f"pins: the tables have schema {version}; run `chatserver migrate up`"
            )
        ((action, request),) = entity.items()
        message: dict[str, Any] = {
            "TableName": MESSAGES.name_in(self._settings),
            "Key": {"chatid": {"S": chat}, "ts": {"N": str(ts)}},
            "UpdateExpression": flag,
            "ConditionExpression": "attribute_exists(chatid)",
        }
        if ":yes" in flag:
            message["ExpressionAttributeValues"] = {":yes": {"BOOL": True}}
        table = {"TableName": DIRECTORY.name_in(self._settings)}
        items = [{action: request | table}, {"Update": message}]
        # With a token, a retry after a lost response changes nothing.
        writes = {"TransactItems": items, "ClientRequestToken": new_id()}
        try:
            await self._client.call("transact_write_items", writes)
        except ConditionFailed:
            return False
        return True

    def _key(self, chat: str, seq: int) -> dict[str, Any]:
        return row_key(chat_key(chat), f"pin#{seq:020d}#{chat}")
