"""Pin items in the `directory` table, and the flag of pinned messages in the `messages` table.

| record    | table       | partition  | sort                           | attributes        |
|-----------|-------------|------------|--------------------------------|-------------------|
| pin       | `directory` | `c#<chat>` | `pin#<seq, 20 digits>#<chat>`  | `ts pinned_at`    |
| pin count | `directory` | `c#<chat>` | `pins#<chat>`                  | `pins request`    |
| flag      | `messages`  | `<chat>`   | `ts`                           | `pinned`          |

One transaction writes all three, so the count is exact. The sort keys are outside the range of a
chat's member keys (`c#` to `m$`). They end with the chat id because the `by_member` index uses the
sort key as its partition key: if all chats had the same key, that partition would be hot.

The pin item is authoritative. When a message with the flag is deleted, the persist worker deletes
its pin. An archived message has no item in `messages`, and so no flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chatserver.config import Warm
from chatserver.features.pins.model import PINS_MAX, Pin, PinCount, PinOutcome
from chatserver.warm.chats.directory_items import chat_key, row_key
from chatserver.warm.dynamo.client import ConditionFailed, DynamoClient, Item
from chatserver.warm.dynamo.item_attributes import get_number
from chatserver.warm.dynamo.items import find_item, write_conditionally
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.messages.chat_partition_reads import build_key
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.directory_attributes import PinField as Field
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, MessageField

PREFIX: Final = "pin#"
AFTER_PINS: Final = "pin$"  # '$' follows '#'


class PinRows:
    """Reads and writes pins."""

    def __init__(self, client: DynamoClient, settings: Warm, shards: ShardedChats) -> None:
        self._client = client
        self._settings = settings
        self._shards = shards
        self._table = DIRECTORY.name_in(settings)

    async def add(self, chat: str, pin: Pin, request: str, *, has_item: bool = True) -> PinOutcome:
        """Store a pin. With `has_item`, also set `pinned` in the message's item.

        Guarantees:
            Atomic: pin, pin count and `pinned` are all written, or none of them is.
            At most `PINS_MAX` pins per chat, even with concurrent requests.

        Raises:
            Unavailable: the pin may or may not be stored.
        """
        item = row_key(chat_key(chat), sort_key(chat, pin.seq)) | {
            Field.TS: {"N": str(pin.ts)},
            Field.PINNED_AT: {"N": str(pin.pinned_at_ms)},
        }
        put = {
            "TableName": self._table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        bound = "(attribute_not_exists(#pins) OR #pins < :max)"
        count = self._build_count_update(chat, 1, request, bound, {":max": {"N": str(PINS_MAX)}})
        actions = [{"Put": put}, {"Update": count}]
        if has_item:
            actions.append({"Update": await self._build_flag_update(chat, pin.ts, is_pinned=True)})
        try:
            await self._client.call("transact_write_items", {"TransactItems": actions})
        except ConditionFailed as exc:
            if exc.stored[0] is not None:
                return PinOutcome.KNOWN
            return PinOutcome.FULL if exc.stored[1] is not None else PinOutcome.NO_ITEM
        return PinOutcome.ADDED

    async def remove(self, chat: str, pin: Pin, request: str | None) -> bool:
        """Delete a pin; return False if it does not exist.

        `request` is the digest to store with the pin count; None keeps the stored digest.

        Guarantees:
            Atomic: pin, pin count and `pinned` are all changed, or none of them is.

        Raises:
            Unavailable: the pin may or may not be deleted.
        """
        return await self._remove(chat, pin, request, has_item=True) or await self._remove(
            chat, pin, request, has_item=False
        )

    async def _remove(self, chat: str, pin: Pin, request: str | None, *, has_item: bool) -> bool:
        delete = {
            "TableName": self._table,
            "Key": row_key(chat_key(chat), sort_key(chat, pin.seq)),
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": Field.PK},
        }
        actions = [
            {"Delete": delete},
            {"Update": self._build_count_update(chat, -1, request, "#pins > :none")},
        ]
        if has_item:
            actions.append({"Update": await self._build_flag_update(chat, pin.ts, is_pinned=False)})
        return await write_conditionally(
            self._client, "transact_write_items", {"TransactItems": actions}
        )

    async def find(self, chat: str, seq: int) -> Pin | None:
        """Return a message's pin, or None. Strongly consistent."""
        item = await self._get(chat, sort_key(chat, seq))
        return _decode(item) if item else None

    async def get_count(self, chat: str) -> PinCount:
        """Return a chat's pin count. Strongly consistent."""
        item = await self._get(chat, _count_key(chat))
        if not item:
            return PinCount()
        return PinCount(get_number(item, Field.PINS), item.get(Field.REQUEST, {"S": ""})["S"])

    async def list(self, chat: str, before: int | None, limit: int) -> list[Pin]:
        """Return up to `limit` pins, highest seq first. With `before`, only pins with a lower seq.

        Guarantees:
            Strongly consistent. Cost: one Query.
        """
        high = AFTER_PINS if before is None else f"{PREFIX}{before:020d}"
        span = Span(DIRECTORY, chat_key(chat), between=(PREFIX, high))
        request = {
            **span.query(self._settings),
            "ConsistentRead": True,
            "ScanIndexForward": False,
            "Limit": limit,
        }
        return [_decode(row) for row in (await self._client.call("query", request))["Items"]]

    async def _get(self, chat: str, sort: str) -> Item:
        key = row_key(chat_key(chat), sort)
        return await find_item(self._client, self._table, key) or {}

    def _build_count_update(
        self,
        chat: str,
        change: int,
        request: str | None,
        condition: str,
        values: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        names = {"#pins": Field.PINS}
        all_values = {":change": {"N": str(change)}, **(values or {":none": {"N": "0"}})}
        update = "ADD #pins :change"
        if request is not None:
            update += " SET #request = :request"
            names["#request"] = Field.REQUEST
            all_values[":request"] = {"S": request}
        return {
            "TableName": self._table,
            "Key": row_key(chat_key(chat), _count_key(chat)),
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": all_values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    async def _build_flag_update(self, chat: str, ts: int, *, is_pinned: bool) -> dict[str, Any]:
        """Build the update of a message's `pinned` flag. It fails if the message has no item."""
        update: dict[str, Any] = {
            "TableName": MESSAGES.name_in(self._settings),
            "Key": build_key(await self._shards.get_for_keys(ts), chat, ts),
            "UpdateExpression": "SET #pinned = :yes" if is_pinned else "REMOVE #pinned",
            "ConditionExpression": "attribute_exists(#seq)",
            "ExpressionAttributeNames": {
                "#pinned": MessageField.PINNED,
                "#seq": MessageField.SEQ,
            },
        }
        if is_pinned:
            update["ExpressionAttributeValues"] = {":yes": {"BOOL": True}}
        return update


def sort_key(chat: str, seq: int) -> str:
    """Return the sort key of a pin."""
    return f"{PREFIX}{seq:020d}#{chat}"


def _count_key(chat: str) -> str:
    return f"pins#{chat}"


def _decode(item: Item) -> Pin:
    seq = int(item[Field.SK]["S"].split("#")[1])
    return Pin(seq, get_number(item, Field.TS), get_number(item, Field.PINNED_AT))
