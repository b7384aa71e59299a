"""Pinned messages: items of table `directory` with the sort key prefix ``pin``.

    PK "c#<chat>"  SK "pin#<seq, 20 digits>#<chat>"  ts N  created N (ms)
    PK "c#<chat>"  SK "pins#<chat>"                  pins N: number of pins

Pinning writes both items in one transaction, on condition that the message is not pinned and the
limit is not reached; unpinning works likewise. So the counter is always exact, and a retry changes
nothing. The keys end with the chat id because index `by_member` inverts them: a common sort key
would be a single partition there.

Older releases neither read nor write this prefix: members are between ``c#`` and ``m$``, and bans
and reports have their own prefixes. A pin contains no user, so erasure does not affect it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import Conflict, Unavailable
from chatserver.warm.chats.records import chat_key, row_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.schema import versions
from chatserver.warm.schema.active_version import KnownSchema
from chatserver.warm.schema.migrated_attributes import PinField as Field
from chatserver.warm.schema.tables import DIRECTORY

PIN_PREFIX: Final = "pin#"
AFTER_PINS: Final = "pin$"  # '$' follows '#'
PINS_MAX: Final = 50  # per chat


class Pin(NamedTuple):
    """A pinned message: its position in the chat and the time of pinning (ms)."""

    seq: int
    ts: int
    created_ms: int


class Pins:
    """Repository of pinned messages."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._table = DIRECTORY.name_in(settings)
        self._acts_by = versions.acting_version(settings)
        self._known = KnownSchema(client, settings, clock)

    async def pin(self, chat: str, seq: int, ts: int) -> bool:
        """Pin the message at `seq`; return False if it is already pinned.

        Guarantees:
            Atomic. A chat never has more than `PINS_MAX` pins, even with concurrent writers.
            Cost: one transaction of two items, 6 write units with the index (8 for the first pin).

        Raises:
            Conflict: the chat has the maximum number of pins.
            Unavailable: the message may be pinned, or not; or the schema does not allow pins yet.
        """
        await self._check_schema()
        item = self._key(chat, seq) | {
            Field.TS: {"N": str(ts)},
            Field.CREATED: {"N": str(int(self._clock.time() * 1000))},
        }
        put = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        count = self._count(chat, 1, "attribute_not_exists(#pins) OR #pins < :max")
        count["ExpressionAttributeValues"] |= {":max": {"N": str(PINS_MAX)}}
        try:
            await self._transact([{"Put": put}, {"Update": count}])
        except ConditionFailed as exc:
            if exc.stored[0] is not None:
                return False
            raise Conflict(f"pins: a chat has at most {PINS_MAX}") from None
        return True

    async def unpin(self, chat: str, seq: int) -> bool:
        """Unpin a message; return False if it is not pinned. Guarantees as `pin`."""
        await self._check_schema()
        delete = {
            "TableName": self._table,
            "Key": self._key(chat, seq),
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        count = self._count(chat, -1, "#pins > :none")
        count["ExpressionAttributeValues"] |= {":none": {"N": "0"}}
        try:
            await self._transact([{"Delete": delete}, {"Update": count}])
        except ConditionFailed:
            return False
        return True

    async def list_pins(self, chat: str) -> list[Pin]:
        """Return a chat's pins in message order. Strongly consistent, one Query."""
        span = Span(DIRECTORY, chat_key(chat), between=(PIN_PREFIX, AFTER_PINS))
        request = {**span.query(self._settings), "ConsistentRead": True}
        return [_pin_of(item) for item in (await self._client.call("query", request))["Items"]]

    async def _check_schema(self) -> None:
        """Check that the schema of the tables and of this process supports pins.

        Raises:
            Unavailable: the migration is not done, or this process uses an older schema version.
        """
        if self._acts_by < versions.PINS:
            raise Unavailable(f"pins: this process uses schema {self._acts_by}")
        if (version := await self._known.get_version()) < versions.PINS:
            raise Unavailable(
                f"pins: the tables have schema {version}; run `chatserver migrate up`"
            )

    async def _transact(self, actions: list[dict[str, Any]]) -> None:
        # The token makes the call idempotent if it is retried after a lost response.
        request = {"TransactItems": actions, "ClientRequestToken": new_id()}
        await self._client.call("transact_write_items", request)

    def _key(self, chat: str, seq: int) -> Item:
        return row_key(chat_key(chat), f"{PIN_PREFIX}{seq:020d}#{chat}")

    def _count(self, chat: str, change: int, condition: str) -> dict[str, Any]:
        return {
            "TableName": self._table,
            "Key": row_key(chat_key(chat), f"pins#{chat}"),
            "UpdateExpression": "ADD #pins :change",
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {"#pins": Field.PINS},
            "ExpressionAttributeValues": {":change": {"N": str(change)}},
        }


def _pin_of(item: Item) -> Pin:
    seq = int(item[Field.SK]["S"].split("#")[1])
    return Pin(seq, int(item[Field.TS]["N"]), int(item[Field.CREATED]["N"]))
