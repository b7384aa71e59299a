"""Recovery of changes that are stored but not applied: found by time, applied in order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from ulid import ULID

from chatserver.domain.ids import ChatId, Epoch
from chatserver.errors import Unavailable
from chatserver.protocol.frames import Message
from chatserver.protocol.message_change_effects import apply_entry, build_tombstone
from chatserver.service.messaging.message_change_recovery import (
    CLOCKS_APART_S_MAX,
    MessageChangeRecovery,
)

CHAT = ChatId("g-1")
LOST_S = 1_800_000_000  # when the epoch began
EPOCH = Epoch(str(ULID.from_timestamp(float(LOST_S))))


def entry(seq: int, kind: str = "text", target: int | None = None) -> Message:
    """Return an entry committed before the epoch."""
    ts = (LOST_S - 1000 + seq) * 1_000_000
    return Message(seq, ts, CHAT, f"M{seq}", "alice", f"r{seq}", kind, f"text {seq}", target=target)


class Stored:
    """Stores messages and applies changes, as the warm tier does."""

    def __init__(self, *messages: Message) -> None:
        self.rows = {message.seq: message for message in messages}
        self.reads: list[int] = []
        self.is_down = False

    async def list_before(
        self, chat: str, before: int | None, limit: int, ts_hint: int | None = None
    ) -> list[Message]:
        assert before is not None
        if self.is_down:
            raise Unavailable("no answer")
        self.reads.append(before - 1)
        return [self.rows[before - 1]] if before - 1 in self.rows else []

    async def apply(self, chat: str, ts: int, entries: Sequence[Message]) -> None:
        for row in list(self.rows.values()):
            if row.ts == ts:
                for change in entries:
                    self.rows[row.seq] = apply_entry(self.rows[row.seq], change)

    async def clear_edit(self, chat: str, ts: int, rev: int) -> None:
        for row in list(self.rows.values()):
            if row.ts == ts and row.rev < rev:
                self.rows[row.seq] = build_tombstone(row, rev)

    async def load(self, first: int) -> list[Message]:
        """Apply the unapplied entries from seq `first` on."""
        newest = [self.rows[seq] for seq in sorted(self.rows) if seq >= first]
        return await MessageChangeRecovery(self, self).apply(CHAT, newest, EPOCH)


@pytest.mark.parametrize("first", [1, 2, 3])
async def test_unapplied_entries_are_applied_in_order(first: int) -> None:
    """Changes are applied to messages of the same read and to older ones."""
    entries = [
        entry(1),
        entry(2),
        entry(3, "edit", 1),
        entry(4, "reaction", 2),
        entry(5, "edit", 1),
    ]
    stored = Stored(*entries, entry(6, "delete", 2))

    newest = await stored.load(first)

    bodies = [stored.rows[seq].body for seq in range(1, 7)]
    assert bodies == ["text 5", "", "", "text 4", "text 5", "text 6"]
    assert stored.rows[1].edited_seq == 5
    assert [seq for seq, row in stored.rows.items() if row.deleted] == [2, 3]
    assert newest == [stored.rows[seq] for seq in range(first, 7)]
    assert await stored.load(first) == newest


async def test_applied_entries_change_nothing() -> None:
    """A message and its edit stay the same."""
    edit = entry(2, "edit", 1)
    stored = Stored(apply_entry(entry(1), edit), edit)
    before = dict(stored.rows)

    await stored.load(2)

    assert stored.rows == before


async def test_entries_of_this_epoch_are_not_checked() -> None:
    """Redis kept them until they were applied. An earlier Redis may have had a fast clock."""
    later_us = (LOST_S + CLOCKS_APART_S_MAX) * 1_000_000
    edit = msgspec.structs.replace(entry(2, "edit", 1), ts=later_us)
    stored = Stored(entry(1), edit)

    await stored.load(2)
    stored.rows[2] = msgspec.structs.replace(edit, ts=later_us - 1)
    reads = list(stored.reads)
    await stored.load(2)

    assert (reads, stored.reads) == ([], [1])


async def test_change_of_a_missing_message_is_ignored() -> None:
    """There is nothing to apply the change to."""
    stored = Stored(entry(2, "edit", 1))

    assert await stored.load(2) == [entry(2, "edit", 1)]


async def test_recovery_with_the_warm_tier_down_is_unavailable() -> None:
    """The caller repeats the load."""
    stored = Stored(entry(1), entry(2, "edit", 1))
    stored.is_down = True

    with pytest.raises(Unavailable):
        await stored.load(2)
