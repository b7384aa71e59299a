"""Sending messages: from a client's `send` to its ack, the inboxes and the devices.

::

    draft ──► commit (one call per partition) ──► ack
      │ chat not loaded: load it, queue drafts    └─► push to devices, or fan out first

After a commit, the message is in every inbox (`InboxCommit`), or only in the chat's log
(`UndeliveredCommit`). In the second case, this process, or worker `repair` if the process dies,
delivers it to the inboxes.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import dataclasses
import math
import operator
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol, assert_never

import structlog

from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, MidSource, Ref, Seq, Ts, UserId
from chatserver.domain.membership_rules import NOT_A_MEMBER
from chatserver.domain.messages import (
    Audience,
    ChatNotLoaded,
    CommitOutcome,
    CommitRefused,
    DuplicateSend,
    InboxCommit,
    LargeChatCommit,
    PendingDraft,
    SenderNotMember,
    SendListener,
    UndeliveredCommit,
    compute_digest,
    is_same_send,
    parse_ref_record,
)
from chatserver.domain.text_validation import WIDEST, BodyBounds, parse_body, parse_caption
from chatserver.errors import ChatError, Conflict, NotFound, Overloaded, Unavailable
from chatserver.hot.chats.audience_cache import Audiences
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.chats.group_commit import OnOutcome, PartitionedCommit
from chatserver.hot.chats.large_chat_subscriptions import LargeChatSubscriptions
from chatserver.hot.users.inbox import Inboxes
from chatserver.protocol import codec, frames
from chatserver.protocol.redis_memory_costs import (
    Charge,
    charge_nobody,
    compute_fan_out_cost,
    compute_growth_cost,
)
from chatserver.service.messaging.device_delivery import DeviceDelivery
from chatserver.service.messaging.inbox_delivery import deliver_to_all
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.tracing import Id, tracer

log = structlog.get_logger()

WAITING_MAX = 20_000
LOADS_MAX = 3
LOAD_S_MAX = 6.0  # if loading a chat takes longer, sends to it fail with `unavailable`


@dataclasses.dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send.

    `attachments` are resolved from the frame's ids (`chatserver.features.attachments.service`).
    `ai` describes the model that generated the message. `is_system`: the message is from the host
    application, which may write to any group.
    """

    sender: UserId
    frame: frames.Send
    attachments: Sequence[frames.Attachment] = ()
    ai: frames.Ai | None = None
    is_system: bool = False


