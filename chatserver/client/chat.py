"""State of one chat on a device: info, members, message log and read marks.

No I/O. `apply_*` methods apply input; most return the events to deliver to the application.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from chatserver.client.chat_log import ReceivedChatLog, VerificationResult
from chatserver.client.events import (
    ChatChanged,
    EntriesWithdrawn,
    Event,
    Marked,
    MemberChanged,
    MessageAdded,
    MessageChanged,
    MessagesHidden,
    PinsChanged,
    Skipped,
)
from chatserver.client.model import Bounds, Entry, Marks, parse_entry
from chatserver.domain.write_restrictions import MUTE_OVER
from chatserver.protocol.message_change_effects import MESSAGE_CHANGE_KINDS, is_message


class _Settings(msgspec.Struct):
    """The fields of an `update` entry's body that the client uses."""

    slow_s: int | None = None
    retention_s: int | None = None
    topic: str | None = None
    picture: str | None = None
    history: str | None = None  # which entries new members can read


def parse_settings(entry: Entry) -> _Settings:
    """Return the settings that an `update` entry changes."""
    try:
        return msgspec.json.decode(entry.body, type=_Settings)
    except msgspec.MsgspecError:
        # The entry only changes the name, or a newer server has changed the format.
        return _Settings()


class SavedChat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cached state of a chat, without its messages."""

    kind: str
    top: int
    read: int
    unread: int
    name: str | None = None
    members: dict[str, str] | None = None
    slow_s: int = 0
    retention_s: int = 0
    muted: dict[str, int] = {}
    marks: dict[str, Marks] = {}
    is_large: bool = False
    is_ended: bool = False
    needs_history: bool = False
    topic: str | None = None
    picture: str | None = None


class _UnreadCount(NamedTuple):
    """The unread count in the chat list. It counts messages after seq `read`, up to seq `top`."""

    read: int
    top: int
    unread: int

    def without_cleared(self, cleared_upto: int) -> _UnreadCount:
        """Return the count without cleared messages; approximate if only some are cleared."""
        return self._replace(unread=min(self.unread, max(0, self.top - cleared_upto)))


class Chat:
    """A chat that the client has loaded."""

    def __init__(self, chat: str, me: str, bounds: Bounds) -> None:
        self.id = chat
        self.kind = "direct" if chat.startswith("d-") else "group"
        self.name: str | None = None
        self.topic: str | None = None  # None: empty, or not loaded
        self.picture: str | None = None  # picture id, see `GET /v1/chats/{chat}/picture`
        self.members: dict[str, str] | None = None  # user → role; None: not known
        self.slow_s = 0  # minimum seconds between two messages of a member; 0: none, or not loaded
        self.retention_s = 0  # message lifetime in seconds; 0: forever
        # User → end of the mute in Unix seconds (0: it never ends). Some users may be missing.
        self.muted: dict[str, int] = {}
        self.last: Entry | None = None  # last message, from the chat list or the cache
        self.is_large = False
        self.is_left = False  # True if the user has left or was removed
        self.is_ended = False  # True for a companion session that has ended and is read-only
        self.needs_history = False  # True if the chat has entries that have never been loaded
        self.cleared_upto = 0  # seq up to which the user has cleared the chat
        self.log = ReceivedChatLog(bounds.entries_max)
        self.marks: dict[str, Marks] = {}
        self._me = me
        self._marks_max = bounds.marks_max
        self._listed_top = 0
        self._is_started_by_event = False
        self._unread_count: _UnreadCount | None = None
        self._previous_marks: set[str] = set()  # users with read marks from a previous epoch

    @property
    def top(self) -> int:
        """The newest known seq."""
        return max(self._listed_top, self.log.top)

    @property
    def read(self) -> int:
        mine = self.marks.get(self._me)
        return 0 if mine is None else mine.read

    @property
    def unread(self) -> int:
        """The number of unread messages from others; approximate while entries are missing."""
        listed = self._unread_count
        if listed is not None and listed.read == self.read and listed.top <= self.top:
            first = max(listed.read, self.cleared_upto) + 1
            gone = self.log.count_deleted_since(listed.top, first, listed.top)
            return max(0, listed.unread - gone) + self._count_messages(listed.top)
        return self._count_messages(self.read)

    def _count_messages(self, after: int) -> int:
        after = max(after, self.cleared_upto)
        return max(0, self.top - after - self.log.count_ignored(after))

    @property
    def peer(self) -> str | None:
        """The other member of a direct chat; None in a group, or if the members are not loaded."""
        others = [user for user in self.members or {} if user != self._me]
        return others[0] if self.kind == "direct" and len(others) == 1 else None

    def apply_info(self, info: dict[str, Any]) -> None:
        self._apply_common_fields(info)
        if "members" in info:  # `info` is complete: absent fields have their default values
            self.slow_s = info.get("slow_s", 0)
            self.retention_s = info.get("retention_s", 0)
            self.topic, self.picture = info.get("topic"), info.get("picture")
            self.muted = dict(info.get("muted") or {})

    def is_muted(self, user: str, now: float) -> bool:
        """Return whether a member is muted; `now` is in Unix seconds.

        The owner and admins can write even if muted.
        """
        until = self.muted.get(user)
        return until is not None and (until == 0 or until > now)

    def _apply_common_fields(self, info: dict[str, Any]) -> None:
        self.kind = info.get("kind", self.kind)
        self.name = info.get("name", self.name)
        self.is_ended = self.is_ended or info.get("ended", False)
        if info.get("members"):
            before = self.members or {}
            roles = info.get("roles") or {}
            self.members = {
                user: roles.get(user, before.get(user, "member")) for user in info["members"]
            }

    def apply_summary(self, summary: dict[str, Any]) -> list[Event]:
        """Apply the chat's item (`ChatSummary`) in the chat list or in a snapshot."""
        self._apply_common_fields(summary)
        self.picture = summary.get("picture")
        self._listed_top = max(self._listed_top, summary.get("top", 0))
        if summary.get("last") and summary["last"]["seq"] > self.cleared_upto:
            self.last = parse_entry(summary["last"])
        changed = self.apply_marks({"user": self._me, "read": summary.get("read", 0)})
        self._unread_count = _UnreadCount(
            summary.get("read", 0), summary.get("top", 0), summary.get("unread", 0)
        ).without_cleared(self.cleared_upto)
        if summary.get("peer"):
            changed += self.apply_marks(summary["peer"])
        if summary.get("hidden"):
            self.log.hide(summary["hidden"])
            changed.append(MessagesHidden(self.id, tuple(summary["hidden"])))
        if self.log.shown is None and self._listed_top > self.log.newest:
            self.needs_history = True
        return changed

    def apply_marks(self, marks: dict[str, Any]) -> list[Event]:
        """Apply a member's read and received marks; lower marks change nothing."""
        user = marks["user"]
        known = self.marks.get(user)
        if known is None:
            if len(self.marks) >= self._marks_max and user != self._me:
                return []
            known = self.marks[user] = Marks()
        elif user in self._previous_marks:
            self._previous_marks.discard(user)
            known.read = known.received = 0
        if not known.raise_to(marks.get("read", 0), marks.get("received", 0)):
            return []
        return [Marked(self.id, user, known.read, known.received)]

    def save(self) -> SavedChat:
        return msgspec.convert(self, SavedChat, from_attributes=True)

    def restore(self, saved: SavedChat) -> None:
        self.kind, self.name, self.members = saved.kind, saved.name, saved.members
        self.slow_s, self.retention_s, self.muted = saved.slow_s, saved.retention_s, saved.muted
        self.is_large, self.is_ended = saved.is_large or self.is_large, saved.is_ended
        self.needs_history = saved.needs_history
        self.topic, self.picture = saved.topic, saved.picture
        for user, marks in saved.marks.items():
            self.apply_marks({"user": user, "read": marks.read, "received": marks.received})
        if not self.log.is_unverified:
            self._listed_top = saved.top
            self._unread_count = _UnreadCount(saved.read, saved.top, saved.unread)

    def mark_unverified(self) -> None:
        """Mark entries and read marks as unverified: the server may have reassigned seqs."""
        self.log.mark_unverified()
        self._previous_marks = set(self.marks)
        self._listed_top, self._unread_count = 0, None
        # If delivery began with an event, entries before it may never have been loaded.
        self.needs_history = self.needs_history or self._is_started_by_event
        self._is_started_by_event = False

    def apply_verification(self, found: VerificationResult) -> list[Event]:
        """Apply the comparison of the entries with the server's; return the events to deliver."""
        for user in self._previous_marks:
            marks = self.marks[user]
            marks.read = min(marks.read, found.match_seq)
            marks.received = min(marks.received, found.match_seq)
        # After an inexact match, even lower read marks from the server replace the current ones.
        if found.is_exact:
            self._previous_marks.clear()
        events: list[Event] = []
        if found.is_truncated:
            events.append(EntriesWithdrawn(self.id, found.withdrawn, found.match_seq))
        if not found.is_exact and self.log.shown is not None:
            # Entries above `shown` come after a gap: they are not skipped, but delivered later.
            events.append(Skipped(self.id, 0, min(found.match_seq, self.log.shown)))
        return [*events, *self.release_events()]

    def apply_entry(self, entry: Entry) -> Iterator[Event]:
        """Apply a pushed entry."""
        if not self.log.is_unverified:
            if self.log.shown is None and entry.seq > 1:
                self._is_started_by_event = True
            self.log.start_after(entry.seq - 1)
        if self.log.is_adjacent(entry.seq):
            self.log.put(entry)
        self.log.record_pushed(entry.seq)
        if is_message(entry):
            # A sender has read all earlier messages. The server sends no event for that.
            self.apply_marks({"user": entry.sender, "read": entry.seq})
        yield from self.release_events()

    def hide(self, seqs: list[int]) -> list[Event]:
        """Hide messages that the user deleted only for themselves."""
        if self._unread_count is not None:
            read, top, unread = self._unread_count
            new = sum(read < seq <= top and not self.log.is_hidden(seq) for seq in seqs)
            self._unread_count = _UnreadCount(read, top, max(0, unread - new))
        self.log.hide(seqs)
        return [MessagesHidden(self.id, tuple(seqs))]

    def clear(self, upto: int) -> bool:
        """Remove the messages up to seq `upto`; return False if they are already cleared."""
        if upto <= self.cleared_upto:
            return False
        self.cleared_upto = upto
        self.log.clear(upto)
        if self._unread_count is not None:
            self._unread_count = self._unread_count.without_cleared(upto)
        if self.last is not None and self.last.seq <= upto:
            self.last = None
        return True

    def apply_page(
        self, page: list[Entry], *, is_newest: bool, before: int | None = None
    ) -> Iterator[Event]:
        """Apply a page that the application requested; its entries are not delivered as events."""
        if is_newest:
            if page:
                self.log.put_page(page)
                if not self.log.is_unverified:
                    self.log.start_after(page[-1].seq)
            elif self.log.shown is None:
                self.log.start_after(0)
            self.needs_history = self._is_started_by_event = False
        else:
            self.log.put_page(page, before)
        yield from self.release_events()

    def refresh(self, page: list[Entry]) -> list[Event]:
        """Replace stored entries with newer copies; ignore entries that are not stored.

        A message that became deleted without a delete entry was deleted only for the user.
        """
        hidden = [entry.seq for entry in page if self.log.is_hidden_by(entry)]
        self.log.refresh(page)
        return self.hide(hidden) if hidden else []

    def release_events(self) -> Iterator[Event]:
        """Yield the events for all entries up to the next gap."""
        for entry in self.log.advance():
            yield self._apply_delivered(entry)

    def _apply_delivered(self, entry: Entry) -> Event:
        if entry.kind in MESSAGE_CHANGE_KINDS:
            target = None if entry.target is None else self.log.find(entry.target)
            return MessageChanged(self.id, entry, target)
        if entry.kind == "member":
            self._apply_member(entry)
            return MemberChanged(self.id, entry)
        if entry.kind == "update":
            self.name = entry.name or self.name
            self._apply_settings(parse_settings(entry))
            return ChatChanged(self.id, entry)
        if entry.kind in ("pin", "unpin"):
            return PinsChanged(self.id, entry)
        is_unchanged = entry.rev == 0 and not self.log.is_hidden(entry.seq)
        return MessageAdded(self.id, entry if is_unchanged else self.log.find(entry.seq) or entry)

    def _apply_settings(self, settings: _Settings) -> None:
        if settings.slow_s is not None:
            self.slow_s = settings.slow_s
        if settings.retention_s is not None:
            self.retention_s = settings.retention_s
        if settings.topic is not None:
            self.topic = settings.topic or None
        if settings.picture is not None:
            self.picture = settings.picture or None

    def _apply_mute(self, user: str, entry: Entry) -> None:
        until = entry.muted_until
        if not entry.role or until == MUTE_OVER:
            self.muted.pop(user, None)
        elif until is not None and (user in self.muted or len(self.muted) < self._marks_max):
            self.muted[user] = until

    def _apply_member(self, entry: Entry) -> None:
        if entry.user is None:
            return
        self._apply_mute(entry.user, entry)
        if entry.user == self._me:
            self.is_left = not entry.role
        if entry.role:
            self.members = {**(self.members or {}), entry.user: entry.role}
        elif self.members is not None:
            self.members = {u: r for u, r in self.members.items() if u != entry.user}
