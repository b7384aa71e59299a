"""Records what a client receives as changes to its message cache. No I/O.

Methods are called as input arrives, so the changes are in server order. Cached entries become
unverified if the client may have missed changes to them. Unverified entries are not read until they
are compared with the server. Entries become unverified in:

* all chats, if a new epoch begins or the client has no cursor;
* if a `too_long` arrives: chats whose missed entries are not delivered, and chats that are not in
  the snapshot, because only the snapshot lists messages that the user deleted for themselves;
* large chats whose delivery starts with this connection;
* a chat if its setting `history` changes (which entries new members can read).
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import msgspec

from chatserver.client.cache.changes import (
    Change,
    ChatDropped,
    ChatsUnverified,
    Delivered,
    PageRead,
)
from chatserver.client.chat import parse_settings
from chatserver.client.client_state import ClientState
from chatserver.client.events import (
    ChatChanged,
    ChatCleared,
    EntriesWithdrawn,
    Event,
    MemberChanged,
    MessageAdded,
    MessageChanged,
    MessagesHidden,
    PinsChanged,
    Skipped,
)
from chatserver.client.model import parse_entry
from chatserver.client.request_queue import Fields
from chatserver.protocol.frames import Cursor

CHANGES_MAX = 5_000  # maximum unwritten changes; at this number, the server holds back events


@attrs.define(eq=False, repr=False)
class ChangeRecorder:
    """The changes to a client's message cache that have not been written yet."""

    _state: ClientState
    _changes: list[Change] = attrs.field(factory=list, init=False)
    has_unverified: bool = False  # True if the changes contain a `ChatsUnverified`

    @property
    def is_full(self) -> bool:
        """True while the server must hold back events."""
        return len(self._changes) >= CHANGES_MAX

    def pop_changes(self) -> list[Change]:
        changes, self._changes = self._changes, []
        self.has_unverified = False
        return changes

    def _record_unverified(
        self,
        chats: frozenset[str] | None = None,
        verified: frozenset[str] = frozenset(),
        epoch: str | None = None,
    ) -> None:
        self._changes.append(ChatsUnverified(chats, verified, epoch))
        self.has_unverified = True

    def record_welcome(self, welcome: Fields) -> None:
        cursor = self._state.cursor
        if cursor is None or cursor.epoch != welcome["epoch"]:
            self._record_unverified(epoch=welcome["epoch"])
            return
        heads = [head["chat"] for head in welcome.get("large", []) if isinstance(head, dict)]
        # Delivery of these chats starts now, so earlier changes to them are unknown.
        begun = frozenset(chat for chat in heads if not self._is_delivered(chat))
        if begun:
            self._record_unverified(begun)

    def record_snapshot(self, frame: Fields) -> None:
        """Record a `reset` or `too_long`."""
        cursor, position = self._state.cursor, msgspec.convert(frame["cursor"], Cursor)
        if frame["type"] == "reset" or cursor is None or cursor.epoch != position.epoch:
            self._record_unverified(epoch=position.epoch)
            return
        listed = frozenset(summary["chat"] for summary in frame["chats"])
        verified = frozenset(chat for chat in listed if self._is_delivered(chat))
        if cursor == position:  # a snapshot of one large chat: no other events were missed
            self._record_unverified(listed - verified)
        else:
            self._record_unverified(verified=verified)

    def _is_delivered(self, chat: str) -> bool:
        known = self._state.chats.get(chat)
        return known is not None and known.log.shown is not None

    def record_page(self, request: Fields, page: Fields) -> None:
        """Record the response to a `history` request."""
        chat = self._state.chats.get(page["chat"])
        if chat is not None and chat.is_left:
            return  # the user has left: deletions are not delivered, so do not cache the page
        entries = tuple(parse_entry(fields) for fields in page["messages"])
        before, after = request.get("before"), request.get("after")
        self._changes.append(PageRead(page["chat"], entries, before, after, page["more"]))
        if chat is not None and chat.cleared_upto:
            # The cache may have no row for this chat yet, and a new row does not have `cleared`.
            self.record_cleared(chat.id, chat.cleared_upto)

    def record_cleared(self, chat: str, upto: int) -> None:
        self._changes.append(ChatCleared(chat, upto))

    def record_access_lost(self, chat: str) -> None:
        self._changes.append(ChatDropped(chat))

    def record_events(self, events: Iterable[Event]) -> None:
        for event in events:
            self._record(event)

    def _record(self, event: Event) -> None:
        match event:
            case MessageAdded(chat, entry) | MessageChanged(chat, entry, _):
                self._changes.append(Delivered(chat, entry))
            case PinsChanged(chat, entry):
                self._changes.append(Delivered(chat, entry))
            case MemberChanged(chat, entry) if entry.user == self._state.user and not entry.role:
                # The user has left. Later deletions are not delivered, so delete all entries.
                self._changes.append(ChatDropped(chat))
            case MemberChanged(chat, entry):
                self._changes.append(Delivered(chat, entry))
            case ChatChanged(chat, entry) if entry is not None:
                self._changes.append(Delivered(chat, entry))
                if parse_settings(entry).history is not None:
                    self._record_unverified(frozenset({chat}))
            case MessagesHidden() | Skipped() | EntriesWithdrawn():
                self._changes.append(event)
            case _:
                pass
