"""Sending messages: from a client's `send` to its ack, the inboxes and the devices.

::

    send ──► draft ──► commit (one per tick and partition) ──► ack
               │ chat not loaded: load it, queue drafts        └─► push to devices, or fan out first

A commit has one of two outcomes. Either the message is in every inbox (`committed`), or it is in
the chat and still has to be delivered (`undelivered`). In the second case this process delivers it.
If the process dies first, `workers.repair` does, because the commit has recorded the chat.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import math
import operator
import time
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import structlog

from chatserver.domain.access.caller import CALLER
from chatserver.domain.clock import Clock, SystemClock
from chatserver.domain.ids import ChatId, Epoch, GatewayId, MidSource, Ref, Seq, Ts, UserId
from chatserver.domain.inboxes import Delivery, Place
from chatserver.domain.messages import (
    Audience,
    Draft,
    InboxPositions,
    OnAnswer,
    digest_of,
    is_same_send,
    parse_place,
)
from chatserver.domain.text import WIDEST, BodyBounds, parse_body
from chatserver.errors import BadRequest, ChatError, Conflict, NotFound, Overloaded, Unavailable
from chatserver.protocol import codec, frames
from chatserver.protocol.memory_costs import Charge, charge_nobody, cost_of_fan_out, cost_of_growth
from chatserver.service.messaging.direct_chats import list_with_first_message
from chatserver.telemetry.failpoints import failpoint
from chatserver.telemetry.tracing import Id, Tracer, tracer

log = structlog.get_logger()

WAITING_MAX = 20_000
LOADS_MAX = 3
LOAD_S_MAX = 6.0  # a chat not loaded by then is `unavailable`
NOT_A_MEMBER = "chat: no such chat, or you are not a member"


class Commits(Protocol):
    """Commits drafts."""

    def submit(self, draft: Draft, audience: Audience) -> None:
        """Queue a draft; one method of its owner is called later. Raises Overloaded."""


class AudienceSource(Protocol):
    """Recipients of a chat's messages."""

    def find(self, chat: ChatId) -> Audience | None: ...

    def drop(self, chat: ChatId) -> None: ...

    async def get(self, chat: ChatId) -> Audience: ...

    async def get_fresh(self, chat: ChatId) -> Audience: ...


class Deliverer(Protocol):
    """Appends to inboxes, idempotently."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> list[Place]: ...

    async def append_event(
        self, users: Sequence[UserId], chat: ChatId, body: bytes, *, is_listed: bool = False
    ) -> list[Place]: ...


class Settler(Protocol):
    """Removes chats from the list of unfinished fan-outs, unless they have newer entries."""

    async def settle(self, done: Sequence[tuple[ChatId, Seq]]) -> None: ...

    def settle_soon(self, chat: ChatId, upto: Seq) -> None: ...


class WatchingGateways(Protocol):
    """Gateways with sessions of a large chat."""

    async def list_gateways(self, chat: ChatId) -> list[GatewayId]: ...


class Pushes(Protocol):
    """Notifies devices of users, on this gateway and others."""

    def push(
        self, users: Sequence[UserId], epoch: Epoch, places: InboxPositions, body: bytes
    ) -> None:
        """Push an event to each of `users`, with its position in their inbox."""

    def nudge(self, user: UserId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify the user's gateways that the inbox has grown to `seq`."""

    def publish(
        self, chat: ChatId, epoch: Epoch, seq: Seq, body: bytes, far: bytes | Literal[0]
    ) -> None:
        """Push an entry of a large chat to its members here; `far`: other gateways, or 0."""

    def nudge_channel(self, chat: ChatId, seq: Seq, gateways: Sequence[GatewayId]) -> None:
        """Notify gateways that a large chat has grown to `seq`."""


