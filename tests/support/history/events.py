"""History format: requests, responses, deliveries and reads of a run, as a flat list of events.

A history has the initial members of each chat. Later members are derived from the log, so
membership at an entry depends on seqs and not on clocks.

One test process records a history in order, with timestamps of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec

E = TypeVar("E")
Kind = Literal[
    "send", "edit", "delete", "hide", "react", "invite", "join", "leave", "remove", "update"
]
CHANGES_OF_CHATS: frozenset[str] = frozenset({"invite", "join", "leave", "remove", "update"})
ENTRY_OF = {"send": "text", "edit": "edit", "delete": "delete", "react": "reaction"} | {
    kind: "update" if kind == "update" else "member" for kind in CHANGES_OF_CHATS
}


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of a chat as received by a device or stored in a tier."""

    seq: int
    ts: int
    mid: str
    sender: str
    ref: str
    kind: str
    body: str = ""
    target: int | None = None
    user: str | None = None
    role: str | None = None
    deleted: bool = False
    reactions: dict[str, str] = {}

    @property
    def place(self) -> tuple[int, int, str, str, str, str]:
        """The immutable fields."""
        return (self.seq, self.ts, self.mid, self.sender, self.ref, self.kind)

    @property
    def is_loss_tombstone(self) -> bool:
        """True if the entry takes the position of one that Redis lost, below a stored one."""
        return self.kind == "lost" and self.sender == "-" and self.deleted and not self.body


class _OfUser(msgspec.Struct, frozen=True):
    """An action of a user in a chat, at `t` seconds of the run's clock."""

    t: float
    user: str
    chat: str


class _OnDevice(msgspec.Struct, frozen=True):
    """An event that a device received in a chat."""

    t: float
    user: str
    device: str
    chat: str


class _AtEnd(msgspec.Struct, frozen=True):
    """The state of a chat on a device, read at the end."""

    user: str
    device: str
    chat: str


class Requested(_OfUser, frozen=True, tag="requested"):
    """A user requested an operation; all attempts have the same ref, unique for the user.

    `target` is the seq of the affected message, `body` a text or an emoji, `subject` another user.
    `conn` is the connection of this attempt, if the device records each attempt.
    """

    ref: str
    kind: Kind
    body: str = ""
    target: int = 0
    subject: str = ""
    conn: int = 0


class Named(_OfUser, frozen=True, tag="named"):
    """A device sent a request that names the message to change by its `ref`: `target_ref`."""

    ref: str
    target_ref: str


class Responded(_OfUser, frozen=True, tag="responded"):
    """It succeeded (`code` empty; `seq`, `ts`, `mid` if it has a seq) or was refused.

    A temporary refusal is only recorded by a device that records each attempt. `dup` means that an
    earlier attempt was committed.
    """

    ref: str
    code: str = ""
    seq: int = 0
    ts: int = 0
    mid: str = ""
    device: str = ""
    conn: int = 0
    dup: bool = False


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A device follows its inbox after `seq` of `epoch`.

    `tops` is the snapshot of a `reset` or `too_long`: the device reads entries up to there from
    history instead of receiving them. A device that resumes by cursor does not start again.
    """

    t: float
    user: str
    device: str
    epoch: str
    seq: int
    tops: dict[str, int] | None = None


class Delivered(_OnDevice, frozen=True, tag="delivered"):
    """A device received an entry, or its application read an entry that is never pushed."""

    entry: LogEntry
    is_read: bool = False
    # the position of the inbox event, for devices that use the protocol directly
    event: int = 0
    epoch: str = ""


class Notified(_OnDevice, frozen=True, tag="notified"):
    """A device received an event of a chat that is not an entry; `what` is its name."""

    what: str
    event: int = 0
    epoch: str = ""


class Marked(_OnDevice, frozen=True, tag="marked"):
    """A device received the read and received marks of the member `of`."""

    of: str
    read: int
    received: int


class Skipped(_OnDevice, frozen=True, tag="skipped"):
    """A device was notified that entries after `after` up to `upto` will not be delivered."""

    after: int
    upto: int


class Restarted(msgspec.Struct, frozen=True, tag="restarted"):
    """A device was offline for too long and restarts from a snapshot."""

    t: float
    user: str
    device: str
    is_new_epoch: bool


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Redis lost its last writes or all of its data; `what` names the fault."""

    t: float
    what: str


class Withdrawn(_OnDevice, frozen=True, tag="withdrawn"):
    """A device withdrew entries after `after` that Redis had lost."""

    seqs: tuple[int, ...]
    after: int


class Watermark(_OnDevice, frozen=True, tag="watermark"):
    """A device was notified that the chat is in DynamoDB up to a seq."""

    upto: int


class Unstored(_AtEnd, frozen=True, tag="unstored"):
    """At the end, a device was not notified that its entries are stored."""

    refs: tuple[str, ...]


class ReadMark(msgspec.Struct, frozen=True, tag="read mark"):
    """A user's read position in a chat, from a server response.

    `is_final`: it was read from DynamoDB after the user had read everything.
    """

    asked: float
    t: float
    user: str
    chat: str
    read: int
    is_final: bool = False


