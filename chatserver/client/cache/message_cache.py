"""Cached messages in SQLite: applies changes and reads pages.

A chat has one cached range without gaps: the table `entry` has every entry from `floor` to `head`
that the user may read, with all changes up to `head` applied. Entries outside the range are not
cached. `is_first`: there are no readable entries below `floor`. Entries up to `stale` are
unverified: they are not read until a page from the server replaces them. Entries up to `cleared`
are not cached, because the user has cleared them.

Bounds: a chat keeps its newest `entries_per_chat_max` entries. Above `bytes_max`, the oldest
entries of the chats that were used least recently are evicted; above `chats_max`, whole chats.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, assert_never

from chatserver.client.cache.changes import (
    Change,
    ChatDropped,
    ChatsUnverified,
    Delivered,
    PageRead,
)
from chatserver.client.cache.entry_table import ChatRow, EntryTable
from chatserver.client.events import ChatCleared, EntriesWithdrawn, MessagesHidden, Skipped
from chatserver.client.model import Entry

EVICTED_AT_ONCE = 20  # number of entries evicted from a chat before the total size is checked again
VACUUM_PAGES = 200


class CachedPage(NamedTuple):
    """Entries in ascending seq without a gap. `has_more`: there may be a next page."""

    entries: list[Entry]
    has_more: bool


class CachedChat(NamedTuple):
    """A cached chat, cleared up to seq `cleared`. `info` is None if it has never been saved."""

    chat: str
    info: bytes | None
    cleared: int


class Unverified(NamedTuple):
    """The next page to read from the server: the newest page, or the page before a seq."""

    chat: str
    before: int | None


class MessageCache:
    """The cached messages in one SQLite file. Not thread-safe."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        entries_per_chat_max: int,
        bytes_max: int,
        chats_max: int,
    ) -> None:
        self._connection = connection
        self._entries = EntryTable(connection)
        self._entries_max = entries_per_chat_max
        self._bytes_max = bytes_max
        self._chats_max = chats_max
        self._chats: dict[str, ChatRow] = {}
        self._used = 0
        self._load()

    def _load(self) -> None:
        rows = self._connection.execute(
            "SELECT id, name, used, floor, head, is_first, stale, entries, size, cleared FROM chat"
        )
        self._chats = {row[1]: ChatRow(*row) for row in rows}
        self._used = max((chat.used for chat in self._chats.values()), default=0)

    @property
    def size(self) -> int:
        """The size of all cached entries in bytes."""
        return sum(chat.size for chat in self._chats.values())

    @property
    def entries(self) -> int:
        return sum(chat.entries for chat in self._chats.values())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction that also writes the changed chat rows."""
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
            " size = ?, cleared = ? WHERE id = ?",
            [
                (c.used, c.floor, c.head, c.is_first, c.stale, c.entries, c.size, c.cleared, c.id)
                for c in changed
            ],
        )
        for chat in changed:
            chat.is_changed = False

    def apply(self, changes: Iterable[Change], infos: Mapping[str, bytes], now_s: float) -> None:
        """Apply changes in order, then save the chats' `infos`. Call it in a transaction."""
        touched: dict[str, ChatRow] = {}
        for change in changes:
            match change:
                case Delivered(name, entry):
                    chat = touched[name] = self._get_or_create_row(name)
                    self._put_delivered(chat, entry)
                case PageRead(name, entries, before, after, has_more):
                    chat = touched[name] = self._get_or_create_row(name)
                    self._put_page(chat, entries, before, after, has_more=has_more)
                case MessagesHidden(name, seqs):
                    self._entries.hide(self._get_or_create_row(name), seqs)
                case ChatCleared(name, upto):
                    self._clear(name, upto)
                case Skipped(name, _, upto):
                    self._skip(self._get_or_create_row(name), upto)
                case EntriesWithdrawn(name, _, after):
                    self._truncate(self._get_or_create_row(name), after)
                case ChatDropped(name):
                    self._drop(name)
                    touched.pop(name, None)
                case ChatsUnverified(chats, verified, epoch):
                    self._mark_unverified(self._chats.keys() - verified if chats is None else chats)
                    if epoch is not None:
                        self._set_epoch(epoch)
                case _:
                    assert_never(change)
        for name, info in infos.items():
            chat = self._get_or_create_row(name)
            self._connection.execute("UPDATE chat SET info = ? WHERE id = ?", (info, chat.id))
        for chat in touched.values():
            self._trim(chat)
        self._entries.expire({chat.id: chat for chat in self._chats.values()}, now_s)
        self._evict()

    def _get_or_create_row(self, name: str) -> ChatRow:
        """Return or create the row of a chat, and mark it as the most recently used one."""
        self._used += 1
        chat = self._chats.get(name)
        if chat is None:
            (id_,) = self._connection.execute(
                "INSERT INTO chat (name, used, floor, head, is_first, stale, entries, size)"
                " VALUES (?, ?, 1, 0, 0, 0, 0, 0) RETURNING id",
                (name, self._used),
            ).fetchone()
            chat = self._chats[name] = ChatRow(id_, name, self._used)
        chat.used, chat.is_changed = self._used, True
        return chat

    def _put_delivered(self, chat: ChatRow, entry: Entry) -> None:
        if entry.seq <= chat.stale:  # cached copies may be outdated; entries arrive again
            self._truncate(chat, entry.seq - 1)
        if entry.seq <= chat.cleared:
            if entry.seq > chat.head:  # nothing is cached
                chat.clear(entry.seq)
            return
        if entry.seq > chat.head + 1 or (chat.is_empty and entry.seq <= chat.head):
            self._entries.delete(chat, 0, entry.seq)  # there is a gap, or nothing is cached
            chat.clear(entry.seq - 1)
        if entry.seq >= chat.floor:
            self._entries.put(chat, entry)
            chat.head = max(chat.head, entry.seq)

    def _put_page(
        self,
        chat: ChatRow,
        entries: tuple[Entry, ...],
        before: int | None,
        after: int | None,
        *,
        has_more: bool,
    ) -> None:
        """Write a page if it overlaps or adjoins verified entries; otherwise, ignore it.

        If the chat has no verified entries, the newest page is written.
        """
        low, high = _get_page_range(entries, before, after)
        if low <= chat.cleared + 1:  # the user has cleared all entries below the page
            has_more = has_more and after is not None
            entries = tuple(entry for entry in entries if entry.seq > chat.cleared)
            low, high = chat.cleared + 1, max(high, chat.cleared)
        if after is not None:
            is_adjacent = not chat.is_empty and chat.bottom <= low <= chat.head + 1
        elif before is not None:
            is_adjacent = not chat.is_empty and chat.bottom - 1 <= high <= chat.head
        else:
            is_adjacent = self._prepare_newest_page(chat, low, high, has_more=has_more)
        if not is_adjacent:
            return
        if low <= chat.stale <= high:
            self._entries.delete(chat, low, chat.stale)
        for entry in entries:
            self._entries.put(chat, entry)
        chat.head = max(chat.head, high)
        if after is None and not (has_more and entries):
            self._entries.delete(chat, 0, low - 1)
            chat.floor, chat.is_first, chat.stale = low, True, 0
        elif low < chat.floor:
            chat.floor, chat.is_first, chat.stale = low, False, 0
        elif low <= chat.stale:
            chat.stale = low - 1 if low > chat.floor else 0

    def _prepare_newest_page(self, chat: ChatRow, low: int, high: int, *, has_more: bool) -> bool:
        """Delete entries that do not fit the newest page; return False to ignore the page."""
        if chat.is_empty or chat.stale >= chat.head:
            self._truncate(chat, high)  # the server has no entries after the page
            if chat.is_empty or chat.head < low - 1:
                self._entries.delete(chat, 0, low)
                chat.clear(low - 1)
            return True
        # Ignore a page above a gap: the entries in the gap are delivered later.
        is_above = low > chat.head + 1
        return not (is_above and has_more) and high >= chat.bottom - 1

    def _clear(self, name: str, upto: int) -> None:
        """Delete the entries up to `upto`. Later copies of them are ignored."""
        chat = self._chats.get(name)
        if chat is None or upto <= chat.cleared:
            return
        chat.cleared, chat.is_changed = upto, True
        self._entries.clear(chat, upto)
        if chat.floor > upto + 1:
            return
        if upto >= chat.head:
            is_first = chat.is_first if chat.is_empty else chat.stale < chat.head
            chat.clear(upto)
            chat.is_first = is_first
        else:
            chat.floor, chat.is_first = upto + 1, True
            chat.stale = chat.stale if chat.stale > upto else 0

    def _skip(self, chat: ChatRow, upto: int) -> None:
        if chat.stale < chat.head:  # unverified entries stay, to be compared with the server
            self._entries.delete(chat, 0, upto)
            chat.floor, chat.head = max(chat.floor, upto + 1), max(chat.head, upto)
            chat.is_first, chat.stale = False, chat.stale if chat.stale > upto else 0

    def _truncate(self, chat: ChatRow, after: int) -> None:
        """Delete the entries above `after`."""
        self._entries.delete(chat, after + 1, max(chat.head, after + 1))
        chat.head, chat.stale = min(chat.head, after), min(chat.stale, after)
        if chat.is_empty:
            chat.clear(chat.head)

    def _drop(self, name: str) -> None:
        chat = self._chats.pop(name, None)
        if chat is not None:
            self._entries.drop(chat)
            self._connection.execute("DELETE FROM chat WHERE id = ?", (chat.id,))

    def _mark_unverified(self, names: Iterable[str]) -> None:
        for name in names:
            chat = self._chats.get(name)
            if chat is None:
                continue
            # Pages from the server omit the text of hidden messages, so the hidden seqs are not
            # needed. In a new epoch, a hidden seq may belong to another message.
            self._entries.clear_hidden(chat)
            if not chat.is_empty:
                chat.stale, chat.is_changed = chat.head, True
            elif chat.cleared:
                chat.is_first, chat.is_changed = False, True

    @property
    def epoch(self) -> str:
        """The epoch of the cached entries; empty if none has been recorded.

        It may be newer than that of the saved cursor.
        """
        row = self._connection.execute("SELECT value FROM record WHERE name = 'epoch'").fetchone()
        return "" if row is None else str(row[0])

    def _set_epoch(self, epoch: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO record VALUES ('epoch', ?)", (epoch,))

    def _trim(self, chat: ChatRow) -> None:
        if chat.entries > self._entries_max:
            self._evict_oldest(chat, chat.entries - self._entries_max)

    def _evict_oldest(self, chat: ChatRow, count: int) -> None:
        last = self._entries.find_nth(chat, count)
        self._entries.delete(chat, 0, last)
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
                    self._evict_oldest(chat, EVICTED_AT_ONCE)
                    size += chat.size
        surplus = len(self._chats) - self._chats_max
        if surplus > 0:
            oldest = sorted(self._chats.values(), key=lambda chat: chat.used)[:surplus]
            for chat in oldest:
                self._drop(chat.name)

    def vacuum(self) -> None:
        """Return free pages to the file system. Call it outside of a transaction."""
        self._connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()

    def list_chats(self) -> list[CachedChat]:
        """Return the cached chats, most recently used last."""
        rows = self._connection.execute("SELECT name, info, cleared FROM chat ORDER BY used")
        return [CachedChat(*row) for row in rows]

    def list_newest(self, name: str, upto: int | None, limit: int, now_s: float) -> list[Entry]:
        """Return the newest entries up to `upto` that cannot be outdated; none if not cached."""
        chat = self._chats.get(name)
        if chat is None or chat.is_empty:
            return []
        top = chat.head if upto is None else upto
        if not chat.bottom <= top <= chat.head:
            return []
        return self._entries.read(chat, chat.bottom, top, limit, now_s, is_down=True)

    def read_page(
        self, name: str, *, before: int | None, after: int | None, limit: int, now_s: float
    ) -> CachedPage | None:
        """Return a page of entries that cannot be outdated; None if its start is not cached."""
        chat = self._chats.get(name)
        if chat is None:
            return None
        if after is not None:
            if not (chat.bottom <= after + 1 <= chat.head + 1 or chat.is_complete):
                return None
            entries = self._entries.read(chat, after + 1, chat.head, limit, now_s, is_down=False)
            return CachedPage(entries, bool(entries) and entries[-1].seq < chat.head)
        top = chat.head if before is None else before - 1
        if top > chat.head or not (top >= chat.bottom or chat.is_complete):
            return None
        entries = self._entries.read(chat, chat.bottom, top, limit, now_s, is_down=True)
        if not entries and not chat.is_complete:
            return None
        self._used += 1
        chat.used, chat.is_changed = self._used, True
        oldest = entries[0].seq if entries else 0
        has_more = not chat.is_complete or self._entries.has_any(chat, chat.floor, oldest - 1)
        return CachedPage(entries, has_more)

    def find_unverified(self) -> Unverified | None:
        """Return the next page to compare with the server, from the most recently used chat."""
        stale = (chat for chat in self._chats.values() if chat.stale >= chat.floor)
        chat = max(stale, key=lambda chat: chat.used, default=None)
        if chat is None:
            return None
        return Unverified(chat.name, None if chat.stale >= chat.head else chat.stale + 1)


def _get_page_range(
    entries: tuple[Entry, ...], before: int | None, after: int | None
) -> tuple[int, int]:
    """Return the first and last seq of the range that a page covers completely."""
    if after is not None:
        return after + 1, entries[-1].seq if entries else after
    if before is not None:
        return entries[0].seq if entries else before, before - 1
    return (entries[0].seq, entries[-1].seq) if entries else (1, 0)
