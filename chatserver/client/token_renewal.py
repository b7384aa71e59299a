"""Renewal time of an access token, read from its payload. No I/O.

The signature is not verified: a wrong time only costs an extra request or a reconnect.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

SHARE = 0.8  # fraction of the token lifetime after which a new one is fetched
WAIT_S_MIN = 0.5
RETRY_S = 5.0


class _Life(msgspec.Struct):
    iat: float
    exp: float


def renewal_wait_s(token: str) -> float | None:
    """Return the seconds after which a fresh token is renewed; None if it cannot be read."""
    payload = token.split(".")[1:2]
    try:
        padded = "".join(payload) + "=="
        life = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Life)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None
    return max(WAIT_S_MIN, (life.exp - life.iat) * SHARE)
