"""What an entry does to the message that it is about: the one rule for all who keep messages.

A message changes by entries of its chat that come after it. Applying them in order of seq, each
once and only if it is newer than the message's `rev`, gives the same message everywhere: in the
overlay of the hot tier (`amend.lua` says the same in Lua), in the warm tier, in clients.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chatserver.protocol.frames import ENTRY_KINDS, Message

AMENDING: Final = frozenset({"edit", "delete", "reaction"})
REACTIONS_MAX: Final = 1_000  # on one message


def is_message(entry: Message) -> bool:
    """Tell whether an entry is a message, not a change."""
    return entry.kind not in ENTRY_KINDS


def tombstone_of(message: Message, rev: int) -> Message:
    """Return what is left of a message, or of an edit, when its text is gone: its place."""
    return Message(
        message.seq,
        message.ts,
        message.chat,
        message.mid,
        message.sender,
        message.ref,
        message.kind,
        "",
        target=message.target,
        rev=rev,
        deleted=True,
        expires_at=message.expires_at,
    )


def apply_entry(message: Message, entry: Message) -> Message:
    """Return the message as it is after `entry`, which names it as its target.

    Guarantees:
        Idempotent: an entry that is not newer than the message's `rev` changes nothing.
        Final: a deleted message stays deleted; an edit that lost its text is passed over.
    """
    if entry.seq <= message.rev or message.deleted or entry.deleted:
        return message
    match entry.kind:
        case "edit":
            return msgspec.structs.replace(
                message, body=entry.body, edited_ts=entry.ts, edited_seq=entry.seq, rev=entry.seq
            )
        case "delete":
            return tombstone_of(message, entry.seq)
        case "reaction":
            reactions = {
                user: emoji for user, emoji in message.reactions.items() if user != entry.sender
            }
            if entry.body:
                reactions[entry.sender] = entry.body
            return msgspec.structs.replace(message, reactions=reactions, rev=entry.seq)
        case _:
            return message
