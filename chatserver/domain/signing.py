"""How a webhook proves that it comes from this server: an HMAC over the time and the body. No I/O.

``Chat-Signature: t=<seconds since 1970>,v1=<hex HMAC-SHA256 of "<t>." and the body>``. The time is
signed with it, so a receiver that refuses what is older than some minutes cannot be replayed to.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER = "Chat-Signature"
AGE_S_MAX = 300


def sign(secret: bytes, now: float, body: bytes) -> str:
    """Return the value of the header for a body that is sent now."""
    return f"t={int(now)},v1={_digest(secret, int(now), body)}"


def is_signed(secret: bytes, header: str, body: bytes, now: float, age_s: int = AGE_S_MAX) -> bool:
    """Tell whether a header proves that who knows the secret sent the body less than `age_s` ago.

    Guarantees:
        It takes as long for a wrong signature as for the right one.
    """
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    time, given = parts.get("t", ""), parts.get("v1", "")
    if not (time.isascii() and time.isdigit() and len(time) <= 12 and given.isascii()):
        return False
    wanted = _digest(secret, int(time), body)
    return hmac.compare_digest(wanted, given) and abs(now - int(time)) <= age_s


def _digest(secret: bytes, time: int, body: bytes) -> str:
    return hmac.new(secret, b"%d.%b" % (time, body), hashlib.sha256).hexdigest()
