"""Versions, kinds and patterns of the protocol, and types of fields that several frames have."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from chatserver.domain.archive_segments import ARCHIVED_KIND, LOST_KIND
from chatserver.domain.ids import ID_PATTERN
from chatserver.protocol.frames.limits import INT_MAX, PAGE_MAX, RETENTION_S_MAX

PROTOCOL_VERSION = 1
SUBPROTOCOL = "chat.v1"
PACKED_SUBPROTOCOL = "chat.v1.msgpack"
# Kinds of chat entries that are not messages.
ENTRY_KINDS: tuple[str, ...] = (
    "edit",
    "delete",
    "reaction",
    "member",
    "update",
    "pin",
    "unpin",
)
# Kinds that no message may use: the kinds of changes and of placeholders for missing entries.
RESERVED_KINDS: tuple[str, ...] = (*ENTRY_KINDS, ARCHIVED_KIND, LOST_KIND)
KIND_PATTERN = rf"^(?!(?:{'|'.join(RESERVED_KINDS)})(?![\s\S]))[a-z][a-z0-9_.-]{{0,31}}(?![\s\S])"
Id = Annotated[str, Meta(pattern=ID_PATTERN)]
PICTURE_PATTERN = r"^[A-Za-z0-9_-]{0,64}(?![\s\S])"  # an id, or empty
Retention = Annotated[int, Meta(ge=0, le=RETENTION_S_MAX)]
RequestId = Annotated[int, Meta(ge=0, le=INT_MAX)]
SeqField = Annotated[int, Meta(ge=0, le=INT_MAX)]
ChatSeq = Annotated[int, Meta(ge=1, le=INT_MAX)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]


def raw_list(item: type[msgspec.Struct]) -> Meta:
    """Return the annotation of a list whose items are already encoded as `item`."""
    return Meta(extra={"item": item})


def find_raw_item(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the type of the items that `raw_list` names, or None."""
    for each in get_args(annotation)[1:]:
        if isinstance(each, Meta) and each.extra:
            item: type[msgspec.Struct] = each.extra["item"]
            return item
    return None


class Cursor(msgspec.Struct, frozen=True):
    """A position in a user's inbox, valid only in its epoch."""

    epoch: Id
    seq: SeqField
