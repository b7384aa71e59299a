"""Verification of webhook signatures, as a receiver does it."""

from __future__ import annotations

import hmac

from chatserver.features.webhooks.client import sign

AGE_S_MAX = 300


def is_signed(secret: bytes, header: str, body: bytes, now: float, age_s: int = AGE_S_MAX) -> bool:
    """Return whether `header` is a valid signature of `body`, at most `age_s` old.

    Guarantees:
        Signatures are compared in constant time.
    """
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    time, signature = parts.get("t", ""), parts.get("v1", "")
    if not (time.isascii() and time.isdigit() and len(time) <= 12 and signature.isascii()):
        return False
    expected = sign(secret, int(time), body).rpartition("=")[2]
    return hmac.compare_digest(expected, signature) and abs(now - int(time)) <= age_s
