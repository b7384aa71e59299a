"""Writes a batch to the warm tier, grouped by chat: entries, read marks and changes.

A `Piece` contains the writes for one chat. The days of new messages are recorded first
(`workers.persist.active_day_recorder`). Then the entries of all pieces are written, 25 per call,
one call after the other. So if this process and Redis die together, a chat lacks at most its last
`WRITE_MAX` entries. After the entries, changes (edits, deletes, reactions) are applied to earlier
messages, so no message reflects an entry that is not stored. If the process dies before it has
applied the changes, they are applied when the chat is loaded
(`chatserver.service.messaging.message_change_recovery`).

A writer without retries fails on the first failed write; the caller then writes the pieces one by
one to find the slow chat. A writer with retries waits with growing, jittered pauses while the lease
is held. Writing a piece again is idempotent: entries that have become dead letters are skipped.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from collections.abc import Awaitable, Callable, Sequence, Set

import attrs
import structlog

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, UserId
from chatserver.domain.jitter import add_jitter
from chatserver.errors import CorruptData, Unavailable
from chatserver.hot.chats.persist_backlog import Backlog, CommittedMessage
from chatserver.hot.worker_leases import Lease
from chatserver.protocol.frames import Message
from chatserver.service.messaging.direct_chats import list_for_users
from chatserver.service.messaging.message_erasure import has_text
from chatserver.task_groups import open_task_group
from chatserver.telemetry import metrics
from chatserver.telemetry.tracing import Id, Tracer, tracer
from chatserver.warm.chats.member_states import MarkUpdate
from chatserver.warm.messages.messages import PersistItem
from workers.persist.active_day_recorder import DayRecorder
from workers.persist.batch_changes import (
    BatchEffects,
    EntryWrite,
    MessageKey,
    build_replacement_tombstone,
    coalesce_unstored,
)

log = structlog.get_logger()

WRITE_MAX = 25  # maximum items per BatchWriteItem, an AWS limit
BACKOFF_S = 0.05  # pause before the first retry; doubles with each further retry
BACKOFF_S_MAX = 5.0


class PersistLeaseLost(Unavailable):
    """Another worker holds the lease, or the lease could end before a write does."""


class NotWritten(Unavailable):
    """A write failed, and the writer does not retry."""


@dataclasses.dataclass(slots=True)
class Piece:
    """Writes for one chat: entries in order, read marks, and messages that users have hidden."""

    chat: ChatId
    writes: list[EntryWrite] = dataclasses.field(default_factory=list)
    marks: dict[UserId, MarkUpdate] = dataclasses.field(default_factory=dict)
    hidden: dict[UserId, set[int]] = dataclasses.field(default_factory=dict)
    dead_lettered: set[int] = dataclasses.field(default_factory=set)  # ts of dead letters


@attrs.define(eq=False, repr=False)
class Writer:
    """Writes chats' entries while the lease is held. `slots` limits the concurrent writes."""

    _container: StorageContainer
    _lease: Lease
    _backlog: Backlog
    _days: DayRecorder
    _slots: asyncio.Semaphore = attrs.field(converter=asyncio.Semaphore)
    _has_retries: bool = attrs.field(kw_only=True)
    _is_ending: Callable[[], bool] = attrs.field(kw_only=True)
    _tracer: Tracer | None = attrs.field(factory=tracer, init=False)

    @property
    def _timeout_s(self) -> float:
        return self._container.settings.persist.write_timeout_s

    async def write(self, pieces: Sequence[Piece]) -> list[EntryWrite]:
        """Write each `Piece`; return the stored entries: all except dead letters.

        Guarantees:
            Idempotent. When this returns, everything is written; on an error, only a part may be.

        Raises:
            NotWritten: a write failed, and the writer was created with `has_retries=False`.
            PersistLeaseLost: the lease was lost before everything was written.
            ConfigError: a table does not exist or access is denied.
        """
        writes = [write for piece in pieces for write in piece.writes]
        await self._write_one("copies", lambda: self._copy_held(writes))
        stored = await self._find_stored(writes)
        coalesced = coalesce_unstored(writes, stored, WRITE_MAX)
        dead_lettered = {(piece.chat, ts) for piece in pieces for ts in piece.dead_lettered}
        by_chat = {piece.chat: piece for piece in pieces}
        await self._add_direct_chats(coalesced.writes, dead_lettered)
        await self._write_one("days", lambda: self._days.record(coalesced.writes))
        async with open_task_group() as group:
            written = group.create_task(
                self._store_entries(coalesced.writes, dead_lettered, by_chat)
            )
            self._write_references(group, writes, coalesced)
            self._write_marks(group, pieces)
        await self._write_changes(coalesced)
        if not stored:
            return written.result()
        known = {write.key for write in written.result()}
        kept = [write for write in writes if write.key in stored and write.key not in known]
        return sorted([*kept, *written.result()], key=lambda write: write.committed.seq)

    async def _find_stored(self, writes: Sequence[EntryWrite]) -> set[MessageKey]:
        """Return the keys of the entries that are stored although the checkpoint is before them.

        Redis may have lost the checkpoint together with changes of these entries. Written again,
        they would lose these changes: a deleted text would return. An archived entry would get
        an item again.
        """
        unsure = {write.key: write for write in writes if write.may_be_stored}
        found: dict[tuple[str, int], Message] = {}

        async def read() -> None:
            found.update(await self._container.message_indexes.get_many(list(unsure)))
            for key in self._list_archivable([key for key in unsure if key not in found]):
                try:
                    archived = await self._container.cold_log.find_at(*key)
                except CorruptData as exc:
                    log.error("persist.refused", what="archive", error=exc.message)
                else:
                    found.update({} if archived is None else {key: archived})

        if unsure:
            await self._write_with_retries(read)
        return {key for key, w in unsure.items() if _has_mid(found.get(key), w.item.message.mid)}

    def _list_archivable(self, keys: Sequence[MessageKey]) -> list[MessageKey]:
        """Return the keys of the entries that are old enough to be in the archive."""
        retention, now_s = self._container.item_retention, self._container.clock.time()
        if not retention.retention_s:
            return []
        return [key for key in keys if retention.is_old(key.ts, now_s)]

    async def _copy_held(self, writes: Sequence[EntryWrite]) -> None:
        """Copy the batch's messages in chats under a legal hold.

        A chat's messages are copied only if the batch has an expiring message, an edit or a delete
        in the chat.
        """
        entries = [write.item.message for write in writes]
        risky = {
            entry.chat
            for entry in entries
            if entry.expires_at is not None or entry.kind in ("edit", "delete")
        }
        if not risky:
            return
        held_chats = {chat for chat in risky if await self._container.holds.is_held(chat)}
        if held_chats:
            copied = [entry for entry in entries if entry.chat in held_chats and has_text(entry)]
            await self._container.holds.copy_versions(copied)

    async def _write_changes(self, coalesced: BatchEffects) -> None:
        """Remove the bodies of replaced edits, then apply changes to earlier messages.

        If the process dies before the end, loading the chat completes both.
        """
        changes = self._container.message_changes
        cleared = [
            functools.partial(changes.clear_edit, *key, rev)
            for key, rev in coalesced.cleared.items()
        ]
        applies = [
            functools.partial(changes.apply, *key, change)
            for key, change in coalesced.changes.items()
        ]
        for writes in (cleared, applies):
            async with open_task_group() as group:
                for write in writes:
                    group.create_task(self._write_one("change", write))

    async def _add_direct_chats(
        self, writes: Sequence[EntryWrite], dead_lettered: Set[tuple[ChatId, int]]
    ) -> None:
        """Add each direct chat whose first message is in `writes` to both users' chat lists."""
        directory, devices = self._container.directory, self._container.device_delivery
        for write in writes:
            message, receiver = write.item.message, write.item.receiver
            if message.seq != 1 or (write.chat, message.ts) in dead_lettered:
                continue
            if receiver is not None:
                users = [UserId(receiver), UserId(message.sender)]
                put = functools.partial(directory.add_to_chat_list, message.chat, receiver)
                await self._write_one("direct chat", put)
                retry_ = functools.partial(self._add_direct_chat, message.chat, message.sender)
                await self._write_one("direct chat", retry_)
                await list_for_users(self._container.inboxes, write.chat, users, users, devices)

    async def _add_direct_chat(self, chat: str, user: str) -> None:
        """Add a direct chat to a user's chat list. Read first: a read costs less than a write."""
        _, is_listed = await self._container.directory.find_direct(chat, user)
        if not is_listed:
            await self._container.directory.add_to_chat_list(chat, user)

    def _write_references(
        self, group: asyncio.TaskGroup, writes: Sequence[EntryWrite], coalesced: BatchEffects
    ) -> None:
        """Record which files the batch references, and release the files of deleted messages."""
        current = {write.key: write for write in [*writes, *coalesced.writes]}
        for write in current.values():
            if write.item.message.attachments:
                keep = functools.partial(self._container.record_files, write.item.message)
                group.create_task(self._write_one("files", keep))
        for seq, files in coalesced.lost:
            release = functools.partial(self._container.release_files, seq, files)
            group.create_task(self._write_one("files", release))

    def _write_marks(self, group: asyncio.TaskGroup, pieces: Sequence[Piece]) -> None:
        members = self._container.member_state
        if marks := [mark for piece in pieces for mark in piece.marks.values()]:
            put = functools.partial(members.put_marks, marks)
            group.create_task(self._write_one("marks", put))
        for piece in pieces:
            for user, seqs in piece.hidden.items():
                add = functools.partial(members.add_hidden, piece.chat, user, seqs)
                group.create_task(self._write_one("hidden", add))

    async def _write_one(self, operation: str, write: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._write_with_retries(write)
        except CorruptData as exc:
            log.error("persist.refused", what=operation, error=exc.message)

    # entries

    async def _store_entries(
        self,
        writes: Sequence[EntryWrite],
        dead_lettered: Set[tuple[ChatId, int]],
        by_chat: dict[ChatId, Piece],
    ) -> list[EntryWrite]:
        """Write entries in batches of at most `WRITE_MAX`, one batch after another.

        Return the stored entries.
        """
        written: list[EntryWrite] = []
        for start in range(0, len(writes), WRITE_MAX):
            batch = writes[start : start + WRITE_MAX]
            if dead_lettered:
                batch = [
                    write
                    for write in batch
                    if (write.chat, write.committed.ts) not in dead_lettered
                ]
            if batch:
                written += await self._write_batch(batch, by_chat)
        return written

    async def _write_batch(
        self, batch: Sequence[EntryWrite], by_chat: dict[ChatId, Piece]
    ) -> list[EntryWrite]:
        """Write a batch; dead-letter each item that DynamoDB rejects; return the stored entries."""
        try:
            await self._put([write.item for write in batch])
        except CorruptData as exc:
            if len(batch) == 1:
                await self._reject(batch[0], exc.message, by_chat)
                return []
            middle = len(batch) // 2
            return [
                *await self._write_batch(batch[:middle], by_chat),
                *await self._write_batch(batch[middle:], by_chat),
            ]
        unreadable = [write for write in batch if write.why]
        for write in unreadable:
            await self._dead_letter(write, write.why, by_chat)
        return [write for write in batch if not write.why] if unreadable else list(batch)

    async def _reject(self, write: EntryWrite, reason: str, by_chat: dict[ChatId, Piece]) -> None:
        """Dead-letter an entry, and write a tombstone, so that the chat has no gap."""
        tombstone = None if write.why else build_replacement_tombstone(write.committed)
        try:
            if tombstone is None:
                raise CorruptData("neither the entry nor its tombstone can be stored")
            await self._put([PersistItem(tombstone, None)])
        except CorruptData as exc:
            lost = write.committed
            log.error("persist.gap_left", seq=lost.seq, ts=lost.ts, error=exc.message)
        await self._dead_letter(write, write.why or reason, by_chat)

    async def _dead_letter(
        self, write: EntryWrite, reason: str, by_chat: dict[ChatId, Piece]
    ) -> None:
        await dead_letter(self._backlog, write.committed, reason)
        by_chat[write.chat].dead_lettered.add(write.committed.ts)

    async def _put(self, items: Sequence[PersistItem]) -> None:
        from_ns = time.time_ns()
        await self._write_with_retries(
            lambda: self._container.messages.put_batch(items, self._timeout_s)
        )
        if self._tracer is not None:
            now_ns = time.time_ns()
            for item in items:
                labels: dict[str, Id] = {"chat": item.message.chat, "seq": item.message.seq}
                labels["batch"] = len(items)
                self._tracer.record_span(item.message.mid, "write", from_ns, now_ns, **labels)

    # retries

    async def _write_with_retries(self, write: Callable[[], Awaitable[object]]) -> None:
        """Call `write`. On failure, retry with growing pauses if `has_retries`; otherwise raise."""
        wait_s = BACKOFF_S
        while True:
            if self._is_ending():
                # The error of a write may have replaced the cancellation of this task.
                raise PersistLeaseLost("the worker of this partition is ending")
            async with self._slots:
                await self._check_lease()
                try:
                    async with asyncio.timeout(self._timeout_s):
                        await write()
                    return
                except TimeoutError:
                    failure = f"timed out after {self._timeout_s:g} s"
                except Unavailable as exc:
                    failure = exc.message
            if not self._has_retries:
                raise NotWritten(failure)
            log.warning("persist.write_failed", error=failure, wait_s=wait_s)
            await asyncio.sleep(add_jitter(wait_s))
            wait_s = min(wait_s * 2, BACKOFF_S_MAX)

    async def _check_lease(self) -> None:
        """Check that the lease outlasts a write that starts now. Raises PersistLeaseLost."""
        if self._lease.left_s() > self._timeout_s:
            return
        if not await self._lease.claim() or self._lease.left_s() <= self._timeout_s:
            raise PersistLeaseLost("the lease could expire before the write ends")


def _has_mid(message: Message | None, mid: str) -> bool:
    return message is not None and message.mid == mid


async def dead_letter(backlog: Backlog, raw: CommittedMessage, reason: str) -> None:
    """Store an entry that cannot be persisted as a dead letter."""
    log.error("persist.dead_lettered", seq=raw.seq, ts=raw.ts, reason=reason)
    metrics.DEAD_LETTERS.inc()
    await backlog.add_dead_letter(raw, reason)
