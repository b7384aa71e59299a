"""HTTP client for the webhooks of the host application. Requests are signed.

``Chat-Signature: t=<seconds since 1970>,v1=<hex HMAC-SHA256 of "<t>." and the body>``. The
signature includes the time, so receivers can reject old requests to prevent replay attacks.
"""

from __future__ import annotations

import hashlib
import hmac

import attrs
import msgspec

from chatserver.domain.clock import Clock
from chatserver.errors import Unavailable
from chatserver.outbound.http_client import Answer, HttpClient
from chatserver.protocol import webhook_messages as messages

EVENT_ANSWER_BYTES_MAX = 4096


@attrs.define(eq=False, repr=False, kw_only=True)
class Webhook:
    """One webhook URL of the host application."""

    _outbound: HttpClient
    _url: str
    _secret: str
    _timeout_s: float
    _clock: Clock

    async def request_verdict(self, request: messages.BeforeSend) -> messages.Verdict:
        """Request a verdict on a message.

        Raises:
            BadRequest: outbound requests to the URL are not allowed.
            Unavailable: there was no valid response in time.
        """
        response = await self.call(
            messages.encode(request), "before_send", bytes_max=messages.ANSWER_BYTES_MAX
        )
        if not response.is_ok:
            raise Unavailable(f"before_send returned status {response.status}")
        try:
            return messages.decode_verdict(response.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise Unavailable(
                f"before_send returned an invalid response: {exc}",
                public="the before-send webhook failed; try again",
            ) from exc

    async def call(
        self, body: bytes, name: str, event_id: str = "", bytes_max: int = EVENT_ANSWER_BYTES_MAX
    ) -> Answer:
        """Send an event or a request; return the response, of at most `bytes_max`.

        `event_id` is the idempotency key.

        Guarantees:
            The request is not retried.

        Raises:
            BadRequest: outbound requests to the URL are not allowed.
            Unavailable: there was no response in time, or the response is too long. The event may
                have been delivered.
        """
        headers = {
            "Content-Type": "application/json",
            "Chat-Event": name,
            HEADER: sign(self._secret.encode(), self._clock.time(), body),
        }
        if event_id:
            headers["Chat-Event-Id"] = headers["Idempotency-Key"] = event_id
        return await self._outbound.post(
            self._url,
            body=body,
            headers=headers,
            timeout_s=self._timeout_s,
            response_bytes_max=bytes_max,
        )


HEADER = "Chat-Signature"
AGE_S_MAX = 300  # receivers reject older signatures


def sign(secret: bytes, now: float, body: bytes) -> str:
    """Return the value of the signature header for a body."""
    return f"t={int(now)},v1={_digest(secret, int(now), body)}"


def is_signed(secret: bytes, header: str, body: bytes, now: float, age_s: int = AGE_S_MAX) -> bool:
    """Return whether `header` is a valid signature of `body`, at most `age_s` old.

    For receivers of webhooks, see docs/webhooks.md.

    Guarantees:
        Signatures are compared in constant time.
    """
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    time, signature = parts.get("t", ""), parts.get("v1", "")
    if not (time.isascii() and time.isdigit() and len(time) <= 12 and signature.isascii()):
        return False
    expected = _digest(secret, int(time), body)
    return hmac.compare_digest(expected, signature) and abs(now - int(time)) <= age_s


def _digest(secret: bytes, time: int, body: bytes) -> str:
    return hmac.new(secret, b"%d.%b" % (time, body), hashlib.sha256).hexdigest()
