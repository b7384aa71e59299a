"""Recovery of message changes that are stored but not applied to their messages.

The persist worker first stores an edit, deletion or reaction, and then changes the message
(`workers.persist.batch_writer`). If Redis loses data between the two steps, the second step does
not run. Loading the chat then completes the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chatserver.domain.ids import ChatId, Epoch, epoch_start_ms
from chatserver.protocol import frames
from chatserver.protocol.message_change_effects import (
    MESSAGE_CHANGE_KINDS,
    apply_entry,
    build_tombstone,
)
from chatserver.service.history.warm_and_cold_log import WarmAndColdLog
from chatserver.warm.messages.message_changes import MessageChanges

CLOCKS_APART_S_MAX = 3600  # assumed maximum clock difference between two Redis servers
READS_IN_FLIGHT_MAX = 8


class MessageChangeRecovery:
    """Finds and applies missing changes when a chat is loaded."""

    def __init__(self, messages: WarmAndColdLog, changes: MessageChanges) -> None:
        self._messages = messages
        self._changes = changes

    async def apply(
        self, chat: ChatId, newest: Sequence[frames.Message], epoch: Epoch
    ) -> list[frames.Message]:
        """Apply the unapplied changes among `newest`, a chat's newest entries; return the entries.

        Guarantees:
            Idempotent.
            Cost: nothing for changes made more than an hour after the start of `epoch`. For earlier
                changes, one read per changed message that is not among `newest`.

        Raises:
            Unavailable: a required tier does not respond.
        """
        by_seq = {entry.seq: entry for entry in newest}
        lost_before = epoch_start_ms(epoch) * 1000 + CLOCKS_APART_S_MAX * 1_000_000
        by_target: dict[int, list[frames.Message]] = {}
        for entry in newest:
            is_change = (
                entry.kind in MESSAGE_CHANGE_KINDS
                and entry.target is not None
                and not entry.deleted
            )
            if is_change and entry.ts < lost_before:
                by_target.setdefault(entry.target or 0, []).append(entry)
        targets = list(by_target)
        for start in range(0, len(targets), READS_IN_FLIGHT_MAX):
            batch = targets[start : start + READS_IN_FLIGHT_MAX]
            applying = (self._apply(chat, target, by_target[target], by_seq) for target in batch)
            # Wait for all tasks before raising the first error, so that no task is left running.
            for outcome in await asyncio.gather(*applying, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        return list(by_seq.values())

    async def _apply(
        self,
        chat: ChatId,
        target: int,
        entries: Sequence[frames.Message],
        by_seq: dict[int, frames.Message],
    ) -> None:
        stored = by_seq.get(target)
        if stored is None:
            messages = await self._messages.list_before(chat, target + 1, 1)
            if not messages:
                return
            stored = messages[0]
        message = stored
        for entry in entries:
            changed = apply_entry(message, entry)
            if changed == message:
                continue
            if entry.kind != "reaction" and message.edited_seq:
                # Clear the previous edit's text first: once this change has been applied, a retry
                # would not clear it.
                await self._changes.clear_edit(chat, message.edited_ts, entry.seq)
                if edit := by_seq.get(message.edited_seq):
                    by_seq[edit.seq] = build_tombstone(edit, entry.seq)
            message = changed
        if message != stored:
            await self._changes.apply(chat, stored.ts, entries)
            if target in by_seq:
                by_seq[target] = message
