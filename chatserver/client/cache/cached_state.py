"""Restores a client's state from its message cache, and encodes chats for the cache."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from chatserver.client.cache.sqlite_store import CachedChat, SqliteStore
from chatserver.client.chat import SavedChat
from chatserver.client.client_state import ClientState
from chatserver.client.model import Entry
from chatserver.protocol.frames import Cursor

LOADED_PER_CHAT = 50  # maximum entries per chat loaded into memory (the newest)
LOADED_MAX = 5_000  # maximum entries loaded in total; the most recently used chats come first


class LoadedChat(NamedTuple):
    """A cached chat with its newest entries."""

    cached: CachedChat
    entries: list[Entry]


def load_chats(
    store: SqliteStore, cursor: Cursor | None, shown: dict[str, int | None], now_s: float
) -> list[LoadedChat]:
    """Read the chats, most recently used last. `shown`: the last delivered seq of each chat.

    If the cached entries are from another epoch than the saved `cursor`, no entries are returned:
    the application may have received other entries at the same seqs. `chatserver.client.catch_up`
    later compares the chat's entries with the server's.
    """
    chats: list[LoadedChat] = []
    is_current = cursor is not None and cursor.epoch == store.epoch
    remaining = LOADED_MAX if is_current else 0
    for cached in reversed(store.list_chats()):
        limit = min(LOADED_PER_CHAT, remaining)
        upto = shown.get(cached.chat)
        entries = store.list_newest(cached.chat, upto, limit, now_s) if limit else []
        remaining -= len(entries)
        chats.append(LoadedChat(cached, entries))
    return chats[::-1]


def restore_chats(state: ClientState, chats: Collection[LoadedChat]) -> None:
    """Add the chats to a client state whose delivery position has already been restored."""
    for cached, entries in chats:
        state.clear_chat(cached.chat, cached.cleared)
        chat = state.get_or_create_chat(cached.chat)
        if cached.info is not None:
            chat.restore(msgspec.json.decode(cached.info, type=SavedChat))
        if not chat.log.is_unverified:
            chat.log.put_cached(entries)
            chat.last = next(iter(chat.log.messages()[-1:]), None)


def encode_infos(state: ClientState, chats: Collection[str]) -> dict[str, bytes]:
    """Return `{chat: encoded SavedChat}` for these chats."""
    known = (state.chats[name] for name in chats if name in state.chats)
    return {chat.id: msgspec.json.encode(chat.save()) for chat in known if not chat.is_left}
