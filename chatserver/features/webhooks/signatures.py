"""Webhook signatures: an HMAC over the time and the body. No I/O.

``Chat-Signature: t=<seconds since 1970>,v1=<hex HMAC-SHA256 of "<t>." and the body>``. The time is
part of the signature. A receiver that refuses requests older than some minutes is protected from
replays.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER = "Chat-Signature"
AGE_S_MAX = 300


def sign(secret: bytes, now: float, body: bytes) -> str:
    """Return the header value for a body that is sent now."""
    return f"t={int(now)},v1={_digest(secret, int(now), body)}"


def is_signed(secret: bytes, header: str, body: bytes, now: float, age_s: int = AGE_S_MAX) -> bool:
    """Return whether a header is a valid signature of the body, made less than `age_s` ago.

    Guarantees:
        Constant time: a wrong signature takes as long as the right one.
    """
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    time, given = parts.get("t", ""), parts.get("v1", "")
    if not (time.isascii() and time.isdigit() and len(time) <= 12 and given.isascii()):
        return False
    wanted = _digest(secret, int(time), body)
    return hmac.compare_digest(wanted, given) and abs(now - int(time)) <= age_s


def _digest(secret: bytes, time: int, body: bytes) -> str:
    return hmac.new(secret, b"%d.%b" % (time, body), hashlib.sha256).hexdigest()
