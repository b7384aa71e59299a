"""Story format: requests, responses, deliveries and reads in chats with changing members.

`observations` covers runs with only messages and with constant members. A story has every kind of
entry, including membership changes. Membership is derived from the log, so membership at an entry
depends on seqs and not on clocks.

One test process writes a story in order, with timestamps of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Kind = Literal[
    "send", "edit", "delete", "hide", "react", "invite", "join", "leave", "remove", "update"
]
CHANGES_OF_CHATS: frozenset[str] = frozenset({"invite", "join", "leave", "remove", "update"})
ENTRY_OF = {"send": "text", "edit": "edit", "delete": "delete", "react": "reaction"} | {
    kind: "update" if kind == "update" else "member" for kind in CHANGES_OF_CHATS
}


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
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


class Asked(_OfUser, frozen=True, tag="asked"):
    """A user requested an operation, under a unique ref; retries are not recorded.

    `target` is the seq of the affected message, `body` a text or an emoji, `subject` another user.
    """

    ref: str
    kind: Kind
    body: str = ""
    target: int = 0
    subject: str = ""


class Answered(_OfUser, frozen=True, tag="answered"):
    """It succeeded (`code` empty; `seq`, `ts`, `mid` if it has a seq) or was refused
    permanently.
    """

    ref: str
    code: str = ""
    seq: int = 0
    ts: int = 0
    mid: str = ""
    device: str = ""


class Delivered(_OnDevice, frozen=True, tag="delivered"):
    """A device received an entry, or its application read an entry that is never pushed."""

    entry: Shown
    is_read: bool = False
    event: int = 0  # the seq of the inbox event, for devices that use the protocol directly


class Notified(_OnDevice, frozen=True, tag="notified"):
    """A device received an event of a chat that is not an entry; `what` is its name."""

    what: str
    event: int = 0


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


class PushSent(_OfUser, frozen=True, tag="push sent"):
    """The push service received a push for a user; `t` is when this was recorded."""

    seq: int
    ts: int


class PushesRead(msgspec.Struct, frozen=True, tag="pushes read"):
    """The pushes of a user without a device, read at the end."""

    user: str
    is_large: tuple[str, ...] = ()  # chats whose pushes go only to mentioned members


class Page(_OfUser, frozen=True, tag="page"):
    """A page of history that was read during the run."""

    seqs: tuple[int, ...]


class Final(msgspec.Struct, frozen=True, tag="final"):
    """The whole history of a chat that a member can read, read at the end."""

    user: str
    chat: str
    entries: tuple[Shown, ...]


class Kept(_AtEnd, frozen=True, tag="kept"):
    """The messages of a chat that a device keeps locally, read at the end."""

    entries: tuple[Shown, ...]


class Line(_AtEnd, frozen=True, tag="line"):
    """A chat in a device's list, after the user had read everything."""

    top: int
    unread: int


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """All entries of a chat in DynamoDB by timestamp, read at the end."""

    chat: str
    entries: tuple[Shown, ...]


Scene = (
    Asked
    | Answered
    | Delivered
    | Notified
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
)


class Story(msgspec.Struct):
    """The scenes of a run, the initial members of each chat (its owner first), and all devices."""

    chats: dict[str, list[str]] = {}
    devices: dict[str, list[str]] = {}
    scenes: list[Scene] = []


def dump_story(story: Story) -> bytes:
    """Encode the story as JSON lines, to analyze a failure."""
    head = msgspec.json.encode({"chats": story.chats, "devices": story.devices})
    return b"\n".join([head, *map(msgspec.json.encode, story.scenes)]) + b"\n"


def load_story(data: bytes) -> Story:
    """Decode a story encoded by `dump_story`."""
    head, *rest = data.splitlines()
    story = msgspec.json.decode(head, type=Story)
    decoder = msgspec.json.Decoder(Scene)
    story.scenes = [decoder.decode(line) for line in rest]
    return story


class MembershipPeriods:
    """The membership periods of a chat's users, as ranges of seqs derived from its log.

    A period goes from the entry that adds a user, or from 1, to the entry that removes the user.
    Both are included.
    """

    def __init__(self, first: Iterable[str], log: Iterable[Shown]) -> None:
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
