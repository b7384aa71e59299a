"""Undoes TTL removals: restores items in table `messages` that were removed too early.

Also removes expired items on servers without TTL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from chatserver.protocol.frames import Message
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Raw
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.messages.long_bodies import Bodies, NoBodies, get_object_key
from chatserver.warm.messages.message_changes import encode_changed
from chatserver.warm.messages.messages import decode_item, decode_items
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

PAGE_ITEMS: Final = 500


class RemovedMessages:
    """Items of table `messages` that TTL has removed or may remove."""

    def __init__(self, client: DynamoClient, bodies: Bodies | None = None) -> None:
        self._client = client
        self._bodies = bodies or NoBodies()
        self._table = Table(client, MESSAGES)

    async def decrypt(self, removed: Sequence[Item]) -> list[Item]:
        """Decrypt items from the Stream. Raises Unavailable."""
        return await self._client.decrypt(self._table.name, removed)

    async def restore(self, item: Item, message: Message) -> bool:
        """Restore a removed item, with `message` as content; return False if a newer item exists.

        Unless the message expires, the item gets no `ttl`, so it remains until it is archived.

        Guarantees:
            Idempotent. An existing item that is not newer is replaced, because it was created from
            the archive, without the changes in the removed item.
        """
        restored = await self._make_item(item, message)
        if await try_write(self._table.put(restored, if_=Attr(Field.CHAT).is_absent)):
            return True
        existing = await self._table.find(self._table.get_key(item))
        if existing is None or (stored := decode_item(existing)).rev > message.rev:
            return False
        is_as_read = Attr(Field.REV) == Raw(existing[Field.REV])
        return stored == message or await try_write(self._table.put(restored, if_=is_as_read))

    async def load(self, item: Item) -> Message:
        """Return the message of an item with its long body. Raises Unavailable."""
        return (await decode_items([item], self._bodies))[0]

    async def _make_item(self, item: Item, message: Message) -> Item:
        restored = dict(item)  # keep attributes that a newer release added
        was = decode_item(item)
        has_its_text = get_object_key(item) is not None and was.edited_seq == message.edited_seq
        if has_its_text and not message.deleted:
            message = msgspec.structs.replace(message, body="")
        if was != message:
            restored = await encode_changed(item, was, message, self._bodies)
            restored[Field.CHAT] = item[Field.CHAT]  # the item stays in its shard
        if Field.EXPIRES_AT not in restored:
            restored.pop(Field.TTL, None)
        return restored

    # Removal on servers without TTL.

    def iter_expired(self, now_s: float) -> AsyncIterator[list[Item]]:
        """Iterate over the items whose `ttl` has passed, page by page. Scans the whole table."""
        return self._table.iter_scan(where=Attr(Field.TTL) <= int(now_s), limit=PAGE_ITEMS)

    async def remove(self, item: Item) -> bool:
        """Remove an item if it is unchanged; return False if it has been changed or deleted."""
        has_ttl, has_rev = (Attr(name) == Raw(item[name]) for name in (Field.TTL, Field.REV))
        return await try_write(self._table.delete(self._table.get_key(item), if_=has_ttl & has_rev))
