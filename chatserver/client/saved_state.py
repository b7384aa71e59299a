"""Persistent client state that survives a process restart, as JSON.

The record `position` has the state after the last event that the application has consumed: the
cursor, and the last delivered seq of each chat. After a crash, an event may be delivered twice, but
none is missed.
The record `outbox` has the operations that have not been stored yet, and the outcomes (`Acked`,
`Refused`) that the application has not consumed. It is saved before an operation is sent, so that a
restarted process retries with the same ref.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from chatserver.client.client_state import ClientState, QueuedEvent
from chatserver.client.events import (
    Acked,
    ChatChanged,
    EntriesWithdrawn,
    Marked,
    MemberChanged,
    MessageAdded,
    MessageChanged,
    PinsChanged,
    Refused,
    Restarted,
    Skipped,
)
from chatserver.client.outbox import OutboxEntry, OutboxStage
from chatserver.client.request_queue import Fields, parse_error
from chatserver.errors import ChatError, CorruptData
from chatserver.protocol.frames import Cursor


class SavedChatPosition(msgspec.Struct, frozen=True):
    """The delivery state of one chat; `shown` is the last delivered seq."""

    chat: str
    shown: int
    top: int
    mids: list[tuple[int, str]]
    read: int = 0
    is_large: bool = False
    is_unverified: bool = False
    is_backfill_pending: bool = False


class SavedPosition(msgspec.Struct, frozen=True):
    """The cursor of the device, and its position in each chat."""

    user: str
    device: str
    cursor: Cursor | None
    chats: list[SavedChatPosition]


class SavedOutbox(msgspec.Struct, frozen=True):
    """The outbox, and the outcomes not yet consumed by the application."""

    operations: list[OutboxEntry]
    outcomes: list[Acked | Refused]


def encode_position(state: ClientState, unconsumed: Sequence[QueuedEvent] = ()) -> bytes | None:
    """Encode the record `position` as it was before the `unconsumed` events, or return None.

    None means that an `unconsumed` event could not be delivered again from this record. In that
    case, keep the record that was saved before: it is still valid, and only repeats more events.
    """
    firsts = _find_first_seqs(state, unconsumed)
    if firsts is None:
        return None
    positions = {
        chat.id: min(chat.log.shown, firsts.get(chat.id, chat.log.shown + 1) - 1)
        for chat in state.chats.values()
        if chat.log.shown is not None
    }
    chats = [
        SavedChatPosition(
            chat=chat.id,
            shown=positions[chat.id],
            top=chat.log.top,
            mids=list(chat.log.get_newest_identities(positions[chat.id]).items()),
            read=chat.read,
            is_large=chat.is_large,
            is_unverified=chat.log.is_unverified,
            is_backfill_pending=state.catch_up.is_scheduled(chat),
        )
        for chat in state.chats.values()
        if chat.id in positions
    ]
    cursor = unconsumed[0].before if unconsumed else state.cursor
    return msgspec.json.encode(SavedPosition(state.user, state.device, cursor, chats))


def _find_first_seqs(
    state: ClientState, unconsumed: Sequence[QueuedEvent]
) -> dict[str, int] | None:
    """Return each chat's first seq in `unconsumed`; None if an event cannot be delivered again."""
    firsts: dict[str, int] = {}
    for queued in unconsumed:
        match queued.event:
            case MessageAdded(chat, entry):
                firsts.setdefault(chat, entry.seq)
            case MessageChanged(chat, entry, _) | MemberChanged(chat, entry):
                firsts.setdefault(chat, entry.seq)
            case PinsChanged(chat, entry):
                firsts.setdefault(chat, entry.seq)
            case ChatChanged(chat, entry) if entry is not None:
                firsts.setdefault(chat, entry.seq)
            case Restarted() | Skipped() | EntriesWithdrawn():
                return None  # without a seq, an event cannot be delivered again
            case ChatChanged(chat) if state.get_or_create_chat(chat).is_large:
                # The event may have made the chat large. The record has only the new `is_large`.
                return None
            case Marked(user=user) if user == state.user:
                return None  # the read mark before this event is not kept
            case _:
                pass
    return firsts


def encode_outbox(state: ClientState, unconsumed: Sequence[QueuedEvent] = ()) -> bytes:
    """Encode the operations that have not been stored yet and the outcomes among `unconsumed`."""
    operations = [
        dataclasses.replace(
            operation,
            # An operation in flight may have been committed; a retry with the same ref finds out.
            stage=OutboxStage.ACKED if operation.stage is OutboxStage.ACKED else OutboxStage.QUEUED,
            not_before=0.0,
            number=0,
        )
        for operation in state.outbox
    ]
    outcomes = [
        queued.event
        for queued in unconsumed
        if isinstance(queued.event, Acked | Refused) and not queued.is_known
    ]
    return msgspec.json.encode(SavedOutbox(operations, outcomes), enc_hook=_encode_error)


def _encode_error(error: ChatError) -> Fields:
    return {
        "code": error.code,
        "message": error.message,
        "temporary": error.temporary,
        "retry_after_ms": error.retry_after_ms,
    }


def restore(state: ClientState, position: bytes | None, outbox: bytes | None) -> None:
    """Restore the state that an earlier process saved.

    Raises:
        CorruptData: a record is invalid.
    """
    try:
        if position is not None:
            _restore_position(state, msgspec.json.decode(position, type=SavedPosition))
        if outbox is not None:
            saved = msgspec.json.decode(
                outbox, type=SavedOutbox, dec_hook=lambda _, fields: parse_error(fields)
            )
            for operation in saved.operations:
                state.outbox.put(operation)
            state.redeliver(saved.outcomes)
    except msgspec.MsgspecError as exc:
        raise CorruptData(f"the client's store is not readable: {exc}") from exc


def _restore_position(state: ClientState, position: SavedPosition) -> None:
    state.user, state.device, state.cursor = position.user, position.device, position.cursor
    for saved in position.chats:
        chat = state.get_or_create_chat(saved.chat)
        chat.is_large = saved.is_large
        chat.apply_marks({"user": position.user, "read": saved.read})
        chat.log.restore(saved.shown, saved.top, saved.mids)
        if saved.is_unverified:
            chat.mark_unverified()
        state.catch_up.schedule(chat, is_forced=saved.is_backfill_pending)
