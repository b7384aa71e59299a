"""`LocalStore`: loads and saves a client's state and message cache in one thread.

The event loop never waits for the disk. A save writes the pending changes, the delivery position
and the outbox in one transaction, so the cache has every entry up to the position. The cache may be
ahead of the position; entries that are delivered again change nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import msgspec

from chatserver.client import saved_state
from chatserver.client.cache.change_recorder import ChangeRecorder
from chatserver.client.cache.message_cache import CachedChat, CachedPage, MessageCache, Unverified
from chatserver.client.cache.sqlite_store import Owner, SqliteStore
from chatserver.client.chat import SavedChat
from chatserver.client.client_state import ClientState
from chatserver.client.event_queue import EventQueue
from chatserver.client.events import Event
from chatserver.client.model import Entry
from chatserver.client.request_queue import Fields
from chatserver.client.state_store import Saved, Store
from chatserver.domain.clock import Clock
from chatserver.errors import ChatError
from chatserver.protocol.frames import Cursor
from chatserver.task_groups import wait_for_shared

LOADED_PER_CHAT = 50  # maximum entries per chat loaded into memory (the newest)
LOADED_MAX = 5_000  # maximum entries loaded in total; the most recently used chats come first
SAVE_S = 0.5  # maximum time between saves; new operations are saved before they are sent

T = TypeVar("T")


class LoadedChat(NamedTuple):
    """A cached chat with its newest entries."""

    cached: CachedChat
    entries: list[Entry]


class LocalStore:
    """The store of one client. A `SqliteStore` is also its message cache."""

    def __init__(self, store: Store, state: ClientState, clock: Clock, server: str) -> None:
        self._store = store
        self._cache = store if isinstance(store, SqliteStore) else None
        self._state = state
        self._clock = clock
        self._server = server
        self._recorder = ChangeRecorder(state) if self._cache is not None else None
        self.unverified = asyncio.Event()  # set if messages must be compared with the server
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chat-store")
        self._lock = asyncio.Lock()
        self._owner = Owner()
        self._last = Saved()
        self._is_position_changed = True  # True if the delivery position may have changed
        self._changed: set[str] = set()  # chats whose info has not been saved
        self.save_requested = asyncio.Event()  # set to save immediately
        self._is_full = False  # True while the server holds back events, until the next save
        self._is_ended = False  # True after a failure: nothing is saved anymore
        self._is_closed = False

    async def _run(self, call: Callable[[], T]) -> T:
        # Do not cancel a write: its changes are no longer in the recorder and would be lost.
        return await wait_for_shared(asyncio.get_running_loop().run_in_executor(self._thread, call))

    @property
    def has_cache(self) -> bool:
        return self._cache is not None

    @property
    def is_full(self) -> bool:
        """True while the server must hold back events, because too many changes are unsaved."""
        return self._is_full

    async def load(self, user: str) -> None:
        """Restore the client state. `user`: the user in the token, or empty if not known.

        Raises:
            Conflict: the store belongs to another user or server, or another process uses it.
            CorruptData: the store is damaged.
        """
        if self._cache is not None:
            owner = Owner(user, self._server)
            cache = self._cache
            self._owner = await self._run(lambda: cache.claim(owner))
            self._state.user = self._owner.user
        saved = await self._run(self._store.load)
        saved_state.restore(self._state, saved.position, saved.outbox)
        self._last = saved
        if self._cache is not None:
            shown = {chat.id: chat.log.shown for chat in self._state.chats.values()}
            now_s = self._clock.time()
            # Overwrite the messages that have expired.
            await self._run(lambda: cache.save_changes(Saved(), (), {}, now_s))
            cursor = self._state.cursor
            loaded = await self._read(cache, lambda read: load_chats(read, cursor, shown, now_s))
            restore_chats(self._state, loaded)

    def mark_position_changed(self) -> None:
        self._is_position_changed = True

    def record_welcome(self, welcome: Fields) -> None:
        """Record a `welcome` before `ClientState` handles it."""
        if self._recorder is not None:
            self._recorder.record_welcome(welcome)
            self.unverified.set()  # an earlier process may have left unverified messages

    def record_frame(self, frame: Fields) -> None:
        """Record a frame before `ClientState` handles it."""
        if self._recorder is not None and frame["type"] in ("too_long", "reset"):
            self._recorder.record_snapshot(frame)
            self._changed |= {summary["chat"] for summary in frame["chats"]}
            self.unverified.set()

    def record_answer(self, request: Fields, answer: Fields) -> None:
        """Record the response to a request from the application."""
        if self._recorder is None:
            return
        if request["type"] == "history":
            self._recorder.record_page(request, answer)
        elif request["type"] == "chats":
            self._changed |= {summary["chat"] for summary in answer["chats"]}
        elif isinstance(answer.get("chat"), dict):
            self._changed.add(answer["chat"]["chat"])

    def record_events(self, events: Sequence[Event]) -> None:
        """Record events before the application receives them."""
        if self._recorder is not None:
            self._recorder.record_events(events)
            self._changed |= {chat for event in events if (chat := _get_chat(event)) is not None}
            if self._recorder.has_unverified:
                self.unverified.set()
            if self._recorder.is_full:
                self._is_full = True
                self.save_requested.set()

    def record_cleared(self, chat: str, upto: int) -> None:
        if self._recorder is not None:
            self._recorder.record_cleared(chat, upto)

    def record_access_lost(self, chat: str) -> None:
        if self._recorder is not None:
            self._recorder.record_access_lost(chat)

    async def run(self, save: Callable[[], Awaitable[None]], resume: Callable[[], None]) -> None:
        """Save every `SAVE_S` or on request, until cancelled.

        If `is_full` was set, call `resume` after the save.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_S):
                    await self.save_requested.wait()
            self.save_requested.clear()
            await save()
            if self._is_full:
                self._is_full = False
                resume()

    async def save(self, events: EventQueue, *, is_closing: bool = False) -> None:
        """Save all changes. `events`: the events that the application has not consumed.

        The last event that the application received counts as consumed only if `is_closing`.

        Raises:
            Unavailable: the store cannot be written. Nothing is saved from then on.
        """
        async with self._lock:
            if self._is_ended:
                return
            if self._cache is not None and self._state.user != self._owner.user:
                cache, owner = self._cache, Owner(self._state.user, self._server)
                self._owner = await self._run(lambda: cache.claim(owner))
            write = self._prepare_write(events, is_closing=is_closing)
            if write is None:
                return
            try:
                await self._run(write)
            except ChatError:
                self._is_ended = True  # the changes are lost, so later saves would be incomplete
                raise

    def _prepare_write(self, events: EventQueue, *, is_closing: bool) -> Callable[[], None] | None:
        """Return a function that writes all changes, or None if there are none."""
        queue, position, infos = list(events), None, {}
        current = None if is_closing else events.current
        if self._state.user and self._is_position_changed:
            unconsumed = queue if current is None else [current, *queue]
            position = saved_state.encode_position(self._state, unconsumed)
            if position is not None:
                self._is_position_changed = False
                # Save chats with unconsumed events later: their `SavedChat` already includes these
                # events, but the saved `position` is before them.
                names = self._changed - {_get_chat(queued.event) for queued in unconsumed}
                self._changed -= names
                infos = encode_infos(self._state, names)
        outbox = saved_state.encode_outbox(self._state, queue)
        saved = Saved(
            None if position == self._last.position else position,
            None if outbox == self._last.outbox else outbox,
        )
        self._last = Saved(position or self._last.position, outbox)
        if self._cache is None or self._recorder is None:
            return None if saved == Saved() else lambda: self._store.save(saved)
        cache, changes, now_s = self._cache, self._recorder.pop_changes(), self._clock.time()
        if saved == Saved() and not changes and not infos:
            return None
        return lambda: cache.save_changes(saved, changes, infos, now_s)

    async def close(self) -> None:
        """Close the store. Idempotent."""
        await self._end(self._store.close)

    async def delete(self) -> None:
        """Delete the stored state and messages. Nothing is saved from then on."""
        await self._end(self._store.delete)

    async def _end(self, call: Callable[[], None]) -> None:
        async with self._lock:
            self._is_ended = True
            if not self._is_closed:
                self._is_closed = True
                await self._run(call)
                self._thread.shutdown(wait=False)

    async def read_page(self, request: Fields) -> CachedPage | None:
        """Return the page for a `history` request, or None if it is not cached."""
        cache = self._cache
        if cache is None or self._is_closed:
            return None
        now_s = self._clock.time()
        before, after = request.get("before"), request.get("after")
        chat, limit = request["chat"], request["limit"]
        return await self._read(
            cache,
            lambda read: read.read_page(chat, before=before, after=after, limit=limit, now_s=now_s),
        )

    async def _read(self, cache: SqliteStore, query: Callable[[MessageCache], T]) -> T:
        return await self._run(lambda: cache.read(query))

    async def find_unverified(self) -> Unverified | None:
        """Return the next page to compare with the server."""
        cache = self._cache
        return None if cache is None else await self._read(cache, MessageCache.find_unverified)


def _get_chat(event: Event) -> str | None:
    return getattr(event, "chat", None)


def load_chats(
    store: MessageCache, cursor: Cursor | None, shown: dict[str, int | None], now_s: float
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
