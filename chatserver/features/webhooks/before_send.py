"""Before-send webhook: the host application checks each message before it is committed.

::

    send ──► request, concurrently ──► verdict ──► in the order of `send` ──► messaging
                                                   (per sender and chat)

If there is no valid verdict in time, `before_send_policy` decides: ``open`` accepts the message,
and ``closed`` rejects it with the temporary error `unavailable`. After several consecutive
failures, the circuit breaker skips the webhook for a while, so that an unavailable endpoint delays
few messages.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Protocol

import attrs
import msgspec
import structlog

from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId, Ref, UserId
from chatserver.domain.messages import SendListener
from chatserver.domain.text_validation import WIDEST, BodyBounds, parse_body, parse_caption
from chatserver.errors import ChatError, ClientError, Forbidden, Overloaded, Unavailable
from chatserver.features.webhooks.settings import Webhooks
from chatserver.hot.chats.membership import HotMembership
from chatserver.protocol import frames
from chatserver.protocol import webhook_messages as messages
from chatserver.service.messaging.message_sender import MessageSender
from chatserver.telemetry import metrics

log = structlog.get_logger()

BEFORE_SEND_IN_FLIGHT_MAX = 2_000  # maximum messages per process that wait for a verdict
BREAKER_FAILURES = 5  # number of failures in a row that open the circuit breaker
BREAKER_S = 10.0  # an open circuit breaker skips the webhook for this time

REFUSED = "body: this message is not allowed"


class VerdictSource(Protocol):
    """Source of verdicts. The API calls the webhook; gateways call a worker by RPC.

    Failed calls are not retried. The caller sets the deadline.
    """

    async def request_verdict(self, question: messages.BeforeSend) -> messages.Verdict:
        """Return the verdict. Raises ChatError if the request fails."""


@attrs.define(eq=False, repr=False, kw_only=True)
class BeforeSendCheck:
    """Requests verdicts; if a request fails, applies `before_send_policy` (accept or reject).

    One instance per process.
    """

    _verdicts: VerdictSource
    _references: HotMembership
    _settings: Webhooks
    _clock: Clock
    body_bounds: BodyBounds = WIDEST
    _failures: int = attrs.field(default=0, init=False)
    _closed_until: float = attrs.field(default=float("-inf"), init=False)

    async def check(self, question: messages.BeforeSend) -> str:
        """Return the text to commit.

        Guarantees:
            Bounded by `before_send_timeout_s`.
            A retry of a committed message is accepted with its text unchanged.

        Raises:
            Forbidden: the host application rejects the message.
            Unavailable: there is no verdict, and the policy is ``closed``.
        """
        verdict = await self._find_verdict(question)
        if verdict is None:
            if self._settings.before_send_policy == "open":
                return question.body
            raise Unavailable("the before-send check is not available; try again")
        if verdict.action == "refuse":
            chat, sender, ref = ChatId(question.chat), UserId(question.sender), Ref(question.ref)
            if await self._references.find_digest(chat, sender, ref) is not None:
                return question.body  # a retry of a committed message
            raise Forbidden(f"body: {verdict.why}" if verdict.why else REFUSED)
        if verdict.action == "change" and verdict.body is not None:
            return verdict.body
        return question.body

    async def check_edit(self, user: UserId, frame: frames.Edit) -> frames.Edit:
        """Check an edit and return it with the text to commit; see `check`."""
        body = parse_body(frame.body, self.body_bounds)
        question = messages.BeforeSend(frame.chat, user, frame.ref, "edit", body, target=frame.seq)
        return msgspec.structs.replace(frame, body=await self.check(question))

    async def _find_verdict(self, question: messages.BeforeSend) -> messages.Verdict | None:
        """Return the verdict; None if the webhook failed or is skipped."""
        if self._clock.monotonic() < self._closed_until:
            metrics.BEFORE_SEND_VERDICTS.labels("skipped").inc()
            return None
        try:
            async with asyncio.timeout(self._settings.before_send_timeout_s):
                verdict = await self._verdicts.request_verdict(question)
            if verdict.action == "change":
                parse_body(verdict.body or "", self.body_bounds)
        except (ChatError, TimeoutError) as exc:
            self._record_failure(exc)
            return None
        self._failures = 0
        metrics.BEFORE_SEND_VERDICTS.labels(verdict.action).inc()
        return verdict

    def _record_failure(self, error: Exception) -> None:
        metrics.BEFORE_SEND_VERDICTS.labels("failed").inc()
        self._failures += 1
        log.warning("before_send.failed", error=str(error) or "timed_out")
        if self._failures >= BREAKER_FAILURES:
            self._failures = 0
            self._closed_until = self._clock.monotonic() + BREAKER_S
            log.error("before_send.skipped", for_s=BREAKER_S)


@attrs.define(eq=False, repr=False)
class _UncheckedMessage:
    """A message that waits for its verdict, then for the sender's earlier messages in the chat."""

    messaging: MessageSender
    frame: frames.Send
    listener: SendListener
    attachments: Sequence[frames.Attachment]
    outcome: str | ChatError | None = None


