"""Changes to stored messages: edits, deletes and reactions, applied by seq.

`chatserver.warm.messages.messages` defines the items. An item is read, changed by
`chatserver.protocol.message_change_effects`, and written if its `rev` is unchanged. Repeated and
outdated changes have no effect, so every order of changes yields the same item.

If an archived entry changes, its item is created again. For readers, the item takes precedence over
the archive segment, until the archive worker writes the change into the segment. The item has no
`ttl`, so that TTL does not delete it before then. The same applies to restored entries, which
already have items.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from chatserver.domain.clock import Clock, SystemClock
from chatserver.errors import Unavailable
from chatserver.protocol.frames import Attachment, Message
from chatserver.protocol.message_change_effects import apply_entry, build_tombstone
from chatserver.warm.chats.legal_holds import Holds
from chatserver.warm.dynamo.client import DynamoClient, Item
from chatserver.warm.dynamo.conditions import Attr, Change, Raw
from chatserver.warm.dynamo.optimistic_writes import retry_lost_races
from chatserver.warm.dynamo.table import Table, try_write
from chatserver.warm.messages.chat_partition_reads import ChatPartitionReads
from chatserver.warm.messages.long_bodies import Bodies, NoBodies, get_object_key
from chatserver.warm.messages.messages import (
    PersistItem,
    decode_item,
    decode_items,
    encode_item,
)
from chatserver.warm.messages.sharded_chats import ShardedChats
from chatserver.warm.messages.ttl import NO_EXPIRY, ItemRetention
from chatserver.warm.schema.tables import MESSAGES
from chatserver.warm.schema.tables import MessageField as Field

TRIES_MAX = 8

# Attributes that are not part of the message. A change of the message keeps them.
_ITEM_ONLY = {Field.RESTORED, Field.PINNED}
_KNOWN = {name for constant, name in vars(Field).items() if constant.isupper()} - _ITEM_ONLY


class Archived(Protocol):
    """Access to archived entries."""

    async def find_at(self, chat: str, ts: int) -> Message | None: ...

    async def record_late(self, chat: str) -> None: ...


Release = Callable[[int, Sequence[Attachment]], Awaitable[None]]
ReleasePin = Callable[[str, int, int], Awaitable[None]]


class MessageChanges:
    """Changes items in table `messages`."""

    def __init__(
        self,
        client: DynamoClient,
        release: Release | None = None,
        archived: Archived | None = None,
        holds: Holds | None = None,
        shards: ShardedChats | None = None,
        retention: ItemRetention = NO_EXPIRY,
        clock: Clock | None = None,
        bodies: Bodies | None = None,
        release_pin: ReleasePin | None = None,
    ) -> None:
        """Create the writer.

        `release` is called with a message's seq and its removed attachments, possibly more than
        once. `release_pin` is called with the chat, seq and ts of a deleted pinned message.
        """
        self._release_pin = release_pin
        self._holds = holds
        self._retention = retention
        self._clock = clock or SystemClock()
        self._archived = archived
        self._bodies = bodies or NoBodies()
        self._release = release
        self._table = Table(client, MESSAGES)
        self._rows = ChatPartitionReads(client, None, shards)

    async def apply(self, chat: str, ts: int, entries: Sequence[Message]) -> None:
        """Apply `entries`, sorted by seq, to the message at `ts`, if that message exists.

        Guarantees:
            Idempotent; an entry that is not newer than the item's `rev` has no effect.
            Cancellation: safe; all entries are applied, or none.
            Cost: one GetItem and one UpdateItem for any number of entries; for an archived entry,
            one archive read and two writes.

        Raises:
            Unavailable: the entries may or may not have been applied.
        """

        def change(message: Message) -> Message:
            for entry in entries:
                message = apply_entry(message, entry)
            return message

        await self._apply(chat, ts, change)

    async def replay(self, item: PersistItem) -> bool:
        """Store an entry that could not be persisted, in place of its tombstone.

        Return False if the tombstone has changed or may have been archived.

        Guarantees:
            Idempotent: a repeated call also returns True. Later changes are never overwritten.

        Raises:
            CorruptData: the entry cannot be encoded.
            Unavailable: it is unknown whether the entry was stored.
        """
        (short,) = await self._bodies.offload([encode_item(item)])
        encoded = await self._rows.add_partition_key(short)
        archived_ttl_max = self._retention.get_archived_ttl_max(self._clock.time())
        is_tombstone = (
            (Attr(Field.REV) == item.message.seq)
            & (Attr(Field.DELETED) == True)  # noqa: E712  # a condition
            & (Attr(Field.TTL).is_absent | (Attr(Field.TTL) > archived_ttl_max))
        )
        is_stored = (Attr(Field.MID) == Raw(encoded[Field.MID])) & (
            Attr(Field.REV) == Raw(encoded[Field.REV])
        )
        return await try_write(self._table.put(encoded, if_=is_tombstone | is_stored))

    async def clear_edit(self, chat: str, ts: int, rev: int) -> None:
        """Remove the body of the edit at `ts`, because the entry with seq `rev` has replaced it.

        For guarantees and errors, see `apply`.
        """

        def change(entry: Message) -> Message:
            return build_tombstone(entry, rev) if entry.rev < rev else entry

        await self._apply(chat, ts, change)

    async def _apply(self, chat: str, ts: int, change: Callable[[Message], Message]) -> None:
        key = await self._rows.build_key(chat, ts)

        async def attempt() -> None:
            item = await self._table.find(key)
            message = await self._find_archived(chat, ts) if item is None else decode_item(item)
            if message is None:
                return
            changed = change(message)
            if changed == message:
                if message.deleted:  # a crash may have left the deleted body in S3
                    await self._bodies.drop_all(chat, ts)
                return
            is_lost = (
                message.body != changed.body
                or message.attachments != changed.attachments
                or (changed.deleted and item is not None and get_object_key(item) is not None)
            )
            if is_lost and await self._copy_if_held(message, item):
                pass  # the legal hold copy needs the attachments
            elif self._release is not None and message.attachments and not changed.attachments:
                # Release the files first: once the message has no attachments, a retry cannot find
                # them.
                await self._release(message.seq, message.attachments)
            is_pinned = item is not None and Field.PINNED in item
            if self._release_pin is not None and is_pinned and changed.deleted:
                await self._release_pin(chat, message.seq, ts)
            if item is None:
                await self._put_late(changed)
                return
            is_late = self._retention.may_be_archived(item, self._clock.time())
            if (is_late or Field.RESTORED in item) and self._archived is not None:
                # The archive segment contains this entry too and needs the change.
                await self._archived.record_late(chat)
            await self._update(key, item, message, changed, is_late=is_late)

        error = Unavailable(f"message at {ts} in {chat}: too many concurrent changes; try again")
        await retry_lost_races(attempt, error, attempts_max=TRIES_MAX)

    async def _update(
        self,
        key: Item,
        item: Item,
        message: Message,
        changed: Message,
        *,
        is_late: bool,
    ) -> None:
        """Write the changed message to its item. Raises ConditionFailed if `item` is outdated."""
        old = get_object_key(item)
        desired = await encode_changed(item, message, changed, self._bodies)
        is_unchanged = Attr(Field.REV) == Raw(item[Field.REV])
        await self._table.update(
            key, _build_changes(item, desired, is_late=is_late), if_=is_unchanged
        )
        if old is not None and old != get_object_key(desired):
            await self._bodies.drop(old)

    async def _copy_if_held(self, version: Message, item: Item | None) -> bool:
        """Copy a message version if its chat is under a legal hold; return True if copied."""
        if self._holds is None or not await self._holds.is_held(version.chat):
            return False
        whole = [version] if item is None else await decode_items([item], self._bodies)
        await self._holds.copy_versions(whole)
        return True

    async def _find_archived(self, chat: str, ts: int) -> Message | None:
        return None if self._archived is None else await self._archived.find_at(chat, ts)

    async def _put_late(self, changed: Message) -> None:
        """Store the changed form of an archived entry. Raises ConditionFailed if an item exists."""
        if self._archived is not None:
            await self._archived.record_late(changed.chat)
        (short,) = await self._bodies.offload([encode_item(PersistItem(changed, None))])
        entry = await self._rows.add_partition_key(short)
        await self._table.put(entry, if_=Attr(Field.CHAT).is_absent)


async def encode_changed(item: Item, message: Message, changed: Message, bodies: Bodies) -> Item:
    """Return the item of `changed`, which was `message` with `item`. Its body may be in S3.

    A body that has not changed was not loaded, so the item keeps the pointer to its object.
    """
    receiver = item.get(Field.RECEIVER)
    user = None if receiver is None else str(receiver["S"])
    encoded = encode_item(PersistItem(changed, user))
    has_its_text = not changed.deleted and changed.edited_seq == message.edited_seq
    if get_object_key(item) is None or not has_its_text:
        (encoded,) = await bodies.offload([encoded])
        return encoded
    pointer = (Field.BODY, Field.BODY_SHA256, Field.BODY_BYTES)
    encoded |= {name: item[name] for name in pointer}
    encoded.pop(Field.SUM, None)  # the checksum covers the body, which is not available here
    return encoded


def _build_changes(item: Item, desired: Item, *, is_late: bool) -> dict[str, Change]:
    """Return the changes from `item` to `desired`.

    Attributes unknown to this release are kept, because a newer release added them. `ttl` is kept
    too, unless the entry may have been archived (`is_late`).
    """
    desired = {**desired, Field.CHAT: item[Field.CHAT]}  # the item stays in its shard
    desired.pop(Field.TTL, None)
    attributes = _KNOWN if is_late else _KNOWN - {Field.TTL}
    # Includes attributes that `item` lacks: a migration may have added them without a new `rev`.
    changes: dict[str, Change] = dict.fromkeys(sorted(attributes - desired.keys()))
    for name, value in desired.items():
        if item.get(name) != value:
            changes[name] = Raw(value)
    return changes
