"""Pinned message use cases: pin, unpin and list.

::

    pin ──► checks ──► directory: pin, count, flag ──► commit_change.lua: entry `pin` ──► fan-out
                          (one transaction)               role and message checked again

The pins are in the `directory` table; the chat entry notifies members in order. If a process
crashes between the two writes, a retry with the same `ref` adds the missing entry. If the entry is
rejected because the role or the message has changed, the transaction is reverted.

A list shows edited messages as edited, but never the text of a deleted, erased or expired message.
When the deletion of a message is stored, its pin is deleted, too. If a message has expired, or was
already archived when it was deleted, the next list request deletes its pin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import attrs
import structlog

from chatserver.domain.clock import Clock, get_now_ms
from chatserver.domain.ids import ChatId, Ref, Seq, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER, Group
from chatserver.domain.message_change_types import HiddenSeqs
from chatserver.domain.write_restrictions import WriteRestriction, build_refusal
from chatserver.errors import Conflict, Forbidden, NotFound, TooLarge, Unavailable
from chatserver.features.pins.model import PINS_MAX, Pin, PinOutcome, compute_request_digest
from chatserver.features.pins.warm import PinRows
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.membership import MemberCheck
from chatserver.protocol import codec, frames
from chatserver.protocol.message_change_effects import is_message
from chatserver.service.history.history_pages import HistoryPages
from chatserver.service.history.reader_views import ReaderViews
from chatserver.service.messaging.message_changes import NO_MESSAGE, MessageChangeService, PinChange
from chatserver.service.messaging.stored_waits import StoredWaits
from chatserver.task_groups import map_concurrently
from chatserver.warm.chats.memberships import Memberships

log = structlog.get_logger()

READS_IN_FLIGHT_MAX: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class VisiblePin:
    """A pin, and the JSON of its message as the reader sees it in the history."""

    pin: Pin
    json: bytes
    is_deleted: bool


@attrs.define(eq=False, repr=False, kw_only=True)
class Pins:
    """Pin use cases, for processes with access to the `directory` table."""

    _rows: PinRows
    _memberships: Memberships
    _audiences: Audiences
    _members: MemberCheck
    _history: HistoryPages
    _views: ReaderViews
    _message_changes: MessageChangeService
    _stored_waits: StoredWaits
    _clock: Clock
    _page_bytes_max: int

    async def pin(self, user: UserId, chat: ChatId, seq: Seq, ref: Ref) -> None:
        """Wait until a message is stored, then pin it for all members.

        Guarantees:
            Idempotent: a pinned message stays pinned; a retry with the same `ref` completes an
            interrupted request.
            At most `PINS_MAX` pins per chat.

        Raises:
            NotFound: the chat or message does not exist, or the user may not read it.
            Forbidden: the user is not an owner or admin of the group, or may not write to the chat.
            Conflict: the message is deleted, or `ref` has been used for another request.
            TooLarge: the chat has `PINS_MAX` pins.
            Unavailable: the message may or may not be pinned; retry with the same `ref`.
        """
        await self._require_manager(user, chat)
        message = await self._get_message(user, chat, seq)
        if message.deleted:
            raise Conflict("seq: the message is deleted")
        if (await self._members.get_reader(chat, user)).stored < seq:
            await self._stored_waits.wait(chat, seq)
        pin = Pin(seq, message.ts, get_now_ms(self._clock))
        request = compute_request_digest(user, ref)
        outcome = await self._add(chat, pin, request)
        if outcome is PinOutcome.FULL:
            await self._delete_stale(user, chat)
            outcome = await self._add(chat, pin, request)
        match outcome:
            case PinOutcome.ADDED:
                await self._add_entry(user, PinChange(chat, seq, ref, is_pinned=True), pin)
            case PinOutcome.KNOWN:
                if (await self._rows.get_count(chat)).request == request:
                    await self._add_entry(user, PinChange(chat, seq, ref, is_pinned=True), None)
            case _:
                raise TooLarge(
                    f"chat: has the maximum of {PINS_MAX} pinned messages; unpin one first"
                )

    async def unpin(self, user: UserId, chat: ChatId, seq: Seq, ref: Ref) -> None:
        """Unpin a message if it is pinned. For guarantees and errors, see `pin`."""
        await self._require_manager(user, chat)
        message = await self._get_message(user, chat, seq)
        request = compute_request_digest(user, ref)
        pin = await self._rows.find(chat, seq)
        is_removed = pin is not None and await self._rows.remove(chat, pin, request)
        if message.deleted:
            return  # no entry is needed: clients removed the pin when the message was deleted
        change = PinChange(chat, seq, ref, is_pinned=False)
        if is_removed:
            await self._add_entry(user, change, pin)
        elif (await self._rows.get_count(chat)).request == request:
            await self._add_entry(user, change, None)

    async def list_page(
        self, reader: UserId, chat: ChatId, before: int | None, limit: int
    ) -> tuple[list[VisiblePin], int | None]:
        """Return a page of pinned messages, newest message first, and the next page's `before`.

        Guarantees:
            The page has only messages that the reader may read (guarantee P7), with every change
            that was acked before the call. Messages that are deleted, expired or hidden by the
            reader are left out.
            Bounded: up to `limit` messages, and up to the size of a history page.
            Cost: one Query, and one history read per pin.

        Raises:
            NotFound: the chat does not exist, or the reader is not a member.
        """
        await self._members.get_reader(chat, reader)
        pins = await self._rows.list(chat, before, limit + 1)
        read = await self._read(reader, chat, pins[:limit])
        stale = [pinned.pin for pinned in read if pinned.is_deleted]
        if stale:
            await self._delete_pins_of_deleted(reader, chat, stale)
        shown = [pinned for pinned in read if not pinned.is_deleted]
        next_before = pins[limit - 1].seq if len(pins) > limit else None
        size = 0
        for index, pin in enumerate(shown):
            size += len(pin.json)
            if index > 0 and size > self._page_bytes_max:
                return shown[:index], shown[index - 1].pin.seq
        return shown, next_before

    # Changes

    async def _require_manager(self, user: UserId, chat: ChatId) -> None:
        """Check the user's role, and that the chat accepts writes. Raises NotFound, Forbidden."""
        await self._members.get_reader(chat, user)
        audience = await self._audiences.get(chat)
        if audience.is_blocked:
            raise build_refusal(WriteRestriction.BLOCKED.value)
        if audience.is_ended:
            raise build_refusal(WriteRestriction.ENDED.value)
        if audience.kind != "group":
            return
        try:
            record, members = await self._memberships.read(chat, [user])
        except NotFound:
            raise NotFound(NOT_A_MEMBER) from None
        roles = {UserId(name): member.role for name, member in members.items()}
        Group(record.kind, record.joining, record.count or 0, 0, roles).require_manager(user)

    async def _get_message(self, user: UserId, chat: ChatId, seq: Seq) -> frames.Message:
        page = await self._history.get_page(user, frames.History(0, chat, after=seq - 1, limit=1))
        message = codec.decode_message(page.messages[0]) if page.messages else None
        if message is None or message.seq != seq or not is_message(message):
            raise NotFound(NO_MESSAGE)
        return message

    async def _add(self, chat: ChatId, pin: Pin, request: str) -> PinOutcome:
        outcome = await self._rows.add(chat, pin, request)
        if outcome is PinOutcome.NO_ITEM:  # the message is archived
            outcome = await self._rows.add(chat, pin, request, has_item=False)
        return outcome

    async def _add_entry(self, user: UserId, change: PinChange, changed: Pin | None) -> None:
        """Append an entry about a pin to the chat. If it is rejected, undo the change to the pin.

        `changed`: the pin that this request has stored or deleted; None if it has done neither.
        """
        try:
            await self._message_changes.change(user, change)
        except (Conflict, Forbidden, NotFound):
            if changed is not None:
                await self._undo(change, changed)
            raise

    async def _undo(self, change: PinChange, pin: Pin) -> None:
        if change.is_pinned:
            await self._rows.remove(change.chat, pin, "")
        else:
            await self._add(change.chat, pin, "")

    # Reads

    async def _read(self, reader: UserId, chat: ChatId, pins: Sequence[Pin]) -> list[VisiblePin]:
        """Return the pinned messages that the reader may read."""

        async def read(pin: Pin) -> VisiblePin | None:
            # With `ts`, the warm tier finds the message without a search.
            frame = frames.History(0, chat, before=pin.seq + 1, limit=1, ts=pin.ts + 1)
            page = await self._history.get_page(reader, frame)
            message = codec.decode_message(page.messages[0]) if page.messages else None
            if message is None or message.seq != pin.seq:
                return None
            return VisiblePin(pin, page.messages[0], message.deleted)

        messages = await map_concurrently(read, pins, in_flight_max=READS_IN_FLIGHT_MAX, name="pin")
        return [pin for pin in messages if pin is not None]

    async def _delete_stale(self, reader: UserId, chat: ChatId) -> None:
        """Delete the pins of deleted messages, because they count toward the limit."""
        read = await self._read(reader, chat, await self._rows.list(chat, None, PINS_MAX))
        await self._delete_pins_of_deleted(
            reader, chat, [pin.pin for pin in read if pin.is_deleted]
        )

    async def _delete_pins_of_deleted(
        self, reader: UserId, chat: ChatId, pins: Sequence[Pin]
    ) -> None:
        """Delete `pins`, but skip messages that look deleted because the reader has hidden them."""
        hidden = (await self._views.list_hidden(reader, [chat])).get(chat, HiddenSeqs())
        for pin in pins:
            if pin.seq in hidden:
                continue
            try:
                await self._rows.remove(chat, pin, None)
            except Unavailable as exc:
                log.warning("pins.cleanup_failed", chat=chat, seq=pin.seq, error=exc.message)
                return
