"""Cached messages in SQLite: applies changes and reads pages.

A chat has one cached range, without gaps: every entry from `floor` to `head` that the user may read
is in `entry`, in its state after the entry at `head`. Entries outside are not cached; there is no
second range. `is_first`: the user can read nothing below `floor`. Entries up to `stale` are
unverified: they are not read, and a page of the server that reaches them replaces them.

Bounds: a chat keeps its newest `entries_per_chat_max` entries. Above `bytes_max`, the oldest
entries of the chats that were used least recently are evicted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, assert_never

import msgspec

from chatserver.client.cache.changes import (
    Change,
    ChatDropped,
    ChatsUnverified,
    Delivered,
    EntriesLost,
    EntriesSkipped,
    Hidden,
    PageRead,
)
from chatserver.client.model import Entry
from chatserver.protocol.entry_rules import AMENDING, apply_entry, tombstone_of
from chatserver.protocol.message_expiry import as_of

ROW_BYTES = 40  # of an entry, in addition to its body
EVICTED = 20  # entries evicted from a chat before the next one is considered
EXPIRED_MAX = 1_000  # expired messages overwritten in one transaction
VACUUM_PAGES = 200

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


class CachedPage(NamedTuple):
    """Entries in ascending seq without a gap, and whether there are more in this direction."""

    entries: list[Entry]
    has_more: bool


class Unverified(NamedTuple):
    """The next page to read from the server: the newest page, or the one before a seq."""

    chat: str
    before: int | None


@dataclasses.dataclass(slots=True)
class _Chat:
    """The row of a chat, in memory."""

    id: int
    name: str
    used: int
    floor: int = 1
    head: int = 0
    is_first: bool = False
    stale: int = 0
    entries: int = 0
    size: int = 0
    is_changed: bool = False

    @property
    def is_empty(self) -> bool:
        return self.head < self.floor

    @property
    def bottom(self) -> int:
        """The lowest verified seq."""
        return max(self.floor, self.stale + 1)

    @property
    def is_complete(self) -> bool:
        """True if the user can read nothing below `bottom`."""
        return (self.is_first or self.floor <= 1) and self.stale < self.floor

    def clear(self, head: int = 0) -> None:
        self.floor, self.head, self.is_first, self.stale = head + 1, head, False, 0


class MessageTables:
    """The cached messages of one file. Not thread-safe."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        entries_per_chat_max: int,
        bytes_max: int,
        chats_max: int,
    ) -> None:
        self._connection = connection
        self._entries_max = entries_per_chat_max
        self._bytes_max = bytes_max
        self._chats_max = chats_max
        self._chats: dict[str, _Chat] = {}
        self._used = 0
        self._load()

    def _load(self) -> None:
        rows = self._connection.execute(
            "SELECT id, name, used, floor, head, is_first, stale, entries, size FROM chat"
        )
        self._chats = {row[1]: _Chat(*row) for row in rows}
        self._used = max((chat.used for chat in self._chats.values()), default=0)

    @property
    def size(self) -> int:
        """The bytes of all cached entries."""
        return sum(chat.size for chat in self._chats.values())

    @property
    def entries(self) -> int:
        """The number of cached entries."""
        return sum(chat.entries for chat in self._chats.values())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all changes in it, or none."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._write_rows()
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            self._load()
            raise

    def _write_rows(self) -> None:
        changed = [chat for chat in self._chats.values() if chat.is_changed]
        self._connection.executemany(
            "UPDATE chat SET used = ?, floor = ?, head = ?, is_first = ?, stale = ?, entries = ?,"
            " size = ? WHERE id = ?",
            [
                (c.used, c.floor, c.head, c.is_first, c.stale, c.entries, c.size, c.id)
                for c in changed
            ],
        )
        for chat in changed:
            chat.is_changed = False

    # ── changes ─────────────────────────────────────────────────────────────────────────────────

    def apply(self, changes: Iterable[Change], infos: Mapping[str, bytes], now_s: float) -> None:
        """Apply changes in order, then save the info of chats. Call it in a transaction."""
        touched: dict[str, _Chat] = {}
        for change in changes:
            match change:
                case Delivered(name, entry):
                    chat = touched[name] = self._chat(name)
                    self._deliver(chat, entry)
                case PageRead(name, entries, before, after, has_more):
                    chat = touched[name] = self._chat(name)
                    self._put_page(chat, entries, before, after, has_more=has_more)
                case Hidden(name, seqs):
                    self._hide(self._chat(name), seqs)
                case EntriesSkipped(name, upto):
                    self._skip(self._chat(name), upto)
                case EntriesLost(name, after):
                    self._cut(self._chat(name), after)
                case ChatDropped(name):
                    self._drop(name)
                    touched.pop(name, None)
                case ChatsUnverified(chats, verified):
                    self._unverify(self._chats.keys() - verified if chats is None else chats)
                case _:
                    assert_never(change)
        for name, info in infos.items():
            chat = self._chat(name)
            self._connection.execute("UPDATE chat SET info = ? WHERE id = ?", (info, chat.id))
        for chat in touched.values():
            self._trim(chat)
        self._expire(now_s)
        self._evict()

    def _chat(self, name: str) -> _Chat:
        """Return the row of a chat, as the most recently used one."""
        self._used += 1
        chat = self._chats.get(name)
        if chat is None:
            (id_,) = self._connection.execute(
                "INSERT INTO chat (name, used, floor, head, is_first, stale, entries, size)"
                " VALUES (?, ?, 1, 0, 0, 0, 0, 0) RETURNING id",
                (name, self._used),
            ).fetchone()
            chat = self._chats[name] = _Chat(id_, name, self._used)
        chat.used, chat.is_changed = self._used, True
        return chat

    def _deliver(self, chat: _Chat, entry: Entry) -> None:
        if entry.seq <= chat.stale:  # nothing above it has been delivered since
            self._cut(chat, entry.seq - 1)
        if entry.seq > chat.head + 1 or (chat.is_empty and entry.seq <= chat.head):
            self._delete(chat, 0, entry.seq)  # there is a gap, or nothing is cached
            chat.clear(entry.seq - 1)
        if entry.seq >= chat.floor:
            self._put(chat, entry)
            chat.head = max(chat.head, entry.seq)

    def _put_page(
        self,
        chat: _Chat,
        entries: tuple[Entry, ...],
        before: int | None,
        after: int | None,
        *,
        has_more: bool,
    ) -> None:
        """Put a page that touches the verified range; ignore another one."""
        if after is not None:
            low, high = after + 1, entries[-1].seq if entries else after
            is_adjacent = not chat.is_empty and chat.bottom <= low <= chat.head + 1
        elif before is not None:
            low, high = entries[0].seq if entries else before, before - 1
            is_adjacent = not chat.is_empty and chat.bottom - 1 <= high <= chat.head
        else:
            low, high = (entries[0].seq, entries[-1].seq) if entries else (1, 0)
            is_adjacent = self._join_newest(chat, low, high, has_more=has_more)
        if not is_adjacent:
            return
        if low <= chat.stale <= high:
            self._delete(chat, low, chat.stale)
        for entry in entries:
            self._put(chat, entry)
        chat.head = max(chat.head, high)
        if after is None and not (has_more and entries):
            self._delete(chat, 0, low - 1)
            chat.floor, chat.is_first, chat.stale = low, True, 0
        elif low < chat.floor:
            chat.floor, chat.is_first, chat.stale = low, False, 0
        elif low <= chat.stale:
            chat.stale = low - 1 if low > chat.floor else 0

    def _join_newest(self, chat: _Chat, low: int, high: int, *, has_more: bool) -> bool:
        """Prepare a chat for the newest page; return False if the page must be ignored."""
        if chat.is_empty or chat.stale >= chat.head:
            self._cut(chat, high)  # the server has nothing above the page
            if chat.is_empty or chat.head < low - 1:
                self._delete(chat, 0, low)
                chat.clear(low - 1)
            return True
        # Otherwise, entries between the range and the page are delivered later.
        is_above = low > chat.head + 1
        return not (is_above and has_more) and high >= chat.bottom - 1

    def _hide(self, chat: _Chat, seqs: tuple[int, ...]) -> None:
        for seq in seqs:
            self._connection.execute("INSERT OR IGNORE INTO hidden VALUES (?, ?)", (chat.id, seq))
            self._blank(chat, seq)
            self._blank_edits(chat, seq)

    def _skip(self, chat: _Chat, upto: int) -> None:
        if chat.stale < chat.head:  # unverified entries stay, to be compared
            self._delete(chat, 0, upto)
            chat.floor, chat.head = max(chat.floor, upto + 1), max(chat.head, upto)
            chat.is_first, chat.stale = False, chat.stale if chat.stale > upto else 0

    def _cut(self, chat: _Chat, after: int) -> None:
        """Delete the entries above `after`."""
        self._delete(chat, after + 1, max(chat.head, after + 1))
        chat.head, chat.stale = min(chat.head, after), min(chat.stale, after)
        if chat.is_empty:
            chat.clear(chat.head)

    def _drop(self, name: str) -> None:
        chat = self._chats.pop(name, None)
        if chat is not None:
            for table in ("entry", "hidden"):
                self._connection.execute(f"DELETE FROM {table} WHERE chat = ?", (chat.id,))  # noqa: S608  # constants
            self._connection.execute("DELETE FROM chat WHERE id = ?", (chat.id,))

    def _unverify(self, names: Iterable[str]) -> None:
        for name in names:
            chat = self._chats.get(name)
            if chat is not None and not chat.is_empty:
                chat.stale, chat.is_changed = chat.head, True
                # Pages show what is hidden; in a new epoch, it may be another message.
                self._connection.execute("DELETE FROM hidden WHERE chat = ?", (chat.id,))

    # ── entries ─────────────────────────────────────────────────────────────────────────────────

    def _put(self, chat: _Chat, entry: Entry) -> None:
        known = self._find(chat, entry.seq)
        if known is None or (known.rev, known.deleted) < (entry.rev, entry.deleted):
            for change in self._list_changes(chat, entry.seq):
                entry = apply_entry(entry, change)
            if self._is_hidden(chat, entry):
                entry = tombstone_of(entry, entry.rev)
            self._write(chat, entry)
        if entry.kind in AMENDING and entry.target is not None:
            self._amend(chat, entry, entry.target)

    def _amend(self, chat: _Chat, change: Entry, target: int) -> None:
        message = self._find(chat, target)
        if message is not None:
            changed = apply_entry(message, change)
            if changed is not message:
                self._write(chat, changed)
        if change.kind in ("edit", "delete"):
            self._blank_edits(chat, target, before=change.seq)

    def _blank_edits(self, chat: _Chat, target: int, before: int | None = None) -> None:
        """Remove the texts of earlier edits."""
        for old in self._list_changes(chat, target):
            if old.kind == "edit" and not old.deleted and (before is None or old.seq < before):
                self._write(chat, tombstone_of(old, old.rev))

    def _blank(self, chat: _Chat, seq: int) -> None:
        entry = self._find(chat, seq)
        if entry is not None and not entry.deleted:
            self._write(chat, tombstone_of(entry, entry.rev))

    def _is_hidden(self, chat: _Chat, entry: Entry) -> bool:
        seq = entry.target if entry.kind == "edit" else entry.seq
        found = self._connection.execute(
            "SELECT 1 FROM hidden WHERE chat = ? AND seq = ?", (chat.id, seq)
        )
        return found.fetchone() is not None

    def _list_changes(self, chat: _Chat, target: int) -> list[Entry]:
        rows = self._connection.execute(
            "SELECT body FROM entry INDEXED BY entry_target"
            " WHERE chat = ? AND target = ? ORDER BY seq",
            (chat.id, target),
        )
        changes = [_decode(body) for (body,) in rows]
        return [change for change in changes if change.kind in AMENDING]

    def _find(self, chat: _Chat, seq: int) -> Entry | None:
        row = self._connection.execute(
            "SELECT body FROM entry WHERE chat = ? AND seq = ?", (chat.id, seq)
        ).fetchone()
        return None if row is None else _decode(row[0])

    def _write(self, chat: _Chat, entry: Entry) -> None:
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

    def _delete(self, chat: _Chat, low: int, high: int) -> None:
        """Delete the entries from `low` to `high`, inclusive; the range stays as it is."""
        place = (chat.id, low, high)
        (count, size) = self._connection.execute(
            "SELECT count(*), total(length(body)) FROM entry"
            " WHERE chat = ? AND seq BETWEEN ? AND ?",
            place,
        ).fetchone()
        if count:
            for table in ("entry", "hidden"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE chat = ? AND seq BETWEEN ? AND ?",  # noqa: S608  # constants
                    place,
                )
            chat.entries -= count
            chat.size -= int(size) + ROW_BYTES * count
        chat.is_changed = True

    # ── bounds and expiry ───────────────────────────────────────────────────────────────────────

    def _trim(self, chat: _Chat) -> None:
        if chat.entries > self._entries_max:
            self._evict_oldest(chat, chat.entries - self._entries_max)

    def _evict_oldest(self, chat: _Chat, count: int) -> None:
        (last,) = self._connection.execute(
            "SELECT max(seq) FROM (SELECT seq FROM entry WHERE chat = ? ORDER BY seq LIMIT ?)",
            (chat.id, count),
        ).fetchone()
        self._delete(chat, 0, last)
        chat.floor, chat.is_first = last + 1, False
        chat.head = max(chat.head, last)
        if chat.stale < chat.floor:
            chat.stale = 0

    def _evict(self) -> None:
        size = self.size
        if size > self._bytes_max:
            for chat in sorted(self._chats.values(), key=lambda chat: chat.used):
                while size > self._bytes_max and chat.entries:
                    size -= chat.size
                    self._evict_oldest(chat, EVICTED)
                    size += chat.size
        surplus = len(self._chats) - self._chats_max
        if surplus > 0:
            oldest = sorted(self._chats.values(), key=lambda chat: chat.used)[:surplus]
            for chat in oldest:
                self._drop(chat.name)

    def _expire(self, now_s: float) -> None:
        """Overwrite messages that have expired."""
        names = {chat.id: chat for chat in self._chats.values()}
        rows = self._connection.execute(
            "SELECT chat, body FROM entry WHERE expires_at <= ? LIMIT ?", (now_s, EXPIRED_MAX)
        ).fetchall()
        for id_, body in rows:
            self._write(names[id_], as_of(_decode(body), now_s))

    def vacuum(self) -> None:
        """Return free pages to the file system. Call it outside of a transaction."""
        self._connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()

    # ── reads ───────────────────────────────────────────────────────────────────────────────────

    def list_chats(self) -> list[tuple[str, bytes | None]]:
        """Return the cached chats with their info, most recently used last."""
        return self._connection.execute("SELECT name, info FROM chat ORDER BY used").fetchall()

    def list_newest(self, name: str, upto: int | None, limit: int, now_s: float) -> list[Entry]:
        """Return the newest verified entries up to `upto`; nothing if `upto` is not cached."""
        chat = self._chats.get(name)
        if chat is None or chat.is_empty:
            return []
        top = chat.head if upto is None else upto
        if not chat.bottom <= top <= chat.head:
            return []
        return self._read(chat, chat.bottom, top, limit, now_s, is_down=True)

    def read_page(
        self, name: str, *, before: int | None, after: int | None, limit: int, now_s: float
    ) -> CachedPage | None:
        """Return a page of verified entries; None if the next entry of the page is not cached."""
        chat = self._chats.get(name)
        if chat is None:
            return None
        if after is not None:
            if not (chat.bottom <= after + 1 <= chat.head + 1 or chat.is_complete):
                return None
            entries = self._read(chat, after + 1, chat.head, limit, now_s, is_down=False)
            return CachedPage(entries, bool(entries) and entries[-1].seq < chat.head)
        top = chat.head if before is None else before - 1
        if top > chat.head or not (top >= chat.bottom or chat.is_complete):
            return None
        entries = self._read(chat, chat.bottom, top, limit, now_s, is_down=True)
        if not entries and not chat.is_complete:
            return None
        self._used += 1
        chat.used, chat.is_changed = self._used, True
        oldest = entries[0].seq if entries else 0
        return CachedPage(entries, not chat.is_complete or self._has(chat, chat.floor, oldest - 1))

    def _has(self, chat: _Chat, low: int, high: int) -> bool:
        found = self._connection.execute(
            "SELECT 1 FROM entry WHERE chat = ? AND seq BETWEEN ? AND ? LIMIT 1",
            (chat.id, low, high),
        )
        return found.fetchone() is not None

    def _read(
        self, chat: _Chat, low: int, high: int, limit: int, now_s: float, *, is_down: bool
    ) -> list[Entry]:
        order = "DESC" if is_down else "ASC"
        rows = self._connection.execute(
            "SELECT body FROM entry WHERE chat = ? AND seq BETWEEN ? AND ?"  # noqa: S608  # a constant
            f" ORDER BY seq {order} LIMIT ?",
            (chat.id, low, high, limit),
        ).fetchall()
        return [
            as_of(msgspec.structs.replace(_decode(body), chat=chat.name), now_s)
            for (body,) in (reversed(rows) if is_down else rows)
        ]

    def find_unverified(self) -> Unverified | None:
        """Return the next page to compare with the server, of the chat used most recently."""
        stale = (chat for chat in self._chats.values() if chat.stale >= chat.floor)
        chat = max(stale, key=lambda chat: chat.used, default=None)
        if chat is None:
            return None
        return Unverified(chat.name, None if chat.stale >= chat.head else chat.stale + 1)