class _Outcome:
    def __init__(self) -> None:
        self.ack: asyncio.Future[frames.Ack] = asyncio.get_running_loop().create_future()
        self._caller = CALLER.get()

    def get_caller(self) -> RequestCaller:
        return self._caller

    def on_acked(self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        if not self.ack.done():
            request, ref = draft.request_id, draft.ref
            ack = frames.Ack(request, ref, mid=mid, seq=seq, ts=ts, dup=dup, durability="hot")
            self.ack.set_result(ack)

    def on_refused(self, request_id: int, ref: str, error: ChatError) -> None:
        if not self.ack.done():
            self.ack.set_exception(error)


class SendInterceptor(Protocol):
    """Checks messages before they are accepted, for example with the before-send webhook."""

    def submit(
        self,
        messaging: MessageSender,
        sender: UserId,
        frame: frames.Send,
        listener: SendListener,
        attachments: Sequence[frames.Attachment],
    ) -> None:
        """Check a message, then pass it to `MessageSender.accept` or refuse it.

        Guarantees:
            Order: messages from one sender to one chat are passed on in the order of the calls.

        Raises:
            BadRequest, TooLarge, Overloaded: see `MessageSender.submit`.
        """


class MessageSender:
    """The use case of sending messages. One instance per process."""

    def __init__(
        self,
        *,
        make_commits: Callable[[OnOutcome], PartitionedCommit],
        audiences: Audiences,
        inboxes: Inboxes,
        undelivered: UndeliveredChats,
        devices: DeviceDelivery,
        large_chats: LargeChatSubscriptions,
        clock: Clock | None = None,
        body_bounds: BodyBounds = WIDEST,
        charge: Charge = charge_nobody,
        send_interceptor: SendInterceptor | None = None,
    ) -> None:
        self._charge = charge
        self._send_interceptor = send_interceptor
        self.body_bounds = body_bounds
        self._clock = clock or SystemClock()
        self._commits = make_commits(self.handle_outcome)
        self._audiences = audiences
        self._inboxes = inboxes
        self._undelivered = undelivered
        self._devices = devices
        self._large_chats = large_chats
        self._mids = MidSource()
        self._tracer = tracer()
        self._traced_fan_outs: dict[ChatId, list[tuple[PendingDraft, Seq, int]]] = {}
        self._count = 0
        self._waiting: dict[ChatId, list[PendingDraft]] = {}
        self._waiting_count = 0
        self._fan_outs: dict[ChatId, collections.deque[Seq]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, message: OutgoingMessage) -> frames.Ack:
        """Send a message. Return its ack once the message is committed in the hot tier.

        Guarantees:
            Order: messages from one sender to one chat get ascending seqs in call order.
            Idempotent: by (chat, sender, ref).
            Cancellation: the message may have been sent; a retry with its `ref` returns its ack.

        Raises:
            BadRequest, TooLarge: the body is not allowed.
            NotFound: the chat does not exist, or the sender is not a member.
            Forbidden, RateLimited: the sender may not write to the chat, or must wait (slow mode).
            Conflict: `ref` has already been used for another message.
            Overloaded: too many messages are waiting; the message was not accepted.
            Unavailable: the outcome is unknown; retry with the same `ref`.
        """
        outcome = _Outcome()
        self.submit(
            message.sender,
            message.frame,
            outcome,
            message.attachments,
            ai=message.ai,
            is_system=message.is_system,
        )
        return await outcome.ack

    def submit(
        self,
        sender: UserId,
        frame: frames.Send,
        listener: SendListener,
        attachments: Sequence[frames.Attachment] = (),
        ai: frames.Ai | None = None,
        *,
        is_system: bool = False,
    ) -> None:
        """Check and accept a message; `listener` gets the outcome exactly once, later.

        For the parameters, see `OutgoingMessage`. Messages from a model or the host application
        bypass the `SendInterceptor`.

        Raises:
            BadRequest, TooLarge: the body is not allowed.
            Overloaded: too many messages are waiting; the message was not accepted.
        """
        if self._send_interceptor is None or ai is not None or is_system:
            self.accept(sender, frame, listener, attachments, ai=ai, is_system=is_system)
        else:
            self._send_interceptor.submit(self, sender, frame, listener, attachments)

    def accept(
        self,
        sender: UserId,
        frame: frames.Send,
        listener: SendListener,
        attachments: Sequence[frames.Attachment] = (),
        original_body: str | None = None,
        ai: frames.Ai | None = None,
        *,
        is_system: bool = False,
    ) -> None:
        """Accept a checked message; see `submit`.

        If the check replaced the body, `original_body` is the sender's body.
        """
        parse = parse_caption if attachments else parse_body
        body = parse(frame.body, self.body_bounds)
        began_ns = 0 if self._tracer is None else time.time_ns()
        self._charge(sender, compute_growth_cost(frame.body, body))
        chat, ref, mid = ChatId(frame.chat), Ref(frame.ref), self._mids.next()
        reply_to = frame.reply_to
        tail = codec.encode_message_tail(
            chat=chat,
            mid=mid,
            sender=sender,
            ref=ref,
            kind=frame.kind,
            body=body,
            reply_to=reply_to,
            attachments=attachments,
            ai=ai,
        )
        draft = PendingDraft(
            chat=chat,
            sender=sender,
            ref=ref,
            mid=mid,
            # The digest of the sender's input is the same for a retry, even if a webhook changed
            # the body.
            digest=compute_digest(
                frame.kind,
                body if original_body is None else original_body,
                reply_to,
                frame.attachments,
                frame.expires_s,
            ),
            tail=tail,
            request_id=frame.id,
            is_stored_wanted=frame.durability == "stored",
            listener=listener,
            number=self._count,
            reply_to=reply_to,
            requested_expiry=self._compute_expiry(frame),
            changed_digest=""
            if original_body is None
            else compute_digest(frame.kind, body, reply_to, frame.attachments, frame.expires_s),
            is_system=is_system,
        )
        self._count += 1
        audience = self._audiences.find(chat)
        if audience is None or chat in self._waiting:
            self._wait_for_chat(draft)
        else:
            self._commit(draft, audience)
        if self._tracer is not None:
            self._tracer.begin(mid, began_ns)

    def _commit(self, draft: PendingDraft, audience: Audience) -> None:
        """Queue a draft. Its expiry is the sender's or the chat's, whichever is earlier.

        Raises:
            Overloaded: too many drafts are waiting.
        """
        ends = draft.requested_expiry
        if audience.retention_s:
            latest = math.ceil(self._clock.time() + audience.retention_s)
            ends = latest if ends is None else min(ends, latest)
        draft.expires_at = ends
        draft.tail = (
            draft.tail_without_expiry
            if ends is None
            else codec.add_expiry(draft.tail_without_expiry, ends)
        )
        if not draft.is_system:
            cost = compute_fan_out_cost(len(audience.users), expires=ends is not None)
            self._charge(draft.sender, cost)
        self._commits.submit(draft, audience)

    def _compute_expiry(self, frame: frames.Send) -> int | None:
        """Return when the message expires (Unix seconds, rounded up); None means never."""
        if frame.expires_s is None:
            return None
        return math.ceil(self._clock.time() + frame.expires_s)

    async def drain(self) -> None:
        """Wait until all running chat loads and fan-outs have finished."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Drafts that wait until their chat is loaded

    def _wait_for_chat(self, draft: PendingDraft) -> None:
        if self._waiting_count >= WAITING_MAX:
            raise Overloaded("too many messages are waiting for chats to load; slow down")
        self._waiting_count += 1
        waiting = self._waiting.setdefault(draft.chat, [])
        # Sort by order of acceptance: a returned draft may precede others.
        bisect.insort(waiting, draft, key=operator.attrgetter("number"))
        if len(waiting) == 1:
            caller = RequestCaller() if draft.is_system else draft.listener.get_caller()
            self.spawn(self._load(draft.chat, caller), f"load-{draft.chat}")

    async def _load(self, chat: ChatId, caller: RequestCaller) -> None:
        CALLER.set(caller)
        error = ChatError("internal error; the request failed")
        audience: Audience | None = None
        try:
            async with asyncio.timeout(LOAD_S_MAX):
                audience = await self._audiences.get(chat)
        except TimeoutError:
            error = Unavailable(f"chat: not loaded within {LOAD_S_MAX:g} s; try again")
        except ChatError as exc:
            error = NotFound(NOT_A_MEMBER) if isinstance(exc, NotFound) else exc
        except asyncio.CancelledError:
            error = Unavailable("the server is stopping; try again")
            raise
        finally:
            # Always resume: a draft without a response would block its sender and all later drafts.
            self._resume(chat, audience, error)

    def _resume(self, chat: ChatId, audience: Audience | None, error: ChatError) -> None:
        for draft in self._pop_waiting(chat):
            if audience is None:
                self._refuse(draft, error)
                continue
            try:
                self._commit(draft, audience)
            except Overloaded as exc:
                self._refuse(draft, exc)

    def _pop_waiting(self, chat: ChatId) -> list[PendingDraft]:
        drafts = self._waiting.pop(chat)
        self._waiting_count -= len(drafts)
        return drafts

    # Outcomes of commits

    def handle_outcome(self, draft: PendingDraft, outcome: CommitOutcome) -> None:
        """Send the ack or the error, and deliver a committed message to the devices."""
        match outcome:
            case InboxCommit():
                self._ack(draft, outcome.seq, outcome.ts)
                body = codec.encode_event_body(draft.chat, outcome.seq, outcome.ts, draft.tail)
                self._devices.push(outcome.users, outcome.epoch, outcome.positions, body)
                if outcome.positions.remote_gateways is not None:
                    # `finish_soon` waits until the queued gateway stream records have been sent.
                    self._undelivered.finish_soon(draft.chat, outcome.seq)
            case LargeChatCommit():
                self._ack(draft, outcome.seq, outcome.ts)
                body = codec.encode_event_body(draft.chat, outcome.seq, outcome.ts, draft.tail)
                self._devices.publish(
                    draft.chat, outcome.epoch, outcome.seq, body, outcome.gateways
                )
                if outcome.gateways:
                    self._undelivered.finish_soon(draft.chat, outcome.seq)
            case UndeliveredCommit():
                self._ack(draft, outcome.seq, outcome.ts)
                if self._tracer is not None:
                    traced = self._traced_fan_outs.setdefault(draft.chat, [])
                    traced.append((draft, outcome.seq, time.time_ns()))
                self.fan_out(draft.chat, outcome.seq)
            case DuplicateSend():
                self._answer_duplicate(draft, outcome.record)
            case ChatNotLoaded():
                self._load_again(draft)
            case SenderNotMember():
                # The error does not reveal whether the chat exists.
                self._audiences.drop(draft.chat)
                self._trace_refused(draft, NotFound.code)
                self._refuse(draft, NotFound(NOT_A_MEMBER))
            case CommitRefused():
                self._trace_refused(draft, outcome.error.code)
                self._refuse(draft, outcome.error)
            case _ as never:
                assert_never(never)

    def _ack(self, draft: PendingDraft, seq: Seq, ts: Ts) -> None:
        draft.listener.on_acked(draft, seq, ts, draft.mid, dup=False)
        if self._tracer is not None:
            self._tracer.end(
                draft.mid, time.time_ns(), chat=draft.chat, seq=seq, sender=draft.sender
            )

    def _refuse(self, draft: PendingDraft, error: ChatError) -> None:
        draft.listener.on_refused(draft.request_id, draft.ref, error)

    def _trace_refused(self, draft: PendingDraft, error: str) -> None:
        if self._tracer is not None:
            self._tracer.end(draft.mid, time.time_ns(), chat=draft.chat, error=error)

    def _answer_duplicate(self, draft: PendingDraft, record: bytes) -> None:
        """Repeat the ack if the draft is a retry of the same message; otherwise, refuse it."""
        self._trace_refused(draft, "known")
        seq, ts, mid, digest = parse_ref_record(record)
        # An empty digest matches: the text has been deleted or changed, and cannot be compared.
        if not (is_same_send(digest, draft.digest) or is_same_send(digest, draft.changed_digest)):
            self._refuse(draft, Conflict("ref: already used for another message"))
        else:
            draft.listener.on_acked(draft, seq, ts, mid, dup=True)

    def _load_again(self, draft: PendingDraft) -> None:
        """Load the chat, then commit the draft again."""
        self._audiences.drop(draft.chat)
        draft.load_count += 1
        if draft.load_count >= LOADS_MAX:
            self._refuse(draft, Unavailable("chat: could not be loaded; try again"))
            return
        try:
            self._wait_for_chat(draft)
        except Overloaded as exc:
            self._refuse(draft, exc)

    # Fan-out after the commit, if the commit has not done it

    def fan_out(self, chat: ChatId, seq: Seq) -> None:
        """Schedule the delivery of a committed entry to the inboxes, in order."""
        pending = self._fan_outs.get(chat)
        if pending is not None:
            pending.append(seq)
            return
        self._fan_outs[chat] = collections.deque([seq])
        self.spawn(self._fan_out(chat), f"fan-out-{chat}")

    async def _fan_out(self, chat: ChatId) -> None:
        pending = self._fan_outs[chat]
        try:
            while pending:
                upto = pending[-1]
                pending.clear()
                traced = self._traced_fan_outs.pop(chat, ())
                # Read the audience after the commit of `upto`, so that it has all recipients.
                # Entries up to its `done` have already been delivered, by any process.
                audience = await self._audiences.get_fresh(chat)
                failpoint("send.before_deliver")
                # If Redis has lost entries in a restart, `audience.top` is lower than `upto`.
                upto = min(upto, audience.top)
                if audience.is_in_transition:
                    continue  # `MembershipPropagation.deliver` delivers these entries
                await deliver_to_all(self._inboxes, self._devices, audience, upto)
                if audience.is_large:
                    gateways = await self._large_chats.list_gateways(chat)
                    self._devices.notify_channel_seq(chat, upto, gateways)
                await self._undelivered.finish([(chat, upto)])
                for draft, seq, from_ns in traced:
                    self._trace_fan_out(draft, seq, from_ns, len(audience.users))
        except ChatError as exc:
            log.warning("fan_out.deferred_to_repair", chat=chat, error=exc.message)
        finally:
            del self._fan_outs[chat]

    def _trace_fan_out(self, draft: PendingDraft, seq: Seq, from_ns: int, members: int) -> None:
        assert self._tracer is not None
        labels: dict[str, Id] = {"chat": draft.chat, "seq": seq, "members": members}
        self._tracer.record_span(draft.mid, "fan_out", from_ns, time.time_ns(), **labels)

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        """Run a task that `drain` waits for."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
