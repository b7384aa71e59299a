"""How long a token lives, as its holder reads it. Pure.

The holder cannot check the signature and need not: a wrong guess costs a request too many, or a
connection that is made again.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

SHARE = 0.8  # of a token's life, after which a newer one is fetched
WAIT_S_MIN = 0.5
RETRY_S = 5.0


class _Life(msgspec.Struct):
    iat: float
    exp: float


def renewal_wait_s(token: str) -> float | None:
    """Return after how long a token that was just fetched is to be replaced; None: nobody knows."""
    payload = token.split(".")[1:2]
    try:
        padded = "".join(payload) + "=="
        life = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Life)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None
    return max(WAIT_S_MIN, (life.exp - life.iat) * SHARE)
