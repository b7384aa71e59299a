"""Checks TTL removals from table `messages`, and restores items that were removed too early.

::

    removed item ─► its text has expired                      ─► correct
                 ─► the archive has it, at its `rev` or newer ─► correct: the common case
                 ─► anything else                             ─► restored, and archived again

The common case needs no read: the last archived seq of a chat is cached, and an object is read only
if the entry has been changed since it was sent.

A restored item has no `ttl`: the archive worker archives and removes it. While the item is missing,
changes to it have no effect. Changes are therefore read and applied before the restore, and again
`settle_s` later, when all writes that found the item missing have completed.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Sequence
from typing import Final, Literal

import structlog

from chatserver.cold.segment_objects import SegmentObjects
from chatserver.domain.clock import Clock
from chatserver.errors import CorruptData
from chatserver.protocol import expired_messages
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import MESSAGE_CHANGE_KINDS, apply_entry
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.telemetry import metrics
from chatserver.telemetry.failpoints import failpoint
from chatserver.warm.archive.archivable_entries import ArchivableEntries
from chatserver.warm.archive.manifests import Manifests
from chatserver.warm.dynamo.client import Item
from chatserver.warm.messages.message_changes import MessageChanges
from chatserver.warm.messages.messages import decode_item
from chatserver.warm.messages.removed_messages import RemovedMessages

log = structlog.get_logger()

TOPS_MAX: Final = 50_000
TRIES_MAX: Final = 4

Found = Literal["expired", "archived", "missing"]


class TtlRemovalClassifier:
    """Decides whether TTL was right to remove a message: it has expired, or the archive has it."""

    def __init__(self, manifests: Manifests, objects: SegmentObjects, clock: Clock) -> None:
        self._manifests = manifests
        self._objects = objects
        self._clock = clock
        self._tops: collections.OrderedDict[str, int] = collections.OrderedDict()

    async def classify(self, message: Message) -> Found:
        """Return whether a removed message has expired, is archived at its `rev`, or is missing.

        Raises:
            Unavailable: a store does not respond.
        """
        if expired_messages.has_expired(message, self._clock.time()):
            return "expired"
        if message.expires_at is not None and not message.deleted:
            return "missing"  # the archive has no text of messages that expire
        if message.seq > await self._get_top(message):
            return "missing"
        if not message.rev:
            return "archived"  # the message was not changed, so the archived form is current
        return "archived" if await self._has_rev(message) else "missing"

    async def _get_top(self, message: Message) -> int:
        top = self._tops.get(message.chat, 0)
        if message.seq > top:
            top = (await self._manifests.get_top(message.chat)).seq
            self._tops[message.chat] = top
            if len(self._tops) > TOPS_MAX:
                self._tops.popitem(last=False)
        self._tops.move_to_end(message.chat)
        return top

    async def _has_rev(self, message: Message) -> bool:
        for _ in range(TRIES_MAX):
            rows = await self._manifests.list_covering(message.chat, message.seq, message.seq)
            try:
                entries = await self._objects.read(rows[0])
            except (CorruptData, IndexError):
                continue  # the object has been replaced since the lookup, or is lost
            return entries[message.seq - rows[0].first].rev >= message.rev
        return False


@dataclasses.dataclass(kw_only=True)
class TtlRemovalHandler:
    """Handles TTL removals. `settle_s` is the longest duration of a concurrent write."""

    classifier: TtlRemovalClassifier
    manifests: Manifests
    archivable: ArchivableEntries
    items: RemovedMessages
    changes: MessageChanges
    entries: WarmAndColdLog
    clock: Clock
    settle_s: float

    async def handle(self, removed: Sequence[Item]) -> None:
        """Restore the removed items that should not have been removed.

        Guarantees:
            Idempotent: an equal or newer item is kept.
            Cancellation: safe; call again with all items.

        Raises:
            Unavailable: a store does not respond; call again with all items.
        """
        missing: dict[str, list[tuple[Item, Message]]] = {}
        for item in await self.items.decrypt(removed):
            try:
                message = decode_item(item)
            except CorruptData as exc:
                log.error("stream.refused", error=exc.message)
                metrics.STREAM_REMOVALS.labels("refused").inc()
                continue
            outcome = await self.classifier.classify(message)
            if outcome == "missing":
                if message.kind in MESSAGE_CHANGE_KINDS:
                    # Load the long body of an edit, because the edit is applied to its message
                    # again.
                    message = await self.items.load(item)
                missing.setdefault(message.chat, []).append((item, message))
            else:
                metrics.STREAM_REMOVALS.labels(outcome).inc()
        for chat, removals in missing.items():
            # Record the chat first: the archive worker must find the restored items after a crash.
            await self.manifests.record_late(chat, int(self.clock.time() * 1000))
            failpoint("stream.before_put_back")
            await self._restore(chat, removals)
            failpoint("stream.after_put_back")
        if missing:
            await asyncio.sleep(self.settle_s)
        for chat, removals in missing.items():
            await self._apply_missed_changes(chat, [message for _, message in removals])

    async def _restore(self, chat: str, removals: Sequence[tuple[Item, Message]]) -> None:
        first = min(message.ts for _, message in removals)
        remaining = list(removals)
        for _ in range(TRIES_MAX):
            since = await self.archivable.list_changes(chat, first)
            is_back = [
                await self.items.restore(item, apply_changes(message, since))
                for item, message in remaining
            ]
            remaining = [
                removal for removal, is_done in zip(remaining, is_back, strict=True) if not is_done
            ]
            if not remaining:
                break
            # The table has a newer item, from a change whose own entry is probably stored soon.
            await asyncio.sleep(self.settle_s / TRIES_MAX)
        for _, message in remaining:
            log.error("stream.refused", chat=chat, seq=message.seq, reason="newer_item_exists")
        count = len(removals) - len(remaining)
        log.warning("stream.items_restored", chat=chat, count=count, first=removals[0][1].seq)
        metrics.STREAM_REMOVALS.labels("refused").inc(len(remaining))
        metrics.STREAM_REMOVALS.labels("returned").inc(count)

    async def _apply_missed_changes(self, chat: str, returned: Sequence[Message]) -> None:
        """Apply later changes to the restored messages.

        If a restored entry is itself a change, apply it to the message that it changes.
        """
        since: dict[int, list[Message]] = {}
        for entry in await self.archivable.list_changes(
            chat, min(removed.ts for removed in returned)
        ):
            since.setdefault(entry.target or 0, []).append(entry)
        for message in returned:
            if entries := since.get(message.seq):
                await self.changes.apply(chat, message.ts, entries)
            if message.kind in MESSAGE_CHANGE_KINDS and message.target and not message.deleted:
                for target in await self.entries.list_after(chat, message.target - 1, 1):
                    await self.changes.apply(chat, target.ts, [message])


def apply_changes(message: Message, entries: Sequence[Message]) -> Message:
    """Return `message` with the changes in `entries` (sorted by seq) applied."""
    for entry in entries:
        if entry.target == message.seq:
            message = apply_entry(message, entry)
    return message
