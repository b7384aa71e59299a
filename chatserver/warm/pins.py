"""Messages that a chat keeps in view: rows of table `directory`, behind sort key prefix ``pin``.

    PK "c#<chat>"  SK "pin#<seq, 20 digits>#<chat>"  ts N  created N (ms)
    PK "c#<chat>"  SK "pins#<chat>"                  pins N: how many there are

Pinning writes both rows in one transaction, on the condition that the message is not pinned and
that there is room; taking a pin away likewise. So the count is the number of rows at every moment,
and a repeat changes nothing. The keys end with the chat's id because index `by_member` has them
turned round: a common sort key would be one partition there.

Nothing of an older release reads or writes behind this prefix: members are between ``c#`` and
``m$``, and bans and reports have prefixes of their own. No user is named in a pin, so there is
nothing to erase.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from chatserver.config import Warm
from chatserver.domain.clock import Clock
from chatserver.domain.ids import new_id
from chatserver.errors import Conflict, Unavailable
from chatserver.warm import versions
from chatserver.warm.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.fields import PinField as Field
from chatserver.warm.paging import Span
from chatserver.warm.records import chat_key, row_key
from chatserver.warm.schema import KnownSchema
from chatserver.warm.tables import DIRECTORY

PIN_PREFIX: Final = "pin#"
AFTER_PINS: Final = "pin$"  # '$' follows '#'
PINS_MAX: Final = 50  # of one chat


class Pin(NamedTuple):
    """A pinned message: its place in the chat, and since when it is pinned (ms)."""

    seq: int
    ts: int
    created_ms: int


class Pins:
    """Reads and writes the rows."""

    def __init__(self, client: DynamoClient, settings: Warm, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._table = DIRECTORY.name_in(settings)
        self._acts_by = versions.acting_version(settings)
        self._known = KnownSchema(client, settings, clock)

    async def pin(self, chat: str, seq: int, ts: int) -> bool:
        """Pin the message at `seq`; False if it is pinned already.

        Guarantees:
            Whole or not at all. A chat never has more than `PINS_MAX`, whoever else is at it.
            Cost: one transaction of two rows, 6 write units with the index (8 for the first).

        Raises:
            Conflict: the chat has as many as it may.
            Unavailable: it may be pinned, or not; or pins are not to be written yet.
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
        """Take a pin away; False if there is none. As `pin`."""
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
        """Return a chat's pins, in the order of the messages. Consistent, one Query."""
        span = Span(DIRECTORY, chat_key(chat), between=(PIN_PREFIX, AFTER_PINS))
        request = {**span.query(self._settings), "ConsistentRead": True}
        return [_pin_of(item) for item in (await self._client.call("query", request))["Items"]]

    async def _check_schema(self) -> None:
        """See that nobody who may use the tables would be surprised by pins.

        Raises:
            Unavailable: the migration is not done, or this process acts as one of before it.
        """
        if self._acts_by < versions.PINS:
            raise Unavailable(f"pins: this process acts by schema {self._acts_by}")
        if (version := await self._known.get_version()) < versions.PINS:
            raise Unavailable(
                f"pins: the tables have schema {version}; `chatserver migrate up` brings pins"
            )

    async def _transact(self, actions: list[dict[str, Any]]) -> None:
        # With a token: a try whose answer was lost and the next one are one and the same.
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
