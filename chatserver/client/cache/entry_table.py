"""Rows of cached entries in SQLite. An edit, deletion or reaction also updates its message's row.

`message_cache` decides which entries are cached. The methods update `entries` and `size` of the
chat's row.
"""

from __future__ import annotations

import sqlite3

import attrs
import msgspec

from chatserver.client.model import Entry
from chatserver.protocol.expired_messages import apply_expiry
from chatserver.protocol.message_change_effects import (
    MESSAGE_CHANGE_KINDS,
    apply_entry,
    build_tombstone,
)

ROW_BYTES = 40  # estimated bytes of a row, in addition to the entry's body
EXPIRED_MAX = 1_000  # maximum number of expired messages that one transaction overwrites

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class ChatRow(msgspec.Struct):
    """The row of a chat, in memory: its cached range (see `message_cache`)."""

    id: int
    name: str
    used: int
    floor: int = 1
    head: int = 0
    is_first: bool = False
    stale: int = 0
    entries: int = 0
    size: int = 0
    cleared: int = 0
    is_changed: bool = False

    @property
    def is_empty(self) -> bool:
        return self.head < self.floor

    @property
    def bottom(self) -> int:
        """The lowest seq that can be read: entries up to `stale` may be outdated."""
        return max(self.floor, self.stale + 1)

    @property
    def is_complete(self) -> bool:
        """True if there are no entries below `bottom` that the user can read."""
        is_lowest = self.floor <= 1 or (self.floor <= self.cleared + 1 and not self.is_empty)
        return (self.is_first or is_lowest) and self.stale < self.floor

    def clear(self, head: int = 0) -> None:
        self.floor, self.head, self.is_first, self.stale = head + 1, head, False, 0


