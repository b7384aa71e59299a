"""Command handler for client frames: rate limits, `hello`, requests, sends and acks.

Each request gets exactly one response with its id: a result or an `error`. To preserve their
order, frames are held while `hello` or a snapshot is in progress, while Redis is asked for more of
the user's rate limit allowance, and while an earlier send waits for a lookup. Requests held too
long are answered with `unavailable` (promise P9).
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence

import msgspec
import structlog

from chatserver.domain.access.caller import CALLER
from chatserver.domain.access.logins import Claims
from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId, DeviceId, Epoch, Seq, Ts, UserId
from chatserver.domain.inbox_cursors import Coverage
from chatserver.domain.inboxes import InboxState
from chatserver.domain.messages import PendingDraft
from chatserver.errors import (
    BadRequest,
    Banned,
    ChatError,
    RateLimited,
    Unauthenticated,
    Unavailable,
    UnknownKey,
)
from chatserver.gateway.session.requests import Request
from chatserver.gateway.session.send_order import SendOrder
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.session_auth import SessionAuth, close_code_of
from chatserver.gateway.session.session_context import SessionContext
from chatserver.gateway.session.session_state import Stage
from chatserver.gateway.session.welcome import SENDS_IN_FLIGHT_MAX, find_start, make_welcome
from chatserver.gateway.transport.connection import Connection
from chatserver.hot.users.rate_limits import TOO_MUCH, Allowance
from chatserver.protocol import codec, frames
from chatserver.protocol.codes import CODES, Close
from chatserver.protocol.memory_costs import cost_of, cost_of_send
from chatserver.protocol.request_costs import cost_of_frame
from chatserver.telemetry import metrics

log = structlog.get_logger()

HELLO_TIMEOUT_S = 10.0  # a connection without hello is closed
HELD_TIMEOUT_S = 5.0  # a frame that waits for a snapshot is refused

REQUESTS_IN_FLIGHT_MAX = 32
EARLY_FRAMES_MAX = 64
LIVE = Stage.LIVE  # looked up once: the comparison runs for every frame


class CommandHandler:
    """Handles the frames of one session; created with its connection."""

    __slots__ = (
        "_connection",
        "_desk",
        "_early",
        "_held_timer",
        "_is_looking",
        "_life",
        "_memory_allowed",
        "_order",
        "_others_allowed",
        "_sends_allowed",
        "_session",
    )

    def __init__(self, desk: SessionContext, connection: Connection, session: Session) -> None:
        self._desk = desk
        self._connection = connection
        self._session = session
        self._life = session.life
        # Held frames: (held since, arrival number, payload).
        self._early: collections.deque[tuple[float, int, bytes]] = collections.deque()
        self._order = SendOrder()
        self._held_timer: asyncio.TimerHandle | None = None
        self._is_looking = False  # a send waits for a lookup
        self._sends_allowed: Allowance
        self._others_allowed: Allowance
        self._memory_allowed: Allowance
        session.on_live = self._go_on
        connection.start_deadline(HELLO_TIMEOUT_S, self._no_hello)

    # from the connection

    def received(self, payload: bytes, number: int | None = None) -> None:
        """Handle one client frame; `number` is its arrival number if it was held."""
        if self._life.is_held:
            self._hold(payload, number)
            return
        try:
            frame = codec.decode_client_frame(payload)
            if self._life.stage is not LIVE:
                self._handle(frame)
            elif type(frame) is frames.Send:
                if self._order.refused:
                    self._order.check(frame.chat, frame.ref, number, self._now())
                memory = cost_of_send(frame, len(payload))
                if self._is_allowed(self._sends_allowed, payload, number, memory):
                    self._send(frame, number=number)
            else:
                memory, cost = cost_of(frame, len(payload)), cost_of_frame(frame)
                if self._is_allowed(self._others_allowed, payload, number, memory, cost):
                    self._handle(frame)
        except codec.NotJson as exc:
            self._session.bye(Close.BAD_PROTOCOL, exc.message)
        except ChatError as exc:
            if self._life.stage is Stage.NEW:
                self._refuse_hello(Close.BAD_PROTOCOL, exc.message)
            else:
                self._refuse(codec.find_request_id(payload), exc)

    def lost(self) -> None:
        """End the session with its connection; pending responses are dropped."""
        self._session.lost()

    def dropped_slow(self, waiting_bytes: int) -> None:
        """Record that the connection is closed as slow."""
        if self._life.stage is LIVE:
            self._desk.slow_clients.closed(self.user, self.device, waiting_bytes)

    @property
    def user(self) -> UserId:
        """The session's user."""
        return self._session.user

    @property
    def device(self) -> DeviceId:
        """The session's device."""
        return self._session.device

    def _hold(self, payload: bytes, number: int | None) -> None:
        """Hold a frame until the session is live and no longer held."""
        if number is None:
            number = self._order.next_number()
        if len(self._early) < EARLY_FRAMES_MAX + SENDS_IN_FLIGHT_MAX:
            loop = asyncio.get_running_loop()
            self._early.append((loop.time(), number, payload))
            if self._held_timer is None:
                wait_s = HELD_TIMEOUT_S
                self._held_timer = loop.call_later(wait_s, self._refuse_late)
        elif self._life.stage is LIVE:
            why = "wait for answers before sending more"
            metrics.RATE_LIMITED.labels("held").inc()
            self._refuse_payload(payload, number, RateLimited(why, retry_after_ms=100))
        else:
            self._session.bye(Close.BAD_PROTOCOL, "wait for welcome before sending more")

    def _refuse_late(self) -> None:
        """Refuse requests held too long; frames that expect no response stay held."""
        self._held_timer = None
        if self._life.stage is Stage.OVER or not self._early:
            return
        loop, wait_s = asyncio.get_running_loop(), HELD_TIMEOUT_S
        if self._life.is_welcomed:  # before that, only `hello` gets a response
            kept: collections.deque[tuple[float, int, bytes]] = collections.deque()
            for since, number, payload in self._early:
                if codec.find_request_id(payload) is None or since + wait_s > loop.time():
                    kept.append((since, number, payload))
                else:
                    error = Unavailable("the session is brought up to date: try again")
                    self._count_refused(error)
                    self._refuse_payload(payload, number, error)
            self._early = kept
        if self._early:
            self._held_timer = loop.call_later(wait_s / 4, self._refuse_late)

    def _is_allowed(
        self, allowance: Allowance, payload: bytes, number: int | None, memory: int, cost: int = 1
    ) -> bool:
        """Spend `cost` tokens and `memory` bytes; if that fails, hold or refuse the frame."""
        if not allowance.take(cost):
            self._wait_for_token(allowance, payload, number, cost)
            return False
        if memory and not self._memory_allowed.take(memory):
            allowance.tokens += cost
            self._wait_for_token(self._memory_allowed, payload, number, memory)
            return False
        return True

    def _wait_for_token(
        self, allowance: Allowance, payload: bytes, number: int | None, cost: int
    ) -> None:
        """Hold the frame and request tokens from Redis, or refuse it if the limit is reached."""
        wait_ms = allowance.wait_ms(cost)
        if wait_ms == 0:
            self._life.is_held = True
            self._hold(payload, number)
            allowance.ask(self._go_on, cost)
            return
        what = TOO_MUCH if allowance is self._memory_allowed else f"many {allowance.key[0]}"
        error = RateLimited(f"too {what}: slow down", retry_after_ms=wait_ms)
        metrics.RATE_LIMITED.labels(allowance.key[0]).inc()
        self._count_refused(error)
        self._refuse_payload(payload, number, error)

    def _go_on(self) -> None:
        """Process the held frames."""
        if self._life.stage is not LIVE or self._is_looking:
            return  # `on_live`, or the end of the pending lookup, calls this again
        self._life.is_held = False
        early, self._early = self._early, collections.deque()
        for _, number, payload in early:
            self.received(payload, number)

    def _no_hello(self) -> None:
        self._session.bye(Close.UNAUTHENTICATED, "no hello in time")

    # frames

    def _handle(self, frame: frames.AnyClientFrame) -> None:
        if self._life.stage is Stage.NEW:
            if not isinstance(frame, frames.Hello):
                self._refuse_hello(Close.UNAUTHENTICATED, "the first frame must be hello")
                return
            self._hello(frame)
            return
        match frame:
            case frames.Hello():
                raise BadRequest("hello: was said already")
            case frames.Send():
                self._send(frame)
            case frames.State():
                self._session.attention.is_foreground = frame.state == "fg"
                self._desk.parts.attendance.turned(self._session.user, self._session.attention)
            case frames.Unwatch():
                self._desk.parts.watching.unwatch(self._session, map(UserId, frame.users))
            case _:
                self._ask(frame)

    def _ask(self, frame: Request | frames.Watch | frames.Auth) -> None:
        """Handle a request in a task; a failure is sent as its response."""
        if self._life.asked >= REQUESTS_IN_FLIGHT_MAX:
            metrics.RATE_LIMITED.labels("requests_in_flight").inc()
            raise RateLimited(
                f"at most {REQUESTS_IN_FLIGHT_MAX} requests may wait for an answer",
                retry_after_ms=200,
            )
        self._life.asked += 1
        request = None if isinstance(frame, frames.Typing | frames.Watch) else frame.id

        async def answer() -> None:
            try:
                found = await self._answer_to(frame)
                if found is not None:
                    self._answer(found)
                if isinstance(frame, frames.Edit | frames.Delete | frames.React):
                    self._report_again(frame.chat, found)
            except ChatError as exc:
                self._refuse(request, exc)
            finally:
                self._life.asked -= 1

        def crashed() -> None:
            self._refuse(request, ChatError("the request failed; it is our fault"))

        self._desk.spawn(answer(), f"request-{self._session.id}", crashed)

    def _report_again(self, chat: str, answer: msgspec.Struct | None) -> None:
        """Report the chat's stored position after a retry, because the first report may be lost.

        A deletion for oneself has no seq in the chat, so its ack has no `mid` and nothing is
        reported.
        """
        if isinstance(answer, frames.Ack) and answer.dup and answer.mid:
            self._session.report_stored({chat: answer.seq})

    async def _answer_to(
        self, frame: Request | frames.Watch | frames.Auth
    ) -> msgspec.Struct | None:
        if isinstance(frame, frames.Watch):
            await self._desk.parts.watching.watch(self._session, map(UserId, frame.users))
            return None
        if isinstance(frame, frames.Auth):
            return await self._renew(frame)
        if isinstance(frame, frames.History):
            return await self._read_history(frame)
        answer = await self._desk.requests.answer(self._session.user, frame)
        if isinstance(answer, frames.TooLong | frames.Reset):  # to a `sync`
            large = self._desk.channels.list_places(self._session)
            return msgspec.structs.replace(answer, large=large)
        return answer

    async def _read_history(self, frame: frames.History) -> msgspec.Struct | None:
        """Return a history page; refuse it if the device's epoch is outdated or changes meanwhile.

        Otherwise, the device would mix the page with entries that Redis lost.
        """
        epoch = self._session.epoch
        page = await self._desk.requests.answer(self._session.user, frame)
        if self._session.awaits_reset or self._session.epoch != epoch:
            raise Unavailable("history: a reset is pending; try again", retry_after_ms=500)
        return page

    def _refuse(self, request: int | None, error: ChatError) -> None:
        """Send an error; a frame without an id gets one only if it is invalid."""
        if error.code == "internal":
            log.error("session.internal_error", session=self._session.id, error=error.message)
        if request is not None or error.code == BadRequest.code:
            self._connection.send_text(codec.encode_error(error, request))

    def _refuse_payload(self, payload: bytes, number: int | None, error: ChatError) -> None:
        """Refuse a frame temporarily; later sends to the same chat must wait for a refused send."""
        send = codec.find_send(payload)
        if send is not None:
            self._order.refuse(send.chat, send.ref, number, self._retry_at(error))
        self._refuse(codec.find_request_id(payload), error)

    def _retry_at(self, error: ChatError) -> float:
        return self._now() + (error.retry_after_ms or 0) / 1000

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _answer(self, frame: msgspec.Struct) -> None:
        self._connection.send_text(codec.encode(frame))

    # hello

    def _hello(self, frame: frames.Hello) -> None:
        claims = None
        try:
            claims = self._desk.parts.entrance.verify(frame.token)
        except UnknownKey:
            pass  # `_open` fetches the key
        except ChatError as exc:
            self._refuse_hello(Close.UNAUTHENTICATED, exc.message)
            return
        self._connection.cancel_deadline()
        self._life.stage, self._life.is_held = Stage.OPENING, True

        def crashed() -> None:
            self._session.bye(Close.OVERLOADED, "hello failed; it is our fault", 1000)

        self._desk.spawn(self._open(frame, claims), f"hello-{self._session.id}", crashed)

    def _take_place(self, claims: Claims, frame: frames.Hello) -> None:
        self._desk.authenticated(self._connection)
        self._session.user = claims.user
        self._session.device = DeviceId(frame.device)
        self._session.standing = SessionAuth(self._desk, self._session, claims)
        parts = self._desk.parts
        self._session.attention = parts.attendance.new_attention(is_foreground=frame.state == "fg")
        self._sends_allowed = parts.limits.find("sends", self._session.user)
        self._others_allowed = parts.limits.find("requests", self._session.user)
        self._memory_allowed = parts.limits.find("memory", self._session.user)
        self._desk.places.take(self._session)

    def _refuse_hello(self, code: int, reason: str) -> None:
        self._desk.admission.failed(self._connection.peer)
        self._session.bye(code, reason)

    async def _open(self, frame: frames.Hello, claims: Claims | None) -> None:
        entrance = self._desk.parts.entrance
        try:
            if claims is None:
                claims = await entrance.authenticate(frame.token)
            else:
                # Checked first: a revoked token must not replace the device's current session.
                await entrance.check(claims)
            if not self._session.is_live:
                return
            self._take_place(claims, frame)
            state, _ = await asyncio.gather(
                self._session.announce(), self._desk.places.claim([self._session])
            )
            if self._life.stage is not Stage.OPENING:
                return
            await self._welcome(state, frame)
        except (Banned, Unauthenticated) as exc:
            self._refuse_hello(close_code_of(exc), exc.message)
        except ChatError as exc:
            meaning = CODES[exc.code]
            self._session.bye(meaning.close or Close.OVERLOADED, exc.message, exc.retry_after_ms)
            return

    async def _welcome(self, state: InboxState, frame: frames.Hello) -> None:
        assert self._session.standing is not None
        coverage, start = find_start(frame.cursor, state)
        is_known = frame.cursor is not None and coverage is Coverage.CURRENT
        known = frame.large if is_known else None
        entry, _ = await asyncio.gather(
            self._desk.channels.open_for(self._session.user, start, known),
            self._session.standing.look(),
        )
        self._answer(
            make_welcome(
                self._session.id, self._session.user, state, entry.large, self._desk.all_settings
            )
        )
        self._life.is_welcomed = True
        if coverage is not Coverage.CURRENT and not state.is_known:
            assert frame.cursor is not None
            self._session.recover_from(Epoch(frame.cursor.epoch), Seq(frame.cursor.seq))
            return
        if coverage is not Coverage.CURRENT:
            self._answer(
                await self._desk.requests.get_snapshot(
                    self._session.user, state, coverage, None, entry.large
                )
            )
        self._session.go_live(state.epoch, start, state.head)
        self._session.enter(entry, is_loaded=state.is_known)
        if frame.unstored and frame.cursor is not None and frame.cursor.epoch == state.epoch:
            self._session.report_stored(frame.unstored)

    # sending

    def _send(
        self,
        frame: frames.Send,
        files: Sequence[frames.Attachment] = (),
        *,
        is_looked_up: bool = False,
        number: int | None = None,
    ) -> None:
        if self._life.sending >= SENDS_IN_FLIGHT_MAX:
            metrics.RATE_LIMITED.labels("sends_in_flight").inc()
            why = f"at most {SENDS_IN_FLIGHT_MAX} sends may wait for an ack"
            self._refuse_send(frame, number, RateLimited(why, retry_after_ms=100))
            return
        if not is_looked_up and (frame.attachments or is_session_chat(frame.chat)):
            self._look_up(frame, self._order.next_number() if number is None else number)
            return
        try:
            self._desk.parts.messaging.submit(self._session.user, frame, self, files)
        except ChatError as exc:
            self._count_refused(exc)
            self._refuse_send(frame, number, exc)
        else:
            self._life.sending += 1
            if self._order.refused:
                self._order.settle(frame.chat, frame.ref, self._now())
            if not self._session.attention.is_fresh:
                self._desk.parts.attendance.turned(self._session.user, self._session.attention)

    def _refuse_send(self, frame: frames.Send, number: int | None, error: ChatError) -> None:
        """Refuse a send that was not accepted."""
        if error.temporary:
            self._order.refuse(frame.chat, frame.ref, number, self._retry_at(error))
        else:
            self._order.settle(frame.chat, frame.ref, self._now())
        self._refuse(frame.id, error)

    def _look_up(self, frame: frames.Send, number: int) -> None:
        """Send a message with attachments, or to a companion, after a lookup in Redis.

        Frames that arrive meanwhile are held, to keep their order.
        """
        self._life.asked += 1
        self._life.is_held = self._is_looking = True
        parts, chat = self._desk.parts, ChatId(frame.chat)

        async def look() -> None:
            CALLER.set(self._session.user)
            try:
                files: Sequence[frames.Attachment] = ()
                if parts.asking.is_asked(chat):
                    await parts.asking.admit(self._session.user, frame)
                if frame.attachments:
                    files = await parts.sendable.take(self._session.user, chat, frame.attachments)
                self._send(frame, files, is_looked_up=True, number=number)
            except ChatError as exc:
                self._count_refused(exc)
                self._refuse_send(frame, number, exc)
            finally:
                self._life.asked -= 1
                self._is_looking = False
                self._go_on()

        def crashed() -> None:
            self._refuse(frame.id, ChatError("the request failed; it is our fault"))

        self._desk.spawn(look(), f"look-{self._session.id}", crashed)

    def acked(self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        """Send the ack of a committed message."""
        if draft.is_stored_wanted:
            self._ack_when_stored(draft, seq, ts, mid, dup=dup)
            return
        self._life.sending -= 1
        tally = self._desk.tally
        tally.acked += 1
        if dup:
            tally.dups += 1
        self._connection.send_text(
            codec.encode_ack(draft.request_id, draft.ref, mid, seq, ts, dup=dup, durability="hot")
        )
        if dup:
            self._session.report_stored({draft.chat: seq})  # the first report may be long past

    def refused(self, draft: PendingDraft, error: ChatError) -> None:
        """Send the error of a message that was not committed, or whose outcome is unknown."""
        self._life.sending -= 1
        self._count_refused(error)
        self._refuse(draft.request_id, error)

    def _count_refused(self, error: ChatError) -> None:
        refused = self._desk.tally.refused
        refused[error.code] = refused.get(error.code, 0) + 1

    def _ack_when_stored(
        self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool
    ) -> None:
        def on_stored() -> None:
            self._life.sending -= 1
            self._desk.tally.acked += 1
            self._desk.tally.stored += 1
            self._connection.send_text(
                codec.encode_ack(
                    draft.request_id, draft.ref, mid, seq, ts, dup=dup, durability="stored"
                )
            )

        def on_timeout() -> None:
            why = "not stored in time: the message may still appear; the same ref tells"
            self.refused(draft, Unavailable(why))

        if not self._desk.stored.add(draft.chat, seq, on_stored, on_timeout):
            self.refused(draft, Unavailable("too many sends wait to be stored"))
            return
        self._desk.spawn(self._look_for_stored(draft.chat), f"stored-{self._session.id}")

    async def _look_for_stored(self, chat: ChatId) -> None:
        """Check the stored position: the worker may have been faster, or the send is a retry."""
        try:
            self._desk.stored.reached(chat, await self._desk.parts.log.get_stored(chat))
        except ChatError as exc:
            log.warning("session.stored_unknown", chat=chat, error=exc.message)

    async def _renew(self, frame: frames.Auth) -> frames.Ok | None:
        """Renew the session with a newer token."""
        assert self._session.standing is not None
        try:
            await self._session.standing.renew(frame.token)
        except Unauthenticated:
            self._desk.admission.failed(self._connection.peer)
            raise
        return frames.Ok(frame.id)
