"""Records the days on which chats have messages, before the messages are written.

The recorder caches the active days of the chats that it has seen since the worker acquired its
lease. So a chat's first batch costs one read unit, the first message of each day costs one write
unit, and all other messages cost nothing. Only the holder of the lease writes, and it writes a
chat's batches one after the other, so replacing the item loses no day.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Final

from chatserver.protocol.message_change_effects import is_message
from chatserver.warm.messages.active_days import (
    DAYS_MAX,
    ActiveDays,
    DaySet,
    get_day,
)
from workers.persist.batch_changes import EntryWrite

CHATS_MAX: Final = 50_000  # maximum cached chats; each takes about 200 bytes


class DayRecorder:
    """Records active days for the persist worker of one partition."""

    def __init__(self, rows: ActiveDays) -> None:
        self._rows = rows
        self._recorded: collections.OrderedDict[str, DaySet] = collections.OrderedDict()

    def clear(self) -> None:
        """Clear the cache. Call this after acquiring the lease: another worker may have written."""
        self._recorded.clear()

    async def record(self, writes: Sequence[EntryWrite]) -> None:
        """Record the days of messages that are about to be written.

        Guarantees:
            Idempotent. All days are stored when this returns.
            Cost: none if the days are known.
        """
        days = self._list_new_days(writes)
        if not days:
            return
        unknown = [chat for chat in days if chat not in self._recorded]
        stored = await self._rows.find_many(unknown) if unknown else {}
        changed: dict[str, DaySet] = {}
        for chat, seqs in days.items():
            before = self._recorded.get(chat) or stored.get(chat)
            after = before or DaySet(min(seqs), has_earlier=min(seqs.values()) > 1)
            for day in seqs:
                after = after.add(day)
            changed[chat] = after
        new_days = {
            chat: chat_days
            for chat, chat_days in changed.items()
            if chat_days != (self._recorded.get(chat) or stored.get(chat))
        }
        await self._rows.put_many(new_days)
        for chat, chat_days in changed.items():
            self._recorded[chat] = chat_days
            self._recorded.move_to_end(chat)
        while len(self._recorded) > CHATS_MAX:
            self._recorded.popitem(last=False)

    def _list_new_days(self, writes: Iterable[EntryWrite]) -> dict[str, dict[int, int]]:
        """Return, by chat, the days that are not in the cache, each with its lowest seq."""
        days: dict[str, dict[int, int]] = {}
        for write in writes:
            message = write.item.message
            day = get_day(message.ts)
            known_days = self._recorded.get(message.chat)
            if known_days is not None and day in known_days:
                continue
            # Seq 1 shows that the chat has no earlier messages, even if the entry is not a message.
            if (is_message(message) or message.seq == 1) and day < DAYS_MAX:
                seqs = days.setdefault(message.chat, {})
                seqs[day] = min(message.seq, seqs.get(day, message.seq))
        return days
