"""Encoding of membership changes in the chat's row, which keeps them until they are stored."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from chatserver.domain.ids import ChatId, Mid, Ref, UserId
from chatserver.domain.membership_changes import ChangedChatHead, ChangeEntry, MembershipChange
from chatserver.protocol import codec, frames

UNSTORED_MAX: Final = 32  # changes that a row keeps until they are stored
UNSTORED_BYTES_MAX: Final = 64_000


class ChangedMember(msgspec.Struct, array_like=True):
    """An entry about a member: the new role, or "" if the user is no longer a member.

    `mute` is the new suffix of the member's value: ":" clears it, "" leaves it unchanged
    (`chatserver.domain.moderation`). `muted_until` is the same for readers of the entry.
    """

    mid: str
    user: str
    role: str
    is_new: bool
    mute: str = ""
    muted_until: int | None = None
    is_banned: bool = False


class ChangeRecord(msgspec.Struct, omit_defaults=True):
    """A change. Its entries have fixed ids.

    `turn` is "up" if the change makes the chat large, "down" if small. `joined` is the seq that the
    directory assumes for the first entry: the lowest possible one. `first_turn` is the oldest
    transition, this one or an earlier one, that members may not have received. `version` is that of
    the chat after the change. `after` is how far the chat was stored before it: no entry of the
    change is at or below that.
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
    first_turn: str = ""
    version: int = 0
    after: int = 0


decode_record = msgspec.json.Decoder(ChangeRecord).decode


def encode_record(record: ChangeRecord) -> str:
    """Return the text stored in the row."""
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
    @property
    def unstored(self) -> str | None: ...


def find_change(row: ChangedRow) -> MembershipChange | None:
    """Return the change that a chat's row still holds; None if Redis and all inboxes have it."""
    return None if row.change is None else _change_of(row, decode_record(row.change), row.version)


def find_unstored(row: ChangedRow) -> list[MembershipChange]:
    """Return the changes with entries that may not be stored, oldest first."""
    return [_change_of(row, record, record.version) for record in _decode_unstored(row)]


def add_unstored(row: ChangedRow, change: ChangeRecord, head: ChangedChatHead) -> str | None:
    """Return the row's unstored changes with a new one added; None if there is no room yet.

    Changes that are stored and checked are removed, oldest first only: if a later change were
    removed before them, a load would find a member's join but not the leave after it.
    """
    records = [*_decode_unstored(row, head), change]
    text = _encode_unstored(records)
    return text if len(records) <= UNSTORED_MAX and len(text) <= UNSTORED_BYTES_MAX else None


def keep_unstored(row: ChangedRow, first: int | None) -> str:
    """Return the row's unstored changes from version `first` on; None removes all."""
    if first is None:
        return ""
    return _encode_unstored([each for each in _decode_unstored(row) if each.version >= first])


def _decode_unstored(row: ChangedRow, head: ChangedChatHead | None = None) -> list[ChangeRecord]:
    """Return the changes that the row holds, oldest first.

    With `head`, leading changes that are stored and checked are omitted.
    """
    records = msgspec.json.decode(row.unstored, type=list[ChangeRecord]) if row.unstored else []
    if head is None:
        return records

    def is_done(record: ChangeRecord) -> bool:
        is_stored = head.is_stored(_change_of(row, record, record.version))
        return is_stored and head.places[record.version].is_checked

    return list(itertools.dropwhile(is_done, records))


def _encode_unstored(records: Sequence[ChangeRecord]) -> str:
    return msgspec.json.encode(records).decode() if records else ""


def _change_of(row: ChangedRow, change: ChangeRecord, version: int) -> MembershipChange:
    chat = ChatId(row.chat)
    return MembershipChange(
        chat,
        version,
        row.name or "",
        row.history,
        UserId(change.sender),
        Ref(change.ref),
        Mid(change.members[0].mid if change.members else change.update_mid),
        change.digest,
        _entries_of(chat, change),
        row.large,
        change.turn,
        change.after,
    )


def find_first_turn(row: ChangedRow) -> str:
    """Return the oldest transition that members may not have received; "" if there is none."""
    return "" if row.change is None else decode_record(row.change).first_turn


def is_large_in_inboxes(row: ChangedRow) -> bool:
    """Return whether members were notified that a chat is large.

    A change that is still in the row will notify them through their inboxes, after the earlier
    entries. An inbox loaded from the directory must be in the state before that.
    """
    first_turn = find_first_turn(row)
    return first_turn == "down" if first_turn else row.large > 0


def find_change_to_load(row: ChangedRow) -> MembershipChange | None:
    """Return the change that is applied when the chat is loaded.

    It replaces all transitions that members may not have received.
    """
    change, first_turn = find_change(row), find_first_turn(row)
    if change is None or not first_turn:
        return change
    is_same = (first_turn == "up") == (row.large > 0)
    return dataclasses.replace(change, transition=first_turn if is_same else "")


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
        entries.append(
            ChangeEntry(member.user, role, member.is_new, codec.tail_of(message), member.mid)
        )
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
        entries.append(ChangeEntry("", "", False, codec.tail_of(message), change.update_mid))
    return entries
