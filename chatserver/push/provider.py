"""What every push service is to us: something that takes a notice for a device, or does not.

An answer is judged by one question: is it sure that the device will not be shown this push? Only
then may it be tried again, or somebody would be told twice.
"""

from __future__ import annotations

import dataclasses
import email.utils
import enum
import time
from typing import Protocol

from chatserver.domain.pushes import Notice, Subscription
from chatserver.errors import BadRequest, Unavailable
from chatserver.outbound.http import Answer, NotReached

RETRY_AFTER_S_MAX = 3_600.0


class Outcome(enum.Enum):
    """What became of a push."""

    SENT = "sent"
    GONE = "gone"  # the device is not there any more: forget the subscription
    REFUSED = "refused"  # never in this form
    BUSY = "busy"  # too many: surely not taken, the service says when again
    DOWN = "down"  # surely not taken
    UNKNOWN = "unknown"  # nobody knows: not again


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, when to come again, and what an operator may read of it."""

    outcome: Outcome
    retry_after_s: float = 0.0
    why: str = ""
    gone_ms: int | None = None  # since when; a device that was registered after it is there again
    is_alone: bool = False  # it is about this device, others of the service are not concerned


class Provider(Protocol):
    """A push service."""

    def lane_of(self, subscription: Subscription) -> str:
        """Return what fails as one: the service's address."""

    async def send(self, subscription: Subscription, notice: Notice) -> Verdict:
        """Hand a notice over, once.

        Guarantees:
            Bounded: by `notify.timeout_s`. Never raises for what the service does or says.
        """


def judge(answer: Answer) -> Verdict:
    """Judge the status of an answer; what a body says is the provider's to read first."""
    status, why = answer.status, f"status {answer.status}"
    if answer.is_ok:
        return Verdict(Outcome.SENT)
    if status in (404, 410):
        return Verdict(Outcome.GONE, why=why)
    if status == 429:
        return Verdict(Outcome.BUSY, read_retry_after(answer), why)
    if status == 503:
        return Verdict(Outcome.DOWN, read_retry_after(answer), why)
    # Behind any other failure of a server the push may have been taken.
    return Verdict(Outcome.UNKNOWN if status >= 500 else Outcome.REFUSED, why=why)


def judge_failure(failure: BadRequest | Unavailable) -> Verdict:
    """Judge a call that got no answer."""
    if isinstance(failure, BadRequest):
        return Verdict(Outcome.REFUSED, why=failure.message)
    is_sure = isinstance(failure, NotReached)
    return Verdict(Outcome.DOWN if is_sure else Outcome.UNKNOWN, why=failure.message)


def read_retry_after(answer: Answer) -> float:
    """Return the seconds that an answer asks to wait, at most an hour; 0 if it does not say."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isdecimal() and len(text) < 10:
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return 0.0
    return min(max(0.0, at.timestamp() - time.time()), RETRY_AFTER_S_MAX)