class Unread(_AtEnd, frozen=True, tag="unread"):
    """A chat in a device's list after quiescence, before the user read everything."""

    read: int
    unread: int
    top: int | None = None


class PushSent(_OfUser, frozen=True, tag="push sent"):
    """The push service received a push for a user; `t` is when this was recorded."""

    seq: int
    ts: int


class PushesRead(msgspec.Struct, frozen=True, tag="pushes read"):
    """The pushes of a user without a device, read at the end."""

    user: str
    is_large: tuple[str, ...] = ()  # chats whose pushes go only to mentioned members


class Page(_OfUser, frozen=True, tag="page"):
    """A page of history that was read during the run.

    If `asked`, the time of the request, is set, the page must have what was known then.
    """

    entries: tuple[LogEntry, ...]
    asked: float | None = None
    before: int | None = None
    after: int | None = None
    has_more: bool = False


class Final(msgspec.Struct, frozen=True, tag="final"):
    """The whole history of a chat that a member can read, read at the end."""

    user: str
    chat: str
    entries: tuple[LogEntry, ...]


class Kept(_AtEnd, frozen=True, tag="kept"):
    """The messages of a chat that a device keeps locally, read at the end."""

    entries: tuple[LogEntry, ...]


class Line(_AtEnd, frozen=True, tag="line"):
    """A chat in a device's list, after the user had read everything."""

    top: int
    unread: int


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """All entries of a chat in DynamoDB by timestamp, read at the end."""

    chat: str
    entries: tuple[LogEntry, ...]


class Trimmed(msgspec.Struct, frozen=True, tag="trimmed"):
    """Redis no longer has the entries up to `upto` of a large chat, only DynamoDB."""

    chat: str
    upto: int


Event = (
    Requested
    | Responded
    | Named
    | Started
    | Delivered
    | Notified
    | Marked
    | Skipped
    | Restarted
    | Lost
    | Withdrawn
    | Watermark
    | Unstored
    | ReadMark
    | Unread
    | PushSent
    | PushesRead
    | Page
    | Final
    | Kept
    | Line
    | Stored
    | Trimmed
)


class History(msgspec.Struct):
    """The events of a run, the initial members of each chat (its owner first), and all devices."""

    chats: dict[str, list[str]] = {}
    devices: dict[str, list[str]] = {}
    events: list[Event] = []

    def all_of(self, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def acks(self) -> list[Responded]:
        """Return the responses to operations that succeeded."""
        return [response for response in self.all_of(Responded) if not response.code]

    def refusals(self) -> list[Responded]:
        """Return the responses to operations that were refused."""
        return [response for response in self.all_of(Responded) if response.code]


def dump_history(history: History) -> bytes:
    """Encode the history as JSON lines, to analyze a failure."""
    head = msgspec.json.encode({"chats": history.chats, "devices": history.devices})
    return b"\n".join([head, *map(msgspec.json.encode, history.events)]) + b"\n"


def load_history(data: bytes) -> History:
    """Decode a history encoded by `dump_history`."""
    head, *rest = data.splitlines()
    history = msgspec.json.decode(head, type=History)
    decoder = msgspec.json.Decoder(Event)
    history.events = [decoder.decode(line) for line in rest]
    return history


class MembershipPeriods:
    """The membership periods of a chat's users, as ranges of seqs derived from its log.

    A period goes from the entry that adds a user, or from 1, to the entry that removes the user.
    Both are included.
    """

    def __init__(self, first: Iterable[str], log: Iterable[LogEntry]) -> None:
        self.of: dict[str, list[tuple[int, int | None]]] = {user: [(1, None)] for user in first}
        for entry in log:
            if entry.kind == "member" and entry.user is not None:
                self._apply_change(entry.user, entry.seq, is_in=bool(entry.role))

    def _apply_change(self, user: str, seq: int, *, is_in: bool) -> None:
        periods = self.of.setdefault(user, [])
        is_member = bool(periods) and periods[-1][1] is None
        if is_in and not is_member:
            periods.append((seq, None))
        elif not is_in and is_member:
            periods[-1] = (periods[-1][0], seq)

    def covers(self, user: str, seq: int) -> bool:
        """Return whether the user was a member at a seq."""
        return any(
            start <= seq and (end is None or seq <= end) for start, end in self.of.get(user, ())
        )

    def is_member_after(self, user: str, seq: int) -> bool:
        """Return whether the user was a member between an entry and the next one."""
        return any(
            start <= seq and (end is None or seq < end) for start, end in self.of.get(user, ())
        )

    def has_ended(self, user: str, seq: int) -> bool:
        """Return whether a seq is within a membership that has ended."""
        periods = self.of.get(user, ())
        return any(start <= seq <= end for start, end in periods if end is not None)

    def open_since(self, user: str) -> int | None:
        """Return the start of a current member's period."""
        periods = self.of.get(user)
        return periods[-1][0] if periods and periods[-1][1] is None else None

    def members(self) -> list[str]:
        """Return the members at the end."""
        return [user for user in self.of if self.open_since(user) is not None]
