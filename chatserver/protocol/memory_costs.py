"""Memory costs: how many bytes of Redis a user's request may leave behind for a day.

Upper bounds, measured by `tests/load/memory_day.py`. They are charged to the bucket
`memory` (`chatserver.hot.limits`), so that what one user leaves in a day is bounded by
`limits.memory_burst_bytes` and a day of `limits.memory_bytes_per_s`.

A frame is charged before it is handled (`cost_of_send`, `cost_of`). What depends on the chat is
charged afterwards, when its members are known: entries in their inboxes, the copy of a changed
message, a chat that was loaded. The bucket may go below zero by that.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chatserver.protocol import frames

Charge = Callable[[str, int], None]  # a user, and bytes that are already taken

MESSAGE_BYTES = 256  # reference, entry in the log, two inbox entries; the frame comes on top
ATTACHMENT_BYTES = 512  # metadata of a file in a message
INBOX_ENTRY_BYTES = 64  # a message or change in one member's inbox
NEW_INBOX_BYTES = 5120  # the first entry of an inbox: Redis allocates 4 KB
MARK_BYTES = 256  # a read mark in one member's inbox
EXPIRY_BYTES = 128  # when a message expires
CHANGE_BYTES = 4096  # an edit, delete or reaction, and the changed message up to about 2 KB
CHAT_BYTES = 6144  # head, log, references and lists of a new chat
MEMBER_BYTES = 640  # a member's row, list entry and inbox entry without the list of members
ENTRY_BYTES = 1024  # a change of a chat's members or settings
ANSWER_BYTES = 1024  # an HTTP answer kept for an idempotency key
LOAD_BYTES = 1536  # a chat that was idle, loaded again
LOAD_MEMBER_BYTES = 192  # a member of it
NAME_CHAR_BYTES = 4  # of UTF-8


def charge_nobody(user: str, size_bytes: int) -> None:
    """Charge nothing: what the server does on its own behalf is free."""


def cost_of_send(frame: frames.Send, size_bytes: int) -> int:
    """Return the cost of a message whose frame or body had this size."""
    cost = MESSAGE_BYTES + size_bytes + size_bytes // 4  # the allocator rounds up
    return cost + ATTACHMENT_BYTES * len(frame.attachments) if frame.attachments else cost


def cost_of(frame: msgspec.Struct, size_bytes: int) -> int:
    """Return the cost of any other frame; 0 if it leaves nothing."""
    match frame:
        case frames.Edit() | frames.React() | frames.Delete():
            return CHANGE_BYTES + size_bytes
        case frames.Mark():
            return MARK_BYTES
        case frames.OpenDirect():
            return CHAT_BYTES + 2 * MEMBER_BYTES + NEW_INBOX_BYTES
        case frames.CreateChat():
            listed = NAME_CHAR_BYTES * len(frame.name or "") + _list_bytes(frame.members)
            return CHAT_BYTES + size_bytes + (MEMBER_BYTES + listed) * (1 + len(frame.members))
        case frames.Invite():
            return ENTRY_BYTES + size_bytes + MEMBER_BYTES * len(frame.users)
        case frames.CreateSession() | frames.RenewSession():
            return CHAT_BYTES + 2 * MEMBER_BYTES + size_bytes
        case _ if isinstance(frame, frames.AnyChange | frames.AnyModeration):
            return ENTRY_BYTES + size_bytes
        case _:
            return 0


def _list_bytes(members: list[str]) -> int:
    if len(members) >= frames.EVENT_MEMBERS_MAX:
        return 0
    return sum(map(len, members)) + 4 * len(members)


def cost_of_fan_out(members: int, *, expires: bool) -> int:
    """Return what a message takes beyond two inbox entries, which every message is charged for."""
    cost = INBOX_ENTRY_BYTES * (members - 2) if members > 2 else 0
    return cost + EXPIRY_BYTES if expires else cost


def cost_of_growth(written: str, normalized: str) -> int:
    """Return what a text takes beyond what was charged, where its normal form is longer."""
    grown = len(normalized) - len(written)
    return 5 * grown if grown > 0 else 0  # a character has up to four bytes


def cost_of_membership_change(frame: msgspec.Struct, info: frames.ChatInfo) -> int:
    """Return what a change of a group takes in inboxes: an entry in each, one for each new member.

    A large group's entries are in no inbox. A new member's own inbox may be new, too.
    """
    entry = 0 if info.large else INBOX_ENTRY_BYTES * info.count
    if isinstance(frame, frames.Invite):
        return max(entry, NEW_INBOX_BYTES) * len(frame.users)
    return entry


def cost_of_load(members: int) -> int:
    """Return what an idle chat takes that is loaded again; members of a large one are shared."""
    return LOAD_BYTES + LOAD_MEMBER_BYTES * min(members, frames.MEMBERS_MAX)


def cost_of_changed(changed_bytes: int, entry_bytes: int, members: int) -> int:
    """Return what a change of a message takes beyond what its frame was charged.

    `changed_bytes`: the copy of the changed message; `entry_bytes`: the entry in the log.
    """
    taken = ENTRY_BYTES + (changed_bytes + entry_bytes) * 5 // 4 + INBOX_ENTRY_BYTES * members
    return max(0, taken - CHANGE_BYTES - entry_bytes)
