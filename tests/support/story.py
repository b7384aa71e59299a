"""What happened in chats whose members come and go: what was asked, answered, told and read.

`observations` holds runs of messages among people who are members throughout. A story has every
kind of entry, and membership is part of it: it is read from the log itself, entry by entry, so
"who was a member when" is a matter of places, not of clocks.

One test process writes a story, in order, stamped by one monotonic clock.
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
    """An entry of a chat as somebody was shown it, or as a tier holds it."""

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
        """What never changes."""
        return (self.seq, self.ts, self.mid, self.sender, self.ref, self.kind)


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """Somebody wants something done, under a ref that is asked once; tries again are not told.

    `target` is the seq of the message that it is about, `body` a text or an emoji, `subject`
    another user.
    """

    t: float
    user: str
    chat: str
    ref: str
    kind: Kind
    body: str = ""
    target: int = 0
    subject: str = ""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """It was done (`code` empty; `seq`, `ts` and `mid` if it has a place) or refused for good."""

    t: float
    user: str
    chat: str
    ref: str
    code: str = ""
    seq: int = 0
    ts: int = 0
    mid: str = ""
    device: str = ""


class Told(msgspec.Struct, frozen=True, tag="told"):
    """A device was pushed an entry, or its application read one that is never pushed."""

    t: float
    user: str
    device: str
    chat: str
    entry: Shown
    is_read: bool = False


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """A device heard something of a chat that is no entry: `what` names it."""

    t: float
    user: str
    device: str
    chat: str
    what: str


class Skipped(msgspec.Struct, frozen=True, tag="skipped"):
    """A device was told that it will not hear of the entries after `after` and up to `upto`."""

    t: float
    user: str
    device: str
    chat: str
    after: int
    upto: int


class StartedOver(msgspec.Struct, frozen=True, tag="started over"):
    """A device was away for too long and begins again with a snapshot."""

    t: float
    user: str
    device: str
    is_new_epoch: bool


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Redis lost its last writes, or all of its data: `what` names the fault."""

    t: float
    what: str


class Withdrawn(msgspec.Struct, frozen=True, tag="withdrawn"):
    """A device took back what it had shown after `after`: Redis had lost it."""

    t: float
    user: str
    device: str
    chat: str
    seqs: tuple[int, ...]
    after: int


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """A device received that the chat is in DynamoDB up to a seq."""

    t: float
    user: str
    device: str
    chat: str
    upto: int


class Unstored(msgspec.Struct, frozen=True, tag="unstored"):
    """After everything came to rest, a device still waits to hear that its entries are stored."""

    user: str
    device: str
    chat: str
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


class Unread(msgspec.Struct, frozen=True, tag="unread"):
    """A chat in a device's list after everything came to rest, before the user read it all."""

    user: str
    device: str
    chat: str
    read: int
    unread: int


class PushSent(msgspec.Struct, frozen=True, tag="push sent"):
    """The push service received a push for a user; `t` is when it was noticed."""

    t: float
    user: str
    chat: str
    seq: int
    ts: int


class PushesRead(msgspec.Struct, frozen=True, tag="pushes read"):
    """The pushes of a user without a device were read after everything came to rest."""

    user: str
    is_large: tuple[str, ...] = ()  # chats of which pushes go to mentioned members only


class Page(msgspec.Struct, frozen=True, tag="page"):
    """A page of history that came while everything went on."""

    t: float
    user: str
    chat: str
    seqs: tuple[int, ...]


class Final(msgspec.Struct, frozen=True, tag="final"):
    """All that a member can read of a chat, after everything came to rest."""

    user: str
    chat: str
    entries: tuple[Shown, ...]


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """The messages of a chat that a device keeps by itself, after everything came to rest."""

    user: str
    device: str
    chat: str
    entries: tuple[Shown, ...]


class Line(msgspec.Struct, frozen=True, tag="line"):
    """A chat in a device's list, after the user had read everything."""

    user: str
    device: str
    chat: str
    top: int
    unread: int


class Stored(msgspec.Struct, frozen=True, tag="stored"):
    """All entries of a chat in DynamoDB, by timestamp, after everything came to rest."""

    chat: str
    entries: tuple[Shown, ...]


Scene = (
    Asked
    | Answered
    | Told
    | Heard
    | Skipped
    | StartedOver
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
    """The scenes of a run, the first members of each chat (its owner first), and all devices."""

    chats: dict[str, list[str]] = {}
    devices: dict[str, list[str]] = {}
    scenes: list[Scene] = []


def dump_story(story: Story) -> bytes:
    """Return the story as JSON lines, for a look after a failure."""
    head = msgspec.json.encode({"chats": story.chats, "devices": story.devices})
    return b"\n".join([head, *map(msgspec.json.encode, story.scenes)]) + b"\n"


def load_story(data: bytes) -> Story:
    """Return the story that `dump_story` wrote."""
    head, *rest = data.splitlines()
    story = msgspec.json.decode(head, type=Story)
    decoder = msgspec.json.Decoder(Scene)
    story.scenes = [decoder.decode(line) for line in rest]
    return story


class Stays:
    """When who was a member of a chat, by places: read from its log.

    A stay goes from the entry that brings a user in, or from 1, to the entry that takes the user
    out; both belong to it.
    """

    def __init__(self, first: Iterable[str], log: Iterable[Shown]) -> None:
        self.of: dict[str, list[tuple[int, int | None]]] = {user: [(1, None)] for user in first}
        for entry in log:
            if entry.kind == "member" and entry.user is not None:
                self._take(entry.user, entry.seq, is_in=bool(entry.role))

    def _take(self, user: str, seq: int, *, is_in: bool) -> None:
        stays = self.of.setdefault(user, [])
        is_member = bool(stays) and stays[-1][1] is None
        if is_in and not is_member:
            stays.append((seq, None))
        elif not is_in and is_member:
            stays[-1] = (stays[-1][0], seq)

    def covers(self, user: str, seq: int) -> bool:
        """Tell whether the user was a member at a place."""
        return any(
            start <= seq and (end is None or seq <= end) for start, end in self.of.get(user, ())
        )

    def is_member_after(self, user: str, seq: int) -> bool:
        """Tell whether the user was a member between an entry and the next one."""
        return any(
            start <= seq and (end is None or seq < end) for start, end in self.of.get(user, ())
        )

    def has_ended(self, user: str, seq: int) -> bool:
        """Tell whether a place is within a stay that is over."""
        stays = self.of.get(user, ())
        return any(start <= seq <= end for start, end in stays if end is not None)

    def open_since(self, user: str) -> int | None:
        """Return where the stay of one who is a member now began."""
        stays = self.of.get(user)
        return stays[-1][0] if stays and stays[-1][1] is None else None

    def members(self) -> list[str]:
        """Return who is a member in the end."""
        return [user for user in self.of if self.open_since(user) is not None]