class Messaging:
    """Send use case. One instance per gateway process."""

    def __init__(
        self,
        commits: Commits,
        audiences: AudienceSource,
        inboxes: Deliverer,
        settler: Settler,
        pushes: Pushes,
        watchers: WatchingGateways,
        expires_s_max: int = frames.EXPIRES_S_MAX,
        clock: Clock | None = None,
        body_bounds: BodyBounds = WIDEST,
        charge: Charge = charge_nobody,
    ) -> None:
        self._charge = charge
        self.body_bounds = body_bounds
        self._expires_s_max = expires_s_max
        self._clock = clock or SystemClock()
        self._commits = commits
        self._audiences = audiences
        self._inboxes = inboxes
        self._settler = settler
        self._pushes = pushes
        self._watchers = watchers
        self._mids = MidSource()
        self._tracer = tracer()
        self._traced_fan_outs: dict[ChatId, list[tuple[Draft, Seq, int]]] = {}
        self._count = 0
        self._waiting: dict[ChatId, list[Draft]] = {}
        self._waiting_count = 0
        self._fan_outs: dict[ChatId, collections.deque[Seq]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self,
        sender: UserId,
        frame: frames.Send,
        on_answer: OnAnswer,
        attachments: Sequence[frames.Attachment] = (),
        said: str | None = None,
        ai: frames.Ai | None = None,
        *,
        is_system: bool = False,
    ) -> None:
        """Accept a message; `on_answer` is called exactly once, later.

        `attachments` are resolved from the frame's ids before.
        `said` is the sender's original body if a webhook replaced it. `ai` describes the model that
        generated the message. `is_system`: sent by the host application, which may write to any
        group.

        Guarantees:
            Order: messages of one sender to one chat get ascending seqs in the order of `send`.
            Idempotent: by (chat, sender, ref).

        Raises:
            BadRequest, TooLarge: the body or the requested lifetime is not allowed.
            Overloaded: too many messages are waiting; the message was not accepted.
        """
        body = parse_body(frame.body, self.body_bounds) if frame.body or not attachments else ""
        began_ns = 0 if self._tracer is None else time.time_ns()
        self._charge(sender, cost_of_growth(frame.body, body))
        chat, ref, mid = ChatId(frame.chat), Ref(frame.ref), self._mids.next()
        reply_to, ends = frame.reply_to, self._expiry_of(frame)
        bare = codec.encode_message_tail(
            chat, mid, sender, ref, frame.kind, body, reply_to, attachments=attachments, ai=ai
        )
        draft = Draft(
            chat,
            sender,
            ref,
            mid,
            # A retry is the same message if the sender's input is the same, whatever a webhook
            # changed.
            digest_of(
                frame.kind,
                body if said is None else said,
                reply_to,
                frame.attachments,
                frame.expires_s,
            ),
            bare,
            frame.id,
            frame.durability == "stored",
            self,
            on_answer,
            self._count,
        )
        self._count += 1
        draft.bare, draft.ends = bare, ends
        draft.reply_to, draft.is_system = reply_to, is_system
        if said is not None:
            draft.made = digest_of(frame.kind, body, reply_to, frame.attachments, frame.expires_s)
        audience = self._audiences.find(chat)
        if audience is None or chat in self._waiting:
            self._wait_for_chat(draft)
        else:
            self._submit(draft, audience)
        if self._tracer is not None:
            self._tracer.begin(mid, began_ns)

    def _submit(self, draft: Draft, audience: Audience) -> None:
        """Queue a draft with its expiry: the sender's or the chat's, whichever is earlier.

        Raises:
            Overloaded: too many drafts are waiting.
        """
        ends = draft.ends
        if audience.retention_s:
            latest = math.ceil(self._clock.time() + audience.retention_s)
            ends = latest if ends is None else min(ends, latest)
        draft.expires_at = ends
        draft.tail = draft.bare if ends is None else codec.end_tail(draft.bare, ends)
        if not draft.is_system:
            cost = cost_of_fan_out(len(audience.users), expires=ends is not None)
            self._charge(draft.sender, cost)
        self._commits.submit(draft, audience)

    def _expiry_of(self, frame: frames.Send) -> int | None:
        """Return when the message expires, in seconds since 1970, rounded up; None: never."""
        if frame.expires_s is None:
            return None
        if frame.expires_s > self._expires_s_max:
            raise BadRequest(f"expires_s: must be 1 to {self._expires_s_max}")
        return math.ceil(self._clock.time() + frame.expires_s)

    async def drain(self) -> None:
        """Wait until all accepted messages are delivered."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # chats that are not loaded: drafts wait in order

    def _wait_for_chat(self, draft: Draft) -> None:
        if self._waiting_count >= WAITING_MAX:
            raise Overloaded("too many messages wait for their chats; slow down")
        self._waiting_count += 1
        waiting = self._waiting.setdefault(draft.chat, [])
        # By number: the commit may return an earlier draft after later ones.
        bisect.insort(waiting, draft, key=operator.attrgetter("number"))
        if len(waiting) == 1:
            # Messages of the host application count against no user.
            payer = "" if draft.is_system else draft.sender
            self._spawn(self._load(draft.chat, payer), f"load-{draft.chat}")

    async def _load(self, chat: ChatId, payer: str) -> None:
        CALLER.set(payer)
        error = ChatError("the request failed; it is our fault")
        audience: Audience | None = None
        try:
            async with asyncio.timeout(LOAD_S_MAX):
                audience = await self._audiences.get(chat)
        except TimeoutError:
            error = Unavailable(f"chat: not opened within {LOAD_S_MAX:g} s, try again")
        except ChatError as exc:
            error = NotFound(NOT_A_MEMBER) if isinstance(exc, NotFound) else exc
        except asyncio.CancelledError:
            # The process is stopping. A client gives up after a permanent error such as `internal`.
            error = Unavailable("the server is stopping, try again")
            raise
        finally:
            # In any case: an unanswered draft would block its sender and all later drafts.
            self._go_on(chat, audience, error)

    def _go_on(self, chat: ChatId, audience: Audience | None, error: ChatError) -> None:
        """Commit the drafts waiting for a chat; without an audience, refuse them."""
        for draft in self._take_waiting(chat):
            if audience is None:
                draft.on_answer.refused(draft, error)
                continue
            try:
                self._submit(draft, audience)
            except Overloaded as exc:
                draft.on_answer.refused(draft, exc)

    def _take_waiting(self, chat: ChatId) -> list[Draft]:
        drafts = self._waiting.pop(chat)
        self._waiting_count -= len(drafts)
        return drafts

    # outcomes of the commit

    def committed(
        self,
        draft: Draft,
        seq: Seq,
        ts: Ts,
        epoch: Epoch,
        audience: Audience,
        places: InboxPositions,
    ) -> None:
        """Send the ack, and push to every device."""
        draft.on_answer.acked(draft, seq, ts, draft.mid, dup=False)
        if self._tracer is not None:
            self._told(self._tracer, draft, seq)
        body = codec.event_body(draft.chat, seq, ts, draft.tail)
        self._pushes.push(audience.inline_users, epoch, places, body)
        if places.far is not None:
            # After the mailbox entry, on the same connection: it has been posted by then.
            self._settler.settle_soon(draft.chat, seq)

    def published(
        self, draft: Draft, seq: Seq, ts: Ts, epoch: Epoch, gateways: bytes | Literal[0]
    ) -> None:
        """Send the ack, and push to every device in the large chat."""
        draft.on_answer.acked(draft, seq, ts, draft.mid, dup=False)
        if self._tracer is not None:
            self._told(self._tracer, draft, seq)
        body = codec.event_body(draft.chat, seq, ts, draft.tail)
        self._pushes.publish(draft.chat, epoch, seq, body, gateways)
        if gateways:
            self._settler.settle_soon(draft.chat, seq)

    def _told(self, tracer: Tracer, draft: Draft, seq: Seq) -> None:
        tracer.end(draft.mid, time.time_ns(), chat=draft.chat, seq=seq, sender=draft.sender)

    def _not_told(self, draft: Draft, error: str) -> None:
        if self._tracer is not None:
            self._tracer.end(draft.mid, time.time_ns(), chat=draft.chat, error=error)

    def undelivered(self, draft: Draft, seq: Seq, ts: Ts) -> None:
        """Send the ack, and deliver the entry to the inboxes."""
        draft.on_answer.acked(draft, seq, ts, draft.mid, dup=False)
        if self._tracer is not None:
            self._told(self._tracer, draft, seq)
            traced = self._traced_fan_outs.setdefault(draft.chat, [])
            traced.append((draft, seq, time.time_ns()))
        self.fan_out(draft.chat, seq, draft.sender)

    def fan_out(self, chat: ChatId, seq: Seq, sender: UserId) -> None:
        """Schedule the delivery of a committed entry; entries are delivered in order."""
        pending = self._fan_outs.get(chat)
        if pending is not None:
            pending.append(seq)
            return
        self._fan_outs[chat] = collections.deque([seq])
        self._spawn(self._fan_out(chat), f"fan-out-{chat}")

    def known(self, draft: Draft, place: bytes) -> None:
        """Send the ack again if it is the same message."""
        self._not_told(draft, "known")
        seq, ts, mid, digest = parse_place(place)
        # An empty digest matches any: the text was deleted or changed, so it cannot be compared.
        if not (is_same_send(digest, draft.digest) or is_same_send(digest, draft.made)):
            error = Conflict("ref: was used before for another message")
            draft.on_answer.refused(draft, error)
        else:
            draft.on_answer.acked(draft, seq, ts, mid, dup=True)

    def chat_closed(self, draft: Draft) -> None:
        """Load the chat and retry."""
        self._audiences.drop(draft.chat)
        draft.loads += 1
        if draft.loads >= LOADS_MAX:
            draft.on_answer.refused(draft, Unavailable("chat: could not be opened, try again"))
            return
        try:
            self._wait_for_chat(draft)
        except Overloaded as exc:
            draft.on_answer.refused(draft, exc)

    def not_member(self, draft: Draft) -> None:
        """Refuse without revealing whether the chat exists."""
        self._not_told(draft, NotFound.code)
        self._audiences.drop(draft.chat)
        draft.on_answer.refused(draft, NotFound(NOT_A_MEMBER))

    def failed(self, draft: Draft, error: ChatError) -> None:
        """Refuse with the given error."""
        self._not_told(draft, error.code)
        draft.on_answer.refused(draft, error)

    # fan-out in a separate call

    async def _fan_out(self, chat: ChatId) -> None:
        pending = self._fan_outs[chat]
        try:
            while pending:
                upto = pending[-1]
                pending.clear()
                traced = self._traced_fan_outs.pop(chat, ())
                # Read after these were committed: `done` covers what the commit delivered
                # meanwhile.
                audience = await self._audiences.get_fresh(chat)
                failpoint("send.before_deliver")
                # A Redis that lost them after a restart has nothing to deliver.
                upto = min(upto, audience.top)
                if audience.is_turning:
                    continue  # the process that propagates the transition delivers this, too
                await deliver_to_all(self._inboxes, self._pushes, audience, upto)
                if audience.is_large:
                    gateways = await self._watchers.list_gateways(chat)
                    self._pushes.nudge_channel(chat, upto, gateways)
                await self._settler.settle([(chat, upto)])
                for draft, seq, from_ns in traced:
                    self._tell_fan_out(draft, seq, from_ns, len(audience.users))
        except ChatError as exc:
            log.warning("fan_out.left_to_repair", chat=chat, error=exc.message)
        finally:
            del self._fan_outs[chat]

    def _tell_fan_out(self, draft: Draft, seq: Seq, from_ns: int, members: int) -> None:
        assert self._tracer is not None
        place: dict[str, Id] = {"chat": draft.chat, "seq": seq, "members": members}
        self._tracer.tell(draft.mid, "fan_out", from_ns, time.time_ns(), **place)

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def deliver_to_all(inboxes: Deliverer, pushes: Pushes, audience: Audience, upto: Seq) -> None:
    """Deliver a chat's entries up to `upto` to the inboxes, except in a large chat.

    `audience` was read after `upto` was committed: entries up to its `done` need no delivery.

    Guarantees:
        Idempotent: no entry is delivered twice; only users with something new are notified.
    """
    deliveries = [
        Delivery(user, audience.chat, first, last, audience.epoch)
        for user, after in audience.users.items()
        for first, last in audience.inbox_spans(max(after, audience.done), upto)
    ]
    if not deliveries:
        return
    await list_with_first_message(inboxes, audience, pushes.nudge)
    for place in await inboxes.deliver(deliveries):
        if place.appended:
            pushes.nudge(place.user, place.seq, place.gateways)
