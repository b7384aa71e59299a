"""What a change of a group says, as the chat's row keeps it until Redis has it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from chatserver.domain.ids import ChatId, Mid, Ref, UserId
from chatserver.domain.membershipchanges import ChangeEntry, MembershipChange
from chatserver.protocol import codec, frames


class ChangedMember(msgspec.Struct, array_like=True):
    """An entry about a member: the role from now on, "" if a member no more.

    `mute` is what stands behind the member's value from now on, ":" for nothing and "" if that
    stays (`chatserver.domain.moderation`); `muted_until` the same for readers of the entry.
    """

    mid: str
    user: str
    role: str
    is_new: bool
    mute: str = ""
    muted_until: int | None = None
    is_banned: bool = False


class ChangeRecord(msgspec.Struct, omit_defaults=True):
    """A change. Its entries have fixed ids. `turn`: "up" if it turns large, "down" if small.

    `joined` is the seq that the directory assumes for the first entry: the least it can have.
    """

    sender: str
    ref: str
    digest: str
    members: list[ChangedMember] = []
    update_mid: str = ""  # of the entry about the chat itself, if there is one
    name: str | None = None
    body: str = ""
    turn: str = ""
    joined: int = 0


decode_record = msgspec.json.Decoder(ChangeRecord).decode


def encode_record(record: ChangeRecord) -> str:
    """Return the text that the row keeps."""
    return msgspec.json.encode(record).decode()


class ChangedRow(Protocol):
    """The chat's row in the directory."""

    @property
    def chat(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def history(self) -> str: ...
    @property
    def large(self) -> int: ...
    @property
    def change(self) -> str | None: ...


def find_change(row: ChangedRow) -> MembershipChange | None:
    """Return the change that a chat's row still keeps; None if Redis and all inboxes have it."""
    if row.change is None:
        return None
    chat, change = ChatId(row.chat), decode_record(row.change)
    return MembershipChange(
        chat,
        row.version,
        row.name or "",
        row.history,
        UserId(change.sender),
        Ref(change.ref),
        Mid(change.members[0].mid if change.members else change.update_mid),
        change.digest,
        _entries_of(chat, change),
        row.large,
        change.turn,
    )


def _entries_of(chat: ChatId, change: ChangeRecord) -> list[ChangeEntry]:
    """Return the entries; the first one has the request's `ref`."""
    entries = []
    for number, member in enumerate(change.members):
        message = frames.Message(
            seq=0,
            ts=0,
            chat=chat,
            mid=member.mid,
            sender=change.sender,
            ref=change.ref if number == 0 else member.mid,
            kind="member",
            body="",
            user=member.user,
            role=member.role,
            muted_until=member.muted_until,
            banned=member.is_banned,
        )
        role = member.role + member.mute
        entries.append(ChangeEntry(member.user, role, member.is_new, codec.tail_of(message)))
    if change.update_mid:
        message = frames.Message(
            seq=0,
            ts=0,
            chat=chat,
            mid=change.update_mid,
            sender=change.sender,
            ref=change.ref,
            kind="update",
            body=change.body,
            name=change.name,
        )
        entries.append(ChangeEntry("", "", False, codec.tail_of(message)))
    return entries
