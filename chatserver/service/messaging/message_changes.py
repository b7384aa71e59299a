"""Message changes: edit, delete for everyone or for oneself, react, pin.

::

    edit ──► entry ──► commit_change.lua: order, permission, the new message ──► ack, fan-out
                          ▲ │ the message is not in the hot tier
                          └─┴ read it in the warm tier, retry

A change is a chat entry with its own seq: it is delivered, synced and stored like a message.
Deleting for oneself creates no entry: the user state records the seq as hidden, and the user's
devices get an event. A pin or unpin is an entry but does not change the message;
`chatserver.features.pins` stores the pins.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NoReturn

import attrs

from chatserver.domain.ids import ChatId, Mid, MidSource, Ref, Seq, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.domain.message_change_types import ChangeOutcome, Hide, MessageChange
from chatserver.domain.messages import compute_digest, is_same_send, parse_ref_record
from chatserver.domain.text.emoji import parse_emoji
from chatserver.domain.text_validation import WIDEST, BodyBounds, parse_body
from chatserver.domain.write_restrictions import build_refusal
from chatserver.errors import (
    Conflict,
    CorruptData,
    Forbidden,
    NotFound,
    TooLarge,
    Unavailable,
)
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.chat_log import ChatLog
from chatserver.hot.chats.membership import MemberCheck
from chatserver.hot.chats.message_changes import HiddenMessages, MessageChangeCommitter
from chatserver.protocol import codec, frames
from chatserver.protocol.frames import REACTIONS_MAX
from chatserver.protocol.redis_memory_costs import Charge, charge_nobody, compute_change_cost
from chatserver.service.history.history_pages import WarmHistory
from chatserver.service.messaging.device_delivery import DeviceDelivery
from chatserver.service.messaging.message_sender import MessageSender

TRIES_MAX = 4
NO_MESSAGE = "seq: the chat has no such message"


@dataclasses.dataclass(frozen=True, slots=True)
class PinChange:
    """A request to add the entry that pins or unpins a message."""

    chat: ChatId
    seq: Seq
    ref: Ref
    is_pinned: bool
    id: int = 0
    target_ref: None = None  # a pinned message is stored, so no other one can get its seq


AnyChange = frames.Edit | frames.Delete | frames.React | PinChange


@attrs.define(eq=False, repr=False, kw_only=True)
class MessageChangeService:
    """Message change use cases."""

    _commits: MessageChangeCommitter
    _hidden: HiddenMessages
    _audiences: Audiences
    _log: ChatLog
    _warm: WarmHistory
    _messaging: MessageSender
    _devices: DeviceDelivery
    _body_bounds: BodyBounds = WIDEST
    _charge: Charge = charge_nobody
    _members: MemberCheck | None = None
    _mids: MidSource = attrs.field(factory=MidSource, init=False)

    async def change(self, user: UserId, frame: AnyChange) -> frames.Ack:
        """Apply the change that a frame requests.

        Guarantees:
            Idempotent: by (chat, sender, ref), in the same namespace as messages.
            Target: with `target_ref`, a message with another `ref` at the seq is not changed.
            Order: the change has a seq; every client that applies changes in seq order gets the
                same result.
            Deletion: after a delete for everyone is acked, no read returns the text. Deleting a
                deleted message has no effect; the ack has the `seq` of the change that deleted it,
                and `dup` is true.

        Raises:
            BadRequest, TooLarge: the text or emoji is not allowed, or a limit is reached.
            NotFound: the chat or message does not exist, or the user is not a member.
            Forbidden: the user may not change this message.
            Conflict: the message to change is deleted, or `ref` has already been used for another
                request.
            Unavailable: a tier does not respond; retry with the same `ref`.
        """
        match frame:
            case frames.Edit():
                body = parse_body(frame.body, self._body_bounds)
                return await self._commit(user, frame, "edit", body)
            case frames.React():
                return await self._commit(user, frame, "reaction", parse_emoji(frame.emoji))
            case PinChange():
                return await self._commit(user, frame, "pin" if frame.is_pinned else "unpin", "")
            case frames.Delete(scope="me"):
                return await self._hide(user, frame)
            case frames.Delete():
                return await self._commit(user, frame, "delete", "")

    async def _commit(self, user: UserId, frame: AnyChange, kind: str, body: str) -> frames.Ack:
        change = self._make(user, frame, kind, body)
        chat, base, head = change.chat, b"", 0
        audience = await self._audiences.get(chat)
        for _ in range(TRIES_MAX):
            changed = await self._commits.commit_change(change, base, head)
            match changed.outcome:
                case ChangeOutcome.COMMITTED:
                    tail_bytes, recipients = len(change.tail), len(audience.users)
                    self._charge(
                        user, compute_change_cost(changed.size_bytes, tail_bytes, recipients)
                    )
                    self._messaging.fan_out(chat, Seq(changed.seq))
                    return _make_ack(frame, change.mid, changed.seq, changed.ts, dup=False)
                case ChangeOutcome.KNOWN:
                    return _make_repeat_ack(frame, change, changed.record)
                case ChangeOutcome.ELSEWHERE:
                    base = codec.encode(await self._read_stored(chat, change.target))
                    head = changed.seq
                case ChangeOutcome.DELETED if kind == "delete":
                    # The state that was requested. Until the earlier delete is stored, the device
                    # must be able to repeat its own.
                    return _make_ack(frame, Mid(""), changed.seq or frame.seq, 0, dup=True)
                case ChangeOutcome.RESTRICTED:
                    raise build_refusal(changed.seq)
                case ChangeOutcome.CLOSED:
                    self._audiences.drop(chat)
                    await self._audiences.get(chat)
                case ChangeOutcome.NOT_MEMBER:
                    self._audiences.drop(chat)
                    raise NotFound(NOT_A_MEMBER)
                case ChangeOutcome.NO_MESSAGE if await self._is_of_earlier_period(change):
                    change = dataclasses.replace(change, is_of_earlier_period=True)
                case _ as refusal:
                    _refuse(refusal, kind)
        raise Unavailable("seq: the message keeps changing; try again")

    async def _is_of_earlier_period(self, change: MessageChange) -> bool:
        """Return whether the changed message is from an earlier membership period of the sender."""
        if self._members is None or change.is_of_earlier_period:
            return False
        chat, user = change.chat, change.sender
        span = await self._members.get_reader(chat, user)
        if change.target >= span.first:
            return False
        return (await self._members.add_periods(chat, user, span)).is_readable(change.target)

    def _make(self, user: UserId, frame: AnyChange, kind: str, body: str) -> MessageChange:
        mid = self._mids.next()
        return MessageChange(
            chat=ChatId(frame.chat),
            sender=user,
            ref=Ref(frame.ref),
            mid=mid,
            digest=compute_digest(kind, body, frame.seq),
            kind=kind,
            target=Seq(frame.seq),
            body=body,
            tail=codec.encode_entry_tail(
                chat=frame.chat,
                mid=mid,
                sender=user,
                ref=frame.ref,
                kind=kind,
                body=body,
                target=frame.seq,
            ),
            target_ref=frame.target_ref or "",
        )

    async def _read_stored(self, chat: ChatId, seq: Seq) -> frames.Message:
        messages = (await self._warm.read_run(chat, seq + 1, None, 1, None)).messages
        if not messages or messages[-1].seq != seq:
            # Every message up to the chat's newest seq is in some tier, unless it has been
            # permanently deleted.
            raise NotFound(NO_MESSAGE)
        return messages[-1]

    async def _read_ref(self, chat: ChatId, seq: Seq) -> str:
        """Return the `ref` of the message at a seq."""
        for entry in await self._log.list_range(chat, seq, seq):
            return codec.decode_message(codec.join_message(entry.seq, entry.ts, entry.tail)).ref
        return (await self._read_stored(chat, seq)).ref

    async def _hide(self, user: UserId, frame: frames.Delete) -> frames.Ack:
        chat, seq = ChatId(frame.chat), Seq(frame.seq)
        await self._audiences.get_for_member(chat, user)
        if seq > (await self._log.get_head(chat)).seq:
            raise NotFound(NO_MESSAGE)
        # The user and the chat may be in different partitions, so this check is not atomic. Only if
        # Redis loses the message before the next call, another one may be hidden.
        if frame.target_ref and await self._read_ref(chat, seq) != frame.target_ref:
            raise NotFound(NO_MESSAGE)
        outcome, appended = await self._hidden.hide(user, chat, seq)
        # Again for a repeated request: the first one may have ended before this.
        self._devices.notify_seq(user, appended.seq, appended.gateways)
        durability: Literal["hot", "stored"] = "stored" if outcome is Hide.STORED else "hot"
        return frames.Ack(
            id=frame.id,
            ref=frame.ref,
            mid="",
            seq=seq,
            ts=0,
            dup=outcome is not Hide.NEW,
            durability=durability,
        )


def _make_ack(frame: AnyChange, mid: str, seq: int, ts: int, *, dup: bool) -> frames.Ack:
    return frames.Ack(
        id=frame.id, ref=frame.ref, mid=mid, seq=seq, ts=ts, dup=dup, durability="hot"
    )


def _make_repeat_ack(frame: AnyChange, change: MessageChange, record: bytes) -> frames.Ack:
    seq, ts, mid, digest = parse_ref_record(record)
    if not is_same_send(digest, change.digest):
        raise Conflict("ref: already used for another request")
    return _make_ack(frame, Mid(mid), seq, ts, dup=True)


def _refuse(outcome: ChangeOutcome, kind: str) -> NoReturn:
    match outcome:
        case ChangeOutcome.FORBIDDEN if kind == "edit":
            raise Forbidden("seq: you can only edit your own messages")
        case ChangeOutcome.FORBIDDEN if kind in ("pin", "unpin"):
            raise Forbidden("chat: only the owner and admins may do this")
        case ChangeOutcome.FORBIDDEN:
            raise Forbidden("seq: only the sender, an owner or an admin can delete this message")
        case ChangeOutcome.DELETED:
            raise Conflict("seq: the message is deleted")
        case ChangeOutcome.REACTIONS_FULL:
            raise TooLarge(f"seq: a message can have at most {REACTIONS_MAX:,} reactions")
        case ChangeOutcome.NO_MESSAGE:
            raise NotFound(NO_MESSAGE)
        case _:
            raise CorruptData(f"commit_change.lua returned {outcome}")
