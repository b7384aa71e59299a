"""Effects of message changes: how an edit, delete or reaction entry changes its target message.

Each change to a message is a later entry in its chat. Changes are applied in seq order, and only if
their seq is above the message's `rev`, the seq of its last change. The hot tier
(`commit_change.lua` implements the same rules), the warm tier and the clients therefore get the
same result.
"""

from __future__ import annotations

from typing import Final

import msgspec

from chatserver.protocol.frames import ENTRY_KINDS, Message

MESSAGE_CHANGE_KINDS: Final = frozenset({"edit", "delete", "reaction"})


def is_message(entry: Message) -> bool:
    return entry.kind not in ENTRY_KINDS


def build_tombstone(message: Message, rev: int) -> Message:
    """Return the tombstone of a message or edit: the entry without its content."""
    return Message(
        seq=message.seq,
        ts=message.ts,
        chat=message.chat,
        mid=message.mid,
        sender=message.sender,
        ref=message.ref,
        kind=message.kind,
        body="",
        target=message.target,
        rev=rev,
        deleted=True,
        expires_at=message.expires_at,
    )


def build_shredded_tombstone(entry: Message) -> Message:
    """Return the tombstone of an entry whose body can no longer be decrypted."""
    return msgspec.structs.replace(build_tombstone(entry, entry.rev), shredded=True)


def apply_entry(message: Message, entry: Message) -> Message:
    """Apply `entry` to the message that it targets, and return the resulting message.

    Guarantees:
        Idempotent: an entry that is not newer than the message's `rev` changes nothing.
        Final: a deleted message stays deleted. An entry that is itself a tombstone (for example, an
            edit that a later edit replaced) is skipped.
    """
    if entry.seq <= message.rev or message.deleted or entry.deleted:
        return message
    match entry.kind:
        case "edit":
            return msgspec.structs.replace(
                message, body=entry.body, edited_ts=entry.ts, edited_seq=entry.seq, rev=entry.seq
            )
        case "delete":
            return build_tombstone(message, entry.seq)
        case "reaction":
            reactions = {
                user: emoji for user, emoji in message.reactions.items() if user != entry.sender
            }
            if entry.body:
                reactions[entry.sender] = entry.body
            return msgspec.structs.replace(message, reactions=reactions, rev=entry.seq)
        case _:
            return message
