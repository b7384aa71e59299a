"""Responses of push services: only a push that was certainly not accepted is retried."""

from __future__ import annotations

import email.utils
import time

import pytest

from chatserver.errors import BadRequest, Unavailable
from chatserver.features.push.providers.interface import PushOutcome, classify, classify_failure
from chatserver.outbound.http_client import Answer, NotReached


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, PushOutcome.SENT),
        (201, PushOutcome.SENT),
        (404, PushOutcome.GONE),
        (410, PushOutcome.GONE),
        (429, PushOutcome.BUSY),
        (503, PushOutcome.DOWN),
        (500, PushOutcome.UNKNOWN),
        (502, PushOutcome.UNKNOWN),
        (504, PushOutcome.UNKNOWN),
        (301, PushOutcome.REFUSED),
        (400, PushOutcome.REFUSED),
        (403, PushOutcome.REFUSED),
        (413, PushOutcome.REFUSED),
    ],
)
def test_status_has_one_outcome(status: int, outcome: PushOutcome) -> None:
    """After most server errors, the push may have been accepted."""
    assert classify(Answer(status, {}, b"")).outcome is outcome


def test_failure_outcome_depends_on_whether_the_request_was_sent() -> None:
    """Without a connection the push was not accepted; without a response the result is unknown."""
    assert classify_failure(NotReached("refused")).outcome is PushOutcome.DOWN
    assert classify_failure(Unavailable("no answer")).outcome is PushOutcome.UNKNOWN
    assert classify_failure(BadRequest("a private address")).outcome is PushOutcome.REFUSED


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("7", 7, 7),
        ("999999", 3600, 3600),
        ("soon", 0, 0),
        ("", 0, 0),
        ("-5", 0, 0),
        ("Fri, 21 Nov 2025 08:00:00 GMT", 0, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date_within_an_hour(text: str, low: int, high: int) -> None:
    """See RFC 9110 section 10.2.3; invalid values mean no delay."""
    result = classify(Answer(429, {"retry-after": text}, b""))

    assert low <= result.retry_after_s <= high


def test_retry_after_date_is_relative_to_now() -> None:
    in_half_an_hour = email.utils.formatdate(time.time() + 1800, usegmt=True)

    result = classify(Answer(503, {"retry-after": in_half_an_hour}, b""))

    assert 1500 < result.retry_after_s <= 1801
