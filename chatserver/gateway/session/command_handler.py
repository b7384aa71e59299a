"""Command handler for client frames: rate limits, requests, sends and acks.

Each request gets exactly one response with its id: a result or an `error`. So that frames are
processed in order, they are held while one of these is pending: `hello`, a snapshot, a request to
Redis for more rate limit tokens, or a lookup for an earlier send. Requests held too long get the
error `unavailable` (guarantee P9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from chatserver.domain.access.caller import CALLER, RequestCaller
from chatserver.domain.client_addresses import get_networks, get_subject
from chatserver.domain.companion_ids import is_session_chat
from chatserver.domain.ids import ChatId, DeviceId, Seq, Ts, UserId
from chatserver.domain.messages import PendingDraft
from chatserver.errors import BadRequest, ChatError, RateLimited, Unauthenticated, Unavailable
from chatserver.gateway.session.send_order import SendOrder
from chatserver.gateway.session.session import Session
from chatserver.gateway.session.session_limits import (
    HELD_FRAMES_MAX,
    HELD_TIMEOUT_S,
    REQUESTS_IN_FLIGHT_MAX,
    SENDS_IN_FLIGHT_MAX,
)
from chatserver.gateway.session.session_opening import HELLO_TIMEOUT_S, SessionOpening
from chatserver.gateway.session.session_registration import SessionRegistration
from chatserver.gateway.session.shared_session_context import SessionContext
from chatserver.gateway.session.state_machine import SessionStage
from chatserver.gateway.transport.admission_control import Admission
from chatserver.gateway.transport.connection import Connection
from chatserver.hot.users.token_buckets import TOO_MUCH, Allowance
from chatserver.protocol import codec, frames
from chatserver.protocol.error_codes import Close
from chatserver.protocol.redis_memory_costs import compute_send_cost
from chatserver.requests.operation import Reply
from chatserver.requests.registry import get_decoder, get_operation
from chatserver.service.messaging.stored_waits import NOT_STORED
from chatserver.telemetry import metrics

log = structlog.get_logger()

LIVE = SessionStage.LIVE  # used for every frame; a global is faster than an enum attribute


class CommandHandler:
    """Creates one session and handles its frames."""

    __slots__ = (
        "_admission",
        "_connection",
        "_context",
        "_decoder",
        "_held_frames",
        "_held_timer",
        "_memory_allowed",
        "_opening",
        "_order",
        "_others_allowed",
        "_sends_allowed",
        "_state",
        "session",
    )

    def __init__(
        self,
        *,
        context: SessionContext,
        connection: Connection,
        directory: SessionRegistration,
        admission: Admission,
        on_authenticated: Callable[[Connection], None],
        on_end: Callable[[Session], None],
    ) -> None:
        self._context = context
        self._decoder = get_decoder()
        self._connection = connection
        self._admission = admission
        self.session = Session(
            context=context,
            connection=connection,
            on_live=self._process_held,
            on_end=on_end,
        )
        self._opening = SessionOpening(
            context=context,
            connection=connection,
            session=self.session,
            directory=directory,
            admission=admission,
            on_authenticated=on_authenticated,
            on_registered=self._set_limits,
        )
        self._state = self.session.state
        # Held frames: (loop time when held, arrival number, payload).
        self._held_frames: list[tuple[float, int, bytes]] = []
        self._order = SendOrder()
        self._held_timer: asyncio.TimerHandle | None = None
        self._sends_allowed: Allowance
        self._others_allowed: Allowance
        self._memory_allowed: Allowance
        connection.start_deadline(HELLO_TIMEOUT_S, self._close_without_hello)

    # from the connection

    def handle_message(self, payload: bytes, number: int | None = None) -> None:
        """Handle one client frame. `number` is its arrival number if it had to wait."""
        if self._state.is_held:
            self._hold(payload, number)
            return
        try:
            frame = codec.decode_client_frame(payload, self._decoder)
            if self._state.stage is not LIVE:
                self._handle(frame)
            elif type(frame) is frames.Send:
                if self._order.refused:
                    self._order.check(frame.chat, frame.ref, number, self._now())
                memory = compute_send_cost(frame, len(payload))
                if self._is_allowed(self._sends_allowed, payload, number, memory):
                    self._send(frame, number=number)
            else:
                operation = get_operation(frame)
                memory = operation.compute_memory(frame, len(payload))
                cost = operation.compute_cost(frame)
                allowance, can_owe = self._others_allowed, operation.is_protective
                if self._is_allowed(allowance, payload, number, memory, cost, can_owe=can_owe):
                    self._handle(frame)
        except codec.NotJson as invalid:
            self.session.close(Close.BAD_PROTOCOL, invalid.message)
        except ChatError as exc:
            if self._state.stage is SessionStage.NEW:
                self._opening.refuse(Close.BAD_PROTOCOL, exc.public_message)
            else:
                self._refuse(codec.find_request_id(payload), exc, codec.find_ref(payload))

    def handle_disconnect(self) -> None:
        self.session.end()

    def record_slow_close(self, waiting_bytes: int) -> None:
        if self._state.stage is LIVE:
            self._context.slow_clients.record_close(self.user, self.device, waiting_bytes)

    @property
    def user(self) -> UserId:
        return self.session.user

    @property
    def device(self) -> DeviceId:
        return self.session.device

    def _hold(self, payload: bytes, number: int | None) -> None:
        """Hold a frame until the session can process it."""
        if number is None:
            number = self._order.next_number()
        if len(self._held_frames) < HELD_FRAMES_MAX + SENDS_IN_FLIGHT_MAX:
            loop = asyncio.get_running_loop()
            self._held_frames.append((loop.time(), number, payload))
            if self._held_timer is None:
                self._held_timer = loop.call_later(HELD_TIMEOUT_S, self._refuse_late)
        elif self._state.stage is LIVE:
            reason = "too many frames are waiting; wait for responses"
            metrics.RATE_LIMITED.labels("held").inc()
            self._refuse_payload(payload, number, RateLimited(reason, retry_after_ms=100))
        else:
            self.session.close(
                Close.BAD_PROTOCOL, "too many frames before welcome; wait for welcome"
            )

    def _refuse_late(self) -> None:
        """Refuse requests that have waited too long; frames without a request id keep waiting."""
        self._held_timer = None
        if self._state.stage is SessionStage.CLOSED or not self._held_frames:
            return
        loop, wait_s = asyncio.get_running_loop(), HELD_TIMEOUT_S
        if self._state.is_welcomed:  # before `welcome`, only `hello` gets a response
            remaining: list[tuple[float, int, bytes]] = []
            for since, number, payload in self._held_frames:
                if codec.find_request_id(payload) is None or since + wait_s > loop.time():
                    remaining.append((since, number, payload))
                else:
                    error = Unavailable("the session is still synchronizing; try again")
                    self._count_refused(error)
                    self._refuse_payload(payload, number, error)
            self._held_frames = remaining
        if self._held_frames:
            self._held_timer = loop.call_later(wait_s / 4, self._refuse_late)

    def _is_allowed(
        self,
        allowance: Allowance,
        payload: bytes,
        number: int | None,
        memory: int,
        cost: int = 1,
        *,
        can_owe: bool = False,
    ) -> bool:
        """Spend `cost` tokens and `memory` bytes; with too few left, defer or refuse the frame.

        With `can_owe`, the balance of memory may become negative (`Allowance.owe`), and that of a
        new account's requests, because other accounts of its network can spend their tokens.
        """
        is_owed = can_owe and bool(allowance.networks) and allowance.owe(cost)
        if not is_owed and not allowance.spend(cost):
            self._wait_for_token(allowance, payload, number, cost)
            return False
        if memory and not self._memory_allowed.spend(memory):
            if can_owe and self._memory_allowed.owe(memory):
                return True
            allowance.tokens += cost
            self._wait_for_token(self._memory_allowed, payload, number, memory)
            return False
        return True

    def _wait_for_token(
        self, allowance: Allowance, payload: bytes, number: int | None, cost: int
    ) -> None:
        """Defer the frame until Redis grants tokens; refuse it if the user is at the limit."""
        if allowance.is_removed:
            self._set_limits()
            self.handle_message(payload, number)
        elif (wait_ms := allowance.wait_ms(cost)) == 0:
            self._state.hold()
            self._hold(payload, number)
            allowance.request(self._process_held, cost)
        else:
            name = TOO_MUCH if allowance is self._memory_allowed else f"many {allowance.key[0]}"
            error = allowance.make_refusal(name, wait_ms)
            self._count_refused(error)
            self._refuse_payload(payload, number, error)

    def _process_held(self) -> None:
        if not self._state.release():
            # The session is not live, or a send waits for a Redis lookup. This method is called
            # again when the session goes live and when the lookup ends.
            return
        batch, self._held_frames = self._held_frames, []
        for _, number, payload in batch:
            self.handle_message(payload, number)

    def _close_without_hello(self) -> None:
        self.session.close(Close.UNAUTHENTICATED, "no hello received in time")

    # frames

    def _handle(self, frame: frames.ClientFrame) -> None:
        if self._state.stage is SessionStage.NEW:
            if not isinstance(frame, frames.Hello):
                self._opening.refuse(Close.UNAUTHENTICATED, "the first frame must be hello")
                return
            self._opening.start(frame)
            return
        match frame:
            case frames.Hello():
                raise BadRequest("hello: already received; send it once per connection")
            case frames.Send():
                self._send(frame)
            case frames.State():
                self.session.activity.is_foreground = frame.state == "fg"
                self._context.container.user_presence.record_activity(
                    self.session.user, self.session.activity
                )
            case frames.Unwatch():
                self._context.container.presence_subscriptions.unsubscribe(
                    self.session, map(UserId, frame.users)
                )
            case _:
                self._start_request(frame)

    def _start_request(self, frame: frames.ClientFrame) -> None:
        """Handle a request in a task. If it fails, the response is an error."""
        if self._state.requests_pending >= REQUESTS_IN_FLIGHT_MAX:
            metrics.RATE_LIMITED.labels("requests_in_flight").inc()
            raise RateLimited(
                f"at most {REQUESTS_IN_FLIGHT_MAX} requests may be in flight; wait for responses",
                retry_after_ms=200,
            )
        self._state.requests_pending += 1
        request: int | None = getattr(frame, "id", None)
        ref: str | None = getattr(frame, "ref", None)

        async def run() -> None:
            CALLER.set(self.session.caller)
            try:
                result = await self._run_request(frame)
                if result is not None:
                    self._connection.send_text(codec.encode(result))
                self.session.report_stored_again(frame, result)
            except ChatError as exc:
                self._refuse(request, exc, ref)
            finally:
                self._state.requests_pending -= 1

        def on_crash() -> None:
            self._refuse(request, ChatError("internal error; the request failed"), ref)

        self._context.tasks.spawn(run(), f"request-{self.session.id}", on_crash)

    async def _run_request(self, frame: frames.ClientFrame) -> Reply:
        if isinstance(frame, frames.Watch):
            await self._context.container.presence_subscriptions.subscribe(
                self.session, map(UserId, frame.users)
            )
            return None
        if isinstance(frame, frames.Auth):
            return await self._renew(frame)
        if isinstance(frame, frames.History):
            return await self._read_history(frame)
        response = await self._context.requests.handle(self.session.caller, frame)
        if isinstance(response, frames.TooLong | frames.Reset):  # the response to `sync`
            large = self._context.channels.list_positions(self.session)
            return msgspec.structs.replace(response, large=large)
        return response

    async def _read_history(self, frame: frames.History) -> Reply:
        """Return a history page, unless the epoch changes during the read.

        After a change, the device would mix the page with entries that Redis has lost.

        Raises:
            Unavailable: the device's epoch is outdated, so a `reset` will be sent.
        """
        epoch = self.session.epoch
        page = await self._context.requests.handle(self.session.caller, frame)
        if self.session.awaits_reset or self.session.epoch != epoch:
            raise Unavailable(
                "history: the epoch has changed; try again after `reset`", retry_after_ms=500
            )
        return page

    def _refuse(self, request: int | None, error: ChatError, ref: str | None = None) -> None:
        """Send an error. For a frame without a request id, send only the error `bad_request`."""
        if error.code == "internal":
            log.error("session.internal_error", session=self.session.id, error=error.message)
        if request is not None or error.code == BadRequest.code:
            self._connection.send_text(codec.encode_error(error, request, ref))

    def _refuse_payload(self, payload: bytes, number: int | None, error: ChatError) -> None:
        """Refuse a frame temporarily. After a refused send, later sends to the chat must wait."""
        send = codec.find_send(payload)
        if send is not None:
            self._order.refuse(send.chat, send.ref, number, self._retry_at(error))
        self._refuse(codec.find_request_id(payload), error, codec.find_ref(payload))

    def _retry_at(self, error: ChatError) -> float:
        return self._now() + (error.retry_after_ms or 0) / 1000

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _set_limits(self) -> None:
        limits, user = self._context.container.limits, self.session.user
        auth = self.session.auth
        is_new = auth is not None and auth.is_new_account
        networks = get_networks(get_subject(self._connection.peer)) if is_new else ()
        self.session.caller = caller = RequestCaller(user, networks)
        self._sends_allowed = limits.find_for_caller("sends", caller)
        self._others_allowed = limits.find_for_caller("requests", caller)
        self._memory_allowed = limits.find_for_caller("memory", caller)

    # sending

    def _send(
        self,
        frame: frames.Send,
        files: Sequence[frames.Attachment] = (),
        *,
        is_looked_up: bool = False,
        number: int | None = None,
    ) -> None:
        if self._state.sends_unacked >= SENDS_IN_FLIGHT_MAX:
            metrics.RATE_LIMITED.labels("sends_in_flight").inc()
            reason = f"at most {SENDS_IN_FLIGHT_MAX} sends may be in flight"
            self._refuse_send(frame, number, RateLimited(reason, retry_after_ms=100))
            return
        if not is_looked_up and (frame.attachments or is_session_chat(frame.chat)):
            self._send_after_lookup(frame, self._order.next_number() if number is None else number)
            return
        try:
            self._context.container.messaging.submit(self.session.user, frame, self, files)
        except ChatError as exc:
            self._count_refused(exc)
            self._refuse_send(frame, number, exc)
        else:
            self._state.sends_unacked += 1
            if self._order.refused:
                self._order.remove(frame.chat, frame.ref, self._now())
            if not self.session.activity.is_fresh:
                self._context.container.user_presence.record_activity(
                    self.session.user, self.session.activity
                )

    def _refuse_send(self, frame: frames.Send, number: int | None, error: ChatError) -> None:
        """Refuse a send before it is committed."""
        if error.temporary:
            self._order.refuse(frame.chat, frame.ref, number, self._retry_at(error))
        else:
            self._order.remove(frame.chat, frame.ref, self._now())
        self._refuse(frame.id, error, frame.ref)

    def _send_after_lookup(self, frame: frames.Send, number: int) -> None:
        """Send a message that needs a Redis lookup: with attachments, or to a companion.

        Frames that arrive during the lookup are held.
        """
        self._state.requests_pending += 1
        self._state.is_looking_up = True
        self._state.hold()
        container, chat = self._context.container, ChatId(frame.chat)

        async def send() -> None:
            CALLER.set(self.session.caller)
            try:
                files: Sequence[frames.Attachment] = ()
                if is_session_chat(chat):
                    await container.check_companion_send(self.session.user, frame)
                if frame.attachments:
                    files = await container.resolve_files(
                        self.session.user, chat, frame.attachments
                    )
                self._send(frame, files, is_looked_up=True, number=number)
            except ChatError as exc:
                self._count_refused(exc)
                self._refuse_send(frame, number, exc)
            finally:
                self._state.requests_pending -= 1
                self._state.is_looking_up = False
                self._process_held()

        def on_crash() -> None:
            self._refuse(frame.id, ChatError("internal error; the request failed"), frame.ref)

        self._context.tasks.spawn(send(), f"send-{self.session.id}", on_crash)

    def on_acked(self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool) -> None:
        if draft.is_stored_wanted:
            self._wait_until_stored(draft, seq, ts, mid, dup=dup)
            return
        self._state.sends_unacked -= 1
        counters = self._context.counters
        counters.acked += 1
        if dup:
            counters.dups += 1
        self._connection.send_text(
            codec.encode_ack(draft.request_id, draft.ref, mid, seq, ts, dup=dup, durability="hot")
        )
        if dup:
            self.session.report_stored({draft.chat: seq})  # the first `stored` may have been lost

    def get_caller(self) -> RequestCaller:
        """Return the session's user."""
        return self.session.caller

    def on_refused(self, request_id: int, ref: str, error: ChatError) -> None:
        """Send the error for a message that was not committed, or whose outcome is unknown."""
        self._state.sends_unacked -= 1
        self._count_refused(error)
        self._refuse(request_id, error, ref)

    def _count_refused(self, error: ChatError) -> None:
        refused = self._context.counters.refused
        refused[error.code] = refused.get(error.code, 0) + 1

    def _wait_until_stored(
        self, draft: PendingDraft, seq: Seq, ts: Ts, mid: str, *, dup: bool
    ) -> None:
        def on_stored() -> None:
            self._state.sends_unacked -= 1
            self._context.counters.acked += 1
            self._context.counters.stored += 1
            self._connection.send_text(
                codec.encode_ack(
                    draft.request_id, draft.ref, mid, seq, ts, dup=dup, durability="stored"
                )
            )

        def on_timeout() -> None:
            self.on_refused(draft.request_id, draft.ref, Unavailable(NOT_STORED))

        if not self._context.stored_waits.add(draft.chat, seq, on_stored, on_timeout):
            error = Unavailable("too many sends are waiting to be stored; try again")
            self.on_refused(draft.request_id, draft.ref, error)
            return
        check = self._context.stored_waits.check(draft.chat, self._context.container.chat_log)
        self._context.tasks.spawn(check, f"stored-{self.session.id}")

    async def _renew(self, frame: frames.Auth) -> frames.Ok | None:
        assert self.session.auth is not None
        try:
            await self.session.auth.renew(frame.token)
        except Unauthenticated:
            self._admission.charge_failure(self._connection.peer)
            raise
        self._set_limits()
        return frames.Ok(frame.id)
