"""What a change of a group says, as the chat's row keeps it until Redis has it."""

from __future__ import annotations

import msgspec


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
    """A change. Its entries have fixed ids. `turn`: "up" if it turns large, "down" if small."""

    sender: str
    ref: str
    digest: str
    members: list[ChangedMember] = []
    update_mid: str = ""  # of the entry about the chat itself, if there is one
    name: str | None = None
    body: str = ""
    turn: str = ""


decode_record = msgspec.json.Decoder(ChangeRecord).decode


def encode_record(record: ChangeRecord) -> str:
    """Return the text that the row keeps."""
    return msgspec.json.encode(record).decode()