@attrs.define(eq=False, repr=False)
class EntryTable:
    """The entries of all chats in one file, and the messages that the user deleted for themselves.

    Not thread-safe. Call it in a transaction.
    """

    _connection: sqlite3.Connection

    def put(self, chat: ChatRow, entry: Entry) -> None:
        """Write an entry unless a newer copy is stored. Apply it to the message that it changes."""
        known = self._find(chat, entry.seq)
        if known is None or (known.rev, known.deleted) < (entry.rev, entry.deleted):
            for change in self._list_changes(chat, entry.seq):
                entry = apply_entry(entry, change)
            if self._is_hidden(chat, entry):
                entry = build_tombstone(entry, entry.rev)
            self._write(chat, entry)
        if entry.kind in MESSAGE_CHANGE_KINDS and entry.target is not None:
            self._apply_change(chat, entry, entry.target)

    def _apply_change(self, chat: ChatRow, change: Entry, target: int) -> None:
        message = self._find(chat, target)
        if message is not None:
            changed = apply_entry(message, change)
            if changed is not message:
                self._write(chat, changed)
        if change.kind in ("edit", "delete"):
            self._remove_edit_texts(chat, target, before=change.seq)

    def _remove_edit_texts(self, chat: ChatRow, target: int, before: int | None = None) -> None:
        """Replace edits of message `target` with tombstones: all, or those below seq `before`."""
        for old in self._list_changes(chat, target):
            if old.kind == "edit" and not old.deleted and (before is None or old.seq < before):
                self._write(chat, build_tombstone(old, old.rev))

    def _remove_text(self, chat: ChatRow, seq: int) -> None:
        entry = self._find(chat, seq)
        if entry is not None and not entry.deleted:
            self._write(chat, build_tombstone(entry, entry.rev))

    def _write(self, chat: ChatRow, entry: Entry) -> None:
        body = _encode(msgspec.structs.replace(entry, chat=""))
        known = self._connection.execute(
            "SELECT length(body) FROM entry WHERE chat = ? AND seq = ?", (chat.id, entry.seq)
        ).fetchone()
        expires_at = None if entry.deleted else entry.expires_at
        self._connection.execute(
            "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?)",
            (chat.id, entry.seq, entry.target, expires_at, body),
        )
        if known is None:
            chat.entries += 1
            chat.size += ROW_BYTES + len(body)
        else:
            chat.size += len(body) - known[0]
        chat.is_changed = True

    def delete(self, chat: ChatRow, low: int, high: int) -> None:
        """Delete the entries from `low` to `high`, inclusive; do not change the cached range."""
        seqs = (chat.id, low, high)
        (count, size) = self._connection.execute(
            "SELECT count(*), total(length(body)) FROM entry"
            " WHERE chat = ? AND seq BETWEEN ? AND ?",
            seqs,
        ).fetchone()
        if count:
            for table in ("entry", "hidden"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE chat = ? AND seq BETWEEN ? AND ?",  # noqa: S608  # constants
                    seqs,
                )
            chat.entries -= count
            chat.size -= int(size) + ROW_BYTES * count
        chat.is_changed = True

    def hide(self, chat: ChatRow, seqs: tuple[int, ...]) -> None:
        """Remove the text of messages, also from copies that are written later."""
        for seq in seqs:
            self._connection.execute("INSERT OR IGNORE INTO hidden VALUES (?, ?)", (chat.id, seq))
            self._remove_text(chat, seq)
            self._remove_edit_texts(chat, seq)

    def clear(self, chat: ChatRow, upto: int) -> None:
        """Delete the entries up to `upto`, and the text of later edits to them."""
        self.delete(chat, 0, upto)
        rows = self._connection.execute(
            "SELECT body FROM entry INDEXED BY entry_target WHERE chat = ? AND target <= ?",
            (chat.id, upto),
        ).fetchall()
        for (body,) in rows:
            change = _decode(body)
            if change.kind == "edit" and not change.deleted:
                self._write(chat, build_tombstone(change, change.rev))

    def drop(self, chat: ChatRow) -> None:
        for table in ("entry", "hidden"):
            self._connection.execute(f"DELETE FROM {table} WHERE chat = ?", (chat.id,))  # noqa: S608  # constants

    def clear_hidden(self, chat: ChatRow) -> None:
        self._connection.execute("DELETE FROM hidden WHERE chat = ?", (chat.id,))

    def expire(self, rows: dict[int, ChatRow], now_s: float) -> None:
        """Overwrite messages that have expired. `rows`: the chat rows by id."""
        found = self._connection.execute(
            "SELECT chat, body FROM entry WHERE expires_at <= ? LIMIT ?", (now_s, EXPIRED_MAX)
        ).fetchall()
        for id_, body in found:
            self._write(rows[id_], apply_expiry(_decode(body), now_s))

    def _is_hidden(self, chat: ChatRow, entry: Entry) -> bool:
        seq = entry.target if entry.kind == "edit" else entry.seq
        if seq is not None and seq <= chat.cleared:
            return True
        found = self._connection.execute(
            "SELECT 1 FROM hidden WHERE chat = ? AND seq = ?", (chat.id, seq)
        )
        return found.fetchone() is not None

    def _list_changes(self, chat: ChatRow, target: int) -> list[Entry]:
        rows = self._connection.execute(
            "SELECT body FROM entry INDEXED BY entry_target"
            " WHERE chat = ? AND target = ? ORDER BY seq",
            (chat.id, target),
        )
        changes = [_decode(body) for (body,) in rows]
        return [change for change in changes if change.kind in MESSAGE_CHANGE_KINDS]

    def _find(self, chat: ChatRow, seq: int) -> Entry | None:
        row = self._connection.execute(
            "SELECT body FROM entry WHERE chat = ? AND seq = ?", (chat.id, seq)
        ).fetchone()
        return None if row is None else _decode(row[0])

    def find_nth(self, chat: ChatRow, count: int) -> int:
        """Return the seq of the `count`-th oldest entry."""
        (last,) = self._connection.execute(
            "SELECT max(seq) FROM (SELECT seq FROM entry WHERE chat = ? ORDER BY seq LIMIT ?)",
            (chat.id, count),
        ).fetchone()
        return int(last)

    def has_any(self, chat: ChatRow, low: int, high: int) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM entry WHERE chat = ? AND seq BETWEEN ? AND ? LIMIT 1",
            (chat.id, low, high),
        )
        return found.fetchone() is not None

    def read(
        self, chat: ChatRow, low: int, high: int, limit: int, now_s: float, *, is_down: bool
    ) -> list[Entry]:
        """Return the newest (`is_down`) or oldest `limit` entries from `low` to `high`, sorted."""
        order = "DESC" if is_down else "ASC"
        rows = self._connection.execute(
            "SELECT body FROM entry WHERE chat = ? AND seq BETWEEN ? AND ?"  # noqa: S608  # a constant
            f" ORDER BY seq {order} LIMIT ?",
            (chat.id, low, high, limit),
        ).fetchall()
        return [
            apply_expiry(msgspec.structs.replace(_decode(body), chat=chat.name), now_s)
            for (body,) in (reversed(rows) if is_down else rows)
        ]
