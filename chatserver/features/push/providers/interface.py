"""Interface of push providers, and classification of their responses.

A push is retried only if the service certainly did not accept it. Otherwise the user could get it
twice.
"""

from __future__ import annotations

import dataclasses
import email.utils
import enum
import time
from typing import Protocol

from chatserver.errors import BadRequest, Unavailable
from chatserver.features.push.model import Notice, Subscription
from chatserver.outbound.http_client import Answer, NotReached

TIMEOUT_S = 10.0
TTL_S = 86_400  # after this time, push services drop an undelivered push

RETRY_AFTER_S_MAX = 3_600.0


class PushOutcome(enum.Enum):
    """Outcome of a push."""

    SENT = "sent"
    GONE = "gone"  # the device is unregistered; the subscription is removed
    REFUSED = "refused"  # permanent error
    BUSY = "busy"  # rate limited: the push was not accepted, and is retried
    DOWN = "down"  # the push was not accepted, and is retried
    UNKNOWN = "unknown"  # the push may have been accepted, so it is not retried


@dataclasses.dataclass(frozen=True, slots=True)
class SendResult:
    """Outcome of a push, with the retry delay and the reason to log."""

    outcome: PushOutcome
    retry_after_s: float = 0.0
    reason: str = ""
    gone_ms: int | None = None  # time of the unregistration; a later registration is valid
    is_device_only: bool = False  # the error affects this device, not the whole service


class PushProvider(Protocol):
    """A push service."""

    def get_host(self, subscription: Subscription) -> str:
        """Return the host of the push service. Queue limits and circuit breakers apply per host."""

    async def send(self, subscription: Subscription, notice: Notice) -> SendResult:
        """Send a notice once.

        Guarantees:
            Bounded by `TIMEOUT_S`. Errors of the service are returned, not raised.
        """


def classify(response: Answer) -> SendResult:
    """Classify a response by its status."""
    status, reason = response.status, f"status {response.status}"
    if response.is_ok:
        return SendResult(PushOutcome.SENT)
    if status in (404, 410):
        return SendResult(PushOutcome.GONE, reason=reason)
    if status == 429:
        return SendResult(PushOutcome.BUSY, read_retry_after(response), reason)
    if status == 503:
        return SendResult(PushOutcome.DOWN, read_retry_after(response), reason)
    # After any 5xx status except 503, the push may have been accepted.
    return SendResult(PushOutcome.UNKNOWN if status >= 500 else PushOutcome.REFUSED, reason=reason)


def classify_failure(failure: BadRequest | Unavailable) -> SendResult:
    """Classify a call that got no response."""
    if isinstance(failure, BadRequest):
        return SendResult(PushOutcome.REFUSED, reason=failure.message)
    is_unreached = isinstance(failure, NotReached)
    return SendResult(
        PushOutcome.DOWN if is_unreached else PushOutcome.UNKNOWN, reason=failure.message
    )


def read_retry_after(response: Answer) -> float:
    """Return the Retry-After header in seconds, at most an hour; 0 if it is absent or invalid."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal() and len(text) < 10:
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return 0.0
    return min(max(0.0, moment.timestamp() - time.time()), RETRY_AFTER_S_MAX)