class BeforeSendQueue:
    """Queue for up to `in_flight_max` messages that wait for a verdict."""

    def __init__(
        self, before_send: BeforeSendCheck, in_flight_max: int = BEFORE_SEND_IN_FLIGHT_MAX
    ) -> None:
        self._before_send = before_send
        self._in_flight_max = in_flight_max
        self._queues: dict[tuple[ChatId, UserId], collections.deque[_UncheckedMessage]] = {}
        self._in_flight = 0

    def submit(
        self,
        messaging: MessageSender,
        sender: UserId,
        frame: frames.Send,
        listener: SendListener,
        attachments: Sequence[frames.Attachment],
    ) -> None:
        """Check a message, then send it; see `SendInterceptor.submit`."""
        parse = parse_caption if attachments else parse_body
        frame = msgspec.structs.replace(frame, body=parse(frame.body, messaging.body_bounds))
        if self._in_flight >= self._in_flight_max:
            raise Overloaded("too many messages are being checked; slow down", retry_after_ms=500)
        self._in_flight += 1
        waiting = _UncheckedMessage(messaging, frame, listener, attachments)
        queue = self._queues.setdefault((ChatId(frame.chat), sender), collections.deque())
        queue.append(waiting)
        messaging.spawn(self._check_and_send(sender, waiting), "before-send")

    async def _check_and_send(self, sender: UserId, waiting: _UncheckedMessage) -> None:
        frame = waiting.frame
        try:
            waiting.outcome = await self._before_send.check(
                messages.BeforeSend(
                    chat=frame.chat,
                    sender=sender,
                    ref=frame.ref,
                    kind=frame.kind,
                    body=frame.body,
                    reply_to=frame.reply_to,
                    attachments=[attachment.id for attachment in waiting.attachments],
                )
            )
        except ChatError as exc:
            waiting.outcome = exc
        finally:
            if waiting.outcome is None:  # The check was cancelled or crashed.
                waiting.outcome = Unavailable("the message was not checked; try again")
            self._send_ready((ChatId(frame.chat), sender))

    def _send_ready(self, key: tuple[ChatId, UserId]) -> None:
        """Send messages in order, up to the first one that still waits for its verdict."""
        queue = self._queues[key]
        while queue and queue[0].outcome is not None:
            waiting = queue.popleft()
            self._in_flight -= 1
            self._send_checked(key[1], waiting)
        if not queue:
            del self._queues[key]

    def _send_checked(self, sender: UserId, waiting: _UncheckedMessage) -> None:
        frame, outcome = waiting.frame, waiting.outcome
        if isinstance(outcome, str):
            original = None if outcome == frame.body else frame.body
            changed = msgspec.structs.replace(frame, body=outcome)
            try:
                waiting.messaging.accept(
                    sender, changed, waiting.listener, waiting.attachments, original
                )
            except ChatError as exc:
                outcome = exc
        if isinstance(outcome, ChatError):
            if isinstance(outcome, ClientError):
                log.info("before_send.refused", chat=frame.chat, sender=sender)
            waiting.listener.on_refused(frame.id, frame.ref, outcome)
