"""Conversion of backlog entries to the pieces that the writer writes. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chatserver.domain.ids import GatewayId
from chatserver.hot.chats.persist_backlog import (
    BacklogEntry,
    CommitEntry,
    CommittedMessage,
    HideEntry,
    MarkEntry,
)
from chatserver.hot.redis.keys import parse_entry_id
from chatserver.protocol import codec
from chatserver.warm.chats.member_states import MarkUpdate
from chatserver.warm.messages.messages import PersistItem
from workers.persist.batch_changes import EntryWrite, build_replacement_tombstone
from workers.persist.batch_writer import Piece


def sort_entries(
    entries: Sequence[BacklogEntry], unsure_upto: tuple[int, int] = (0, 0)
) -> tuple[list[Piece], list[CommittedMessage]]:
    """Return `(pieces, unreadable)`: one piece per chat, and entries without a readable chat.

    Writes of backlog entries up to `unsure_upto` are marked as `may_be_stored`.
    """
    pieces: dict[str, Piece] = {}
    unreadable: list[CommittedMessage] = []
    for entry in entries:
        match entry:
            case CommitEntry():
                is_unsure = parse_entry_id(entry.id) <= unsure_upto
                for raw in entry.messages:
                    write = _decode(entry.gateway, raw)
                    if write is None:
                        unreadable.append(raw)
                        continue
                    if is_unsure:
                        write = write._replace(may_be_stored=True)
                    piece = pieces.get(write.item.message.chat)
                    if piece is None:
                        piece = pieces[write.chat] = Piece(write.chat)
                    piece.writes.append(write)
            case MarkEntry():
                piece = pieces.setdefault(entry.chat, Piece(entry.chat))
                mark = MarkUpdate(entry.chat, entry.user, entry.read, entry.received)
                piece.marks[entry.user] = mark
            case HideEntry():
                piece = pieces.setdefault(entry.chat, Piece(entry.chat))
                piece.hidden.setdefault(entry.user, set()).add(entry.seq)
    return list(pieces.values()), unreadable


def _decode(gateway: GatewayId, raw: CommittedMessage) -> EntryWrite | None:
    try:
        message = codec.decode_message(codec.join_message(raw.seq, raw.ts, raw.tail))
    except msgspec.MsgspecError as exc:
        reason = f"not a message: {exc}"
    else:
        return EntryWrite(gateway, raw, PersistItem(message, raw.receiver))
    tombstone = build_replacement_tombstone(raw)
    return (
        None
        if tombstone is None
        else EntryWrite(gateway, raw, PersistItem(tombstone, None), reason)
    )
