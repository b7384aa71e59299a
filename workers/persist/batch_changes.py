"""Changes (edits, deletes, reactions) in a batch of the backlog, applied in memory. No I/O.

If a change and its message are in the same BatchWriteItem call, the change is applied to the
message in memory, so the message is written once. Other changes are grouped by message and applied
after all entries are stored, because until then Redis may lose a change and assign its seq to
another entry.
Exception: text that was deleted or replaced before it was stored is never written.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence, Set
from typing import NamedTuple

from chatserver.domain.ids import ChatId, GatewayId
from chatserver.hot.chats.persist_backlog import CommittedMessage
from chatserver.protocol.frames import Attachment, Message
from chatserver.protocol.message_change_effects import (
    MESSAGE_CHANGE_KINDS,
    apply_entry,
    build_tombstone,
)
from chatserver.warm.messages.messages import PersistItem


class EntryWrite(NamedTuple):
    """An entry to write, and the gateway that received it.

    If the entry cannot be decoded, `why` is the reason and `item` is a tombstone. With
    `may_be_stored`, Redis may have lost the checkpoint of this entry.
    """

    gateway: GatewayId
    committed: CommittedMessage
    item: PersistItem
    why: str = ""
    may_be_stored: bool = False

    @property
    def key(self) -> MessageKey:
        return MessageKey(self.item.message.chat, self.item.message.ts)

    @property
    def chat(self) -> ChatId:
        return ChatId(self.item.message.chat)


class MessageKey(NamedTuple):
    """Key of a message in the warm tier."""

    chat: str
    ts: int


@dataclasses.dataclass(frozen=True, slots=True)
class BatchEffects:
    """The writes for a batch: first the entries, then changes to stored entries."""

    writes: list[EntryWrite]
    changes: dict[MessageKey, list[Message]]
    cleared: dict[
        MessageKey, int
    ]  # edit whose text was removed → seq of the entry that replaced it
    lost: list[tuple[int, list[Attachment]]]  # deleted messages in the batch: seq and files


def coalesce_unstored(
    writes: Sequence[EntryWrite], stored: Set[MessageKey], batch_size: int
) -> BatchEffects:
    """Coalesce as `coalesce` does, but write none of the entries in `stored` again.

    Changes among them are applied again: the process may have died before it applied them.
    """
    if not stored:
        return coalesce(writes, batch_size)
    fresh = [
        w for w in writes if w.key not in stored or w.item.message.kind in MESSAGE_CHANGE_KINDS
    ]
    coalesced = coalesce(fresh, batch_size)
    # A stored edit that a later one replaces is written again, as a tombstone.
    unstored = [
        write
        for before, write in zip(fresh, coalesced.writes, strict=True)
        if before.key not in stored or write.item != before.item
    ]
    return dataclasses.replace(coalesced, writes=unstored)


def coalesce(writes: Sequence[EntryWrite], batch_size: int) -> BatchEffects:
    """Apply the changes among `writes` in memory; return what must be written.

    `writes` are in commit order, and will be written `batch_size` at a time.

    Guarantees:
        The stored messages do not depend on how the backlog is divided into batches.
    """
    coalesced = BatchEffects(list(writes), {}, {}, [])
    if not any(write.committed.target_ts for write in writes):
        return coalesced
    positions = {
        MessageKey(write.item.message.chat, write.item.message.ts): n
        for n, write in enumerate(writes)
    }
    for number, write in enumerate(writes):
        entry, committed = write.item.message, write.committed
        if entry.kind not in MESSAGE_CHANGE_KINDS or not committed.target_ts or write.why:
            continue
        target = MessageKey(entry.chat, committed.target_ts)
        index = positions.get(target)
        if index is not None and (
            entry.kind == "delete" or index // batch_size == number // batch_size
        ):
            message = coalesced.writes[index].item.message
            changed = apply_entry(message, entry)
            if message.attachments and not changed.attachments:
                coalesced.lost.append((message.seq, message.attachments))
            _replace(coalesced.writes, index, changed)
        else:
            coalesced.changes.setdefault(target, []).append(entry)
        if committed.replaced_ts:
            replaced = MessageKey(entry.chat, committed.replaced_ts)
            index = positions.get(replaced)
            if index is not None:
                edit = coalesced.writes[index].item.message
                _replace(coalesced.writes, index, build_tombstone(edit, entry.seq))
            else:
                coalesced.cleared[replaced] = entry.seq
    return coalesced


def _replace(writes: list[EntryWrite], index: int, message: Message) -> None:
    item = writes[index].item
    writes[index] = writes[index]._replace(item=PersistItem(message, item.receiver))


_NAMES = {
    name: re.compile(rb'"%b":"([A-Za-z0-9_.-]{1,64})"' % name.encode())
    for name in ("chat", "mid", "sender", "ref", "kind")
}


def build_replacement_tombstone(raw: CommittedMessage) -> Message | None:
    """Return the tombstone to store for an entry that cannot be persisted.

    Return None if not even the chat id can be decoded.
    """
    head = raw.tail.partition(b'"body":')[0]
    fields = {
        name: match[1].decode()
        for name, pattern in _NAMES.items()
        if (match := pattern.search(head))
    }
    if "chat" not in fields:
        return None
    return Message(
        seq=raw.seq,
        ts=raw.ts,
        chat=fields["chat"],
        mid=fields.get("mid", "-"),
        sender=fields.get("sender", "-"),
        ref=fields.get("ref", "-"),
        kind=fields.get("kind", "text"),
        body="",
        rev=raw.seq,
        deleted=True,
    )
