"""Memory costs: how many bytes of Redis a user's request may leave behind for a day.

Upper bounds, measured by `tests/load/memory_day.py`. They are charged to the bucket
`memory` (`chatserver.hot.limits`), so that what one user leaves in a day is bounded by
`limits.memory_burst_bytes` and a day of `limits.memory_bytes_per_s`. Requests that leave nothing of
their own, such as reads, marks and typing, cost nothing.
"""

from __future__ import annotations

import msgspec

from chatserver.protocol import frames

MESSAGE_BYTES = 256  # reference, entry in the log, the sender's inbox; the frame comes on top
ATTACHMENT_BYTES = 512  # what a message says of a file
CHANGE_BYTES = 4096  # an edit, delete or reaction: also the changed message's overlay
CHAT_BYTES = 6144  # head, log, references and lists of a new chat
MEMBER_BYTES = 768  # a member's row, list entry and inbox entry
ENTRY_BYTES = 1024  # a change of a chat's members or settings
ANSWER_BYTES = 1024  # an HTTP answer kept for an idempotency key


def cost_of_send(frame: frames.Send, size_bytes: int) -> int:
    """Return the cost of a message whose frame or body had this size."""
    cost = MESSAGE_BYTES + size_bytes + size_bytes // 4  # the allocator rounds up
    return cost + ATTACHMENT_BYTES * len(frame.attachments) if frame.attachments else cost


def cost_of(frame: msgspec.Struct, size_bytes: int) -> int:
    """Return the cost of any other frame; 0 if it leaves nothing."""
    match frame:
        case frames.Edit() | frames.React() | frames.Delete():
            return CHANGE_BYTES + 2 * size_bytes
        case frames.OpenDirect():
            return CHAT_BYTES + 2 * MEMBER_BYTES
        case frames.CreateChat():
            return CHAT_BYTES + size_bytes + MEMBER_BYTES * (1 + len(frame.members))
        case frames.Invite():
            return ENTRY_BYTES + size_bytes + MEMBER_BYTES * len(frame.users)
        case frames.CreateSession() | frames.RenewSession():
            return CHAT_BYTES + 2 * MEMBER_BYTES + size_bytes
        case _ if isinstance(frame, frames.AnyChange):
            return ENTRY_BYTES + size_bytes
        case _:
            return 0
