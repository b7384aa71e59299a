"""Unstored membership changes, kept in the chat's item until their entries are stored."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from chatserver.domain.ids import ChatId, Mid, Ref, UserId
from chatserver.domain.membership_change_types import ChangedChatHead, ChangeEntry, MembershipChange
from chatserver.protocol import codec, frames
from chatserver.warm.chats.directory_items import StoredChat

UNSTORED_MAX: Final = 32  # maximum changes that a chat's item keeps
UNSTORED_BYTES_MAX: Final = 64_000


class ChangedMember(msgspec.Struct, array_like=True):
    """A change to one member: the new role, or "" if the user is no longer a member.

    `mute` changes the member's mute in Redis: ":" removes it, "" leaves it unchanged
    (`chatserver.domain.write_restrictions`). `muted_until` is the end of the mute in the entry.
    """

    mid: str
    user: str
    role: str
    is_new: bool
    mute: str = ""
    muted_until: int | None = None
    is_banned: bool = False


class UnstoredChange(msgspec.Struct, omit_defaults=True):
    """A committed change. If its entries are lost and written again, they keep their ids.

    - `transition`: "up" if the change makes the chat large, "down" if the chat becomes small again
    - `first_transition`: the oldest `transition` that members may not have received
    - `joined`: the lowest possible seq of the first entry; used until Redis returns the actual seq
    - `version`: the chat version after the change
    - `after`: all entries of the change have higher seqs
    """

    sender: str
    ref: str
    digest: str
    members: list[ChangedMember] = []
    update_mid: str = ""  # message id of the `update` entry (name, settings), if any
    name: str | None = None
    body: str = ""
    transition: str = ""
    joined: int = 0
    first_transition: str = ""
    version: int = 0
    after: int = 0


decode_record = msgspec.json.Decoder(UnstoredChange).decode


def encode_record(record: UnstoredChange) -> str:
    return msgspec.json.encode(record).decode()


def find_change(row: StoredChat) -> MembershipChange | None:
    """Return the change in the chat's item; None if it has been applied and delivered."""
    return None if row.change is None else _make_change(row, decode_record(row.change), row.version)


def find_unstored(row: StoredChat) -> list[MembershipChange]:
    """Return the changes in the chat's item whose entries may be unstored, oldest first."""
    return [_make_change(row, record, record.version) for record in _decode_unstored(row)]


def add_unstored(row: StoredChat, change: UnstoredChange, head: ChangedChatHead) -> str | None:
    """Return the item's unstored changes with `change` added; None if they exceed the limits.

    A change is removed once its entries are in the warm tier and its join seqs in the `directory`
    table, but never before an older change. If a leave were removed before an older join, loading
    the chat would add the member again.
    """
    records = [*_decode_unstored(row, head), change]
    text = _encode_unstored(records)
    return text if len(records) <= UNSTORED_MAX and len(text) <= UNSTORED_BYTES_MAX else None


def list_unstored_from(row: StoredChat, first: int | None) -> str:
    """Return the item's unstored changes from version `first` on; "" if `first` is None."""
    if first is None:
        return ""
    return _encode_unstored([record for record in _decode_unstored(row) if record.version >= first])


def _decode_unstored(row: StoredChat, head: ChangedChatHead | None = None) -> list[UnstoredChange]:
    """Return the changes in the chat's item, oldest first.

    With `head` (from Redis), omit the oldest changes that need no longer be kept; see
    `add_unstored`.
    """
    records = msgspec.json.decode(row.unstored, type=list[UnstoredChange]) if row.unstored else []
    if head is None:
        return records

    def is_done(record: UnstoredChange) -> bool:
        is_stored = head.is_stored(_make_change(row, record, record.version))
        return is_stored and head.positions[record.version].is_checked

    return list(itertools.dropwhile(is_done, records))


def _encode_unstored(records: Sequence[UnstoredChange]) -> str:
    return msgspec.json.encode(records).decode() if records else ""


def _make_change(row: StoredChat, change: UnstoredChange, version: int) -> MembershipChange:
    chat = ChatId(row.chat)
    return MembershipChange(
        chat=chat,
        version=version,
        name=row.name or "",
        history=row.history,
        sender=UserId(change.sender),
        ref=Ref(change.ref),
        mid=Mid(change.members[0].mid if change.members else change.update_mid),
        digest=change.digest,
        entries=_make_entries(chat, change),
        large=row.large,
        transition=change.transition,
        after=change.after,
        picture=row.picture or "",
    )


def find_first_transition(row: StoredChat) -> str:
    """Return the oldest `transition` ("up", "down") that members may not have received, or ""."""
    return "" if row.change is None else decode_record(row.change).first_transition


def is_large_in_inboxes(row: StoredChat) -> bool:
    """Return whether members' inboxes record the chat as large.

    When a chat becomes large or small, each inbox gets an event about it, after all earlier
    entries. An inbox that is loaded into Redis before this event must still have the old state.
    """
    first_transition = find_first_transition(row)
    return first_transition == "down" if first_transition else row.large > 0


def find_change_to_load(row: StoredChat) -> MembershipChange | None:
    """Return the change to apply when the chat is loaded.

    Its `transition` combines all changes between large and small that members may not know of.
    """
    change, first_transition = find_change(row), find_first_transition(row)
    if change is None or not first_transition:
        return change
    is_same = (first_transition == "up") == (row.large > 0)
    return dataclasses.replace(change, transition=first_transition if is_same else "")


def _make_entries(chat: ChatId, change: UnstoredChange) -> list[ChangeEntry]:
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
            ChangeEntry(member.user, role, member.is_new, codec.encode_tail(message), member.mid)
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
        entries.append(ChangeEntry("", "", False, codec.encode_tail(message), change.update_mid))
    return entries
