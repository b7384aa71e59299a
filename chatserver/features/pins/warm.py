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

from typing import Final

from chatserver.features.pins.model import PINS_MAX, Pin, PinCount, PinOutcome
from chatserver.features.pins.tables import PinField as Field
from chatserver.warm.chats.directory_items import chat_key
from chatserver.warm.dynamo.client import Action, ConditionFailed, DynamoClient
from chatserver.warm.dynamo.codecs import Codec, StoredField
from chatserver.warm.dynamo.conditions import Add, Attr, Change, Condition
from chatserver.warm.dynamo.paging import Span
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.messages.chat_partition_reads import build_key
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.schema.tables import DIRECTORY, MESSAGES, MessageField

PREFIX: Final = "pin#"
AFTER_PINS: Final = "pin$"  # '$' follows '#'
PIN: Final = Codec(
    Pin, "c#{chat}", "pin#{seq:020d}#{chat}", ts=Field.TS, pinned_at_ms=Field.PINNED_AT
)
PIN_COUNT: Final = Codec(
    PinCount,
    "c#{chat}",
    "pins#{chat}",
    pins=Field.PINS,
    request=StoredField(Field.REQUEST, absent=""),
)
_HAS_PINS: Final = Attr(Field.PINS) > 0


class PinRows:
    """Reads and writes pins."""

    def __init__(self, client: DynamoClient, shards: ShardedChats) -> None:
        self._client = client
        self._shards = shards
        self._table = Table(client, DIRECTORY)
        self._messages = Table(client, MESSAGES)

    async def add(self, chat: str, pin: Pin, request: str, *, has_item: bool = True) -> PinOutcome:
        """Store a pin. With `has_item`, also set `pinned` in the message's item.

        Guarantees:
            Atomic: pin, pin count and `pinned` are all written, or none of them is.
            At most `PINS_MAX` pins per chat, even with concurrent requests.

        Raises:
            Unavailable: the pin may or may not be stored.
        """
        item = PIN.encode(pin, chat=chat)
        has_room = Attr(Field.PINS).is_absent | (Attr(Field.PINS) < PINS_MAX)
        actions = [
            self._table.put_action(item, if_=Attr(Field.PK).is_absent, keeps_stored=True),
            self._build_count_update(chat, 1, request, has_room),
        ]
        if has_item:
            actions.append(await self._build_flag_update(chat, pin.ts, is_pinned=True))
        try:
            await self._client.transact(actions)
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
        key = PIN.key(chat=chat, seq=pin.seq)
        actions = [
            self._table.delete_action(key, if_=Attr(Field.PK).exists),
            self._build_count_update(chat, -1, request, _HAS_PINS),
        ]
        if has_item:
            actions.append(await self._build_flag_update(chat, pin.ts, is_pinned=False))
        return await try_write(self._client.transact(actions))

    async def find(self, chat: str, seq: int) -> Pin | None:
        """Return a message's pin, or None. Strongly consistent."""
        item = await self._table.find(PIN.key(chat=chat, seq=seq))
        return PIN.decode(item) if item else None

    async def get_count(self, chat: str) -> PinCount:
        """Return a chat's pin count. Strongly consistent."""
        item = await self._table.find(PIN_COUNT.key(chat=chat))
        return PIN_COUNT.decode(item) if item else PinCount()

    async def list(self, chat: str, before: int | None, limit: int) -> list[Pin]:
        """Return up to `limit` pins, highest seq first. With `before`, only pins with a lower seq.

        Guarantees:
            Strongly consistent. Cost: one Query.
        """
        high = AFTER_PINS if before is None else f"{PREFIX}{before:020d}"
        span = Span(DIRECTORY, chat_key(chat), between=(PREFIX, high))
        rows = await self._table.query(span, limit=limit, is_newest_first=True)
        return [PIN.decode(row) for row in rows]

    def _build_count_update(
        self, chat: str, change: int, request: str | None, condition: Condition
    ) -> Action:
        changes: dict[str, Change] = {Field.PINS: Add(change)}
        if request is not None:
            changes[Field.REQUEST] = request
        key = PIN_COUNT.key(chat=chat)
        return self._table.update_action(key, changes, if_=condition, keeps_stored=True)

    async def _build_flag_update(self, chat: str, ts: int, *, is_pinned: bool) -> Action:
        """Build the update of a message's `pinned` flag. It fails if the message has no item."""
        key = build_key(await self._shards.get_for_keys(ts), chat, ts)
        changes = {MessageField.PINNED: is_pinned or None}
        return self._messages.update_action(key, changes, if_=Attr(MessageField.SEQ).exists)
