"""Memory costs: how many bytes of Redis memory a user's request may occupy for a day.

The costs are upper bounds, measured by `tests/benchmarks/memory_budget.py`, and are charged to the
`memory` bucket (`chatserver.hot.users.token_buckets`). This limits a user's memory per day to the
burst of `limits.memory` plus what its rate allows in a day.

A frame is charged before it is handled: a `send` by `compute_send_cost`, another frame as its
`chatserver.requests.operation.Operation` declares. Costs that depend on the chat are charged
afterwards: inbox entries, the copy of a changed message, a loaded chat. These costs may make the
bucket negative.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chatserver.protocol import frames

Charge = Callable[[str, int], None]  # type of a function that charges a user for occupied memory

# A message: idempotency key, log entry, two inbox entries; without the frame size.
MESSAGE_BYTES = 256
ATTACHMENT_BYTES = 512  # a file's metadata in a message
INBOX_ENTRY_BYTES = 64  # a message or change in one member's inbox
NEW_INBOX_BYTES = 5120  # the first entry of an inbox: Redis allocates 4 KB
MARK_BYTES = 256  # a read mark in one member's inbox
EXPIRY_BYTES = 128  # the expiry time of a message
CHANGE_BYTES = 4096  # an edit, delete or reaction, and the changed message up to about 2 KB
CHAT_BYTES = 6144  # state, log, idempotency keys and lists of a new chat
MEMBER_BYTES = 640  # a member of a chat: membership, chat-list entry, inbox entry
ENTRY_BYTES = 1024  # a change to a chat's members or settings
ANSWER_BYTES = 1024  # an HTTP response kept for an idempotency key
LOAD_BYTES = 1536  # an idle chat that is loaded again
LOAD_MEMBER_BYTES = 192  # each member of a loaded chat
NAME_CHAR_BYTES = 4  # per character of a name, in UTF-8


def charge_nobody(user: str, size_bytes: int) -> None:
    """Charge nothing; used for the server's own operations."""


def compute_send_cost(frame: frames.Send, size_bytes: int) -> int:
    """Return the memory cost of a message; `size_bytes` is the size of its frame or body."""
    cost = MESSAGE_BYTES + size_bytes + size_bytes // 4  # the allocator rounds up
    return cost + ATTACHMENT_BYTES * len(frame.attachments) if frame.attachments else cost


def compute_fan_out_cost(members: int, *, expires: bool) -> int:
    """Return the cost of a message's third and later inbox entries, and of its expiry time."""
    cost = INBOX_ENTRY_BYTES * (members - 2) if members > 2 else 0
    return cost + EXPIRY_BYTES if expires else cost


def compute_growth_cost(written: str, normalized: str) -> int:
    """Return the extra cost of text that normalization has made longer."""
    grown = len(normalized) - len(written)
    return 5 * grown if grown > 0 else 0  # up to four bytes per character; the allocator rounds up


def compute_membership_change_cost(frame: msgspec.Struct, info: frames.ChatInfo) -> int:
    """Return the cost of the inbox entries of a group change: one per member.

    An `Invite` costs this, but at least `NEW_INBOX_BYTES`, for each invited user. Other changes to
    a large group cost nothing.
    """
    entry = 0 if info.large else INBOX_ENTRY_BYTES * info.count
    if isinstance(frame, frames.Invite):
        return max(entry, NEW_INBOX_BYTES) * len(frame.users)
    return entry


def compute_load_cost(members: int) -> int:
    """Return the cost of loading an idle chat; at most `MEMBERS_MAX` members are charged."""
    return LOAD_BYTES + LOAD_MEMBER_BYTES * min(members, frames.MEMBERS_MAX)


def compute_change_cost(changed_bytes: int, entry_bytes: int, members: int) -> int:
    """Return the cost of an edit, delete or reaction, minus what was charged before.

    `changed_bytes` is the size of the changed message; `entry_bytes` is the size of the log entry.
    """
    memory_bytes = (
        ENTRY_BYTES + (changed_bytes + entry_bytes) * 5 // 4 + INBOX_ENTRY_BYTES * members
    )
    return max(0, memory_bytes - CHANGE_BYTES - entry_bytes)
