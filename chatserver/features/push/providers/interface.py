"""Interface of push providers, and classification of their responses.

A push is retried only if it certainly was not accepted. Otherwise the user could get it twice.
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

TIMEOUT_S = 10.0  # one call of a push service
TTL_S = 86_400  # how long a push service keeps an undelivered push

RETRY_AFTER_S_MAX = 3_600.0


class Outcome(enum.Enum):
    """Outcome of a push."""

    SENT = "sent"
    GONE = "gone"  # the device is unregistered: remove the subscription
    REFUSED = "refused"  # permanent error
    BUSY = "busy"  # throttled: certainly not accepted; the service sets the retry time
    DOWN = "down"  # certainly not accepted
    UNKNOWN = "unknown"  # may have been accepted: no retry


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a push, with the retry delay and the reason to log."""

    outcome: Outcome
    retry_after_s: float = 0.0
    reason: str = ""
    gone_ms: int | None = None  # unregistered since; a device registered after that is valid again
    is_device_only: bool = False  # concerns only this device, not the whole service


class Provider(Protocol):
    """A push service."""

    def lane_of(self, subscription: Subscription) -> str:
        """Return the host of the subscription's push service; failures are isolated per host."""

    async def send(self, subscription: Subscription, notice: Notice) -> Verdict:
        """Send a notice once.

        Guarantees:
            Bounded by `TIMEOUT_S`. Never raises for errors of the service.
        """


def classify(answer: Answer) -> Verdict:
    """Classify a response by its status; providers also check the body."""
    status, reason = answer.status, f"status {answer.status}"
    if answer.is_ok:
        return Verdict(Outcome.SENT)
    if status in (404, 410):
        return Verdict(Outcome.GONE, reason=reason)
    if status == 429:
        return Verdict(Outcome.BUSY, read_retry_after(answer), reason)
    if status == 503:
        return Verdict(Outcome.DOWN, read_retry_after(answer), reason)
    # After any other server error the push may have been accepted.
    return Verdict(Outcome.UNKNOWN if status >= 500 else Outcome.REFUSED, reason=reason)


def classify_failure(failure: BadRequest | Unavailable) -> Verdict:
    """Classify a call that got no response."""
    if isinstance(failure, BadRequest):
        return Verdict(Outcome.REFUSED, reason=failure.message)
    is_sure = isinstance(failure, NotReached)
    return Verdict(Outcome.DOWN if is_sure else Outcome.UNKNOWN, reason=failure.message)


def read_retry_after(answer: Answer) -> float:
    """Return the Retry-After of a response in seconds, at most an hour; 0 if absent."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isdecimal() and len(text) < 10:
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return 0.0
    return min(max(0.0, at.timestamp() - time.time()), RETRY_AFTER_S_MAX)
