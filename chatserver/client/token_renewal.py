"""Access token payload: when to renew the token, and the token's user. No I/O.

The client cannot verify the signature, but a wrong time only costs an extra request or a reconnect,
and the gateway rejects a wrong user.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

RENEWAL_SHARE = 0.8  # a new token is fetched after this share of the token lifetime
WAIT_S_MIN = 0.5
RETRY_S = 5.0

T = TypeVar("T")


class _Lifetime(msgspec.Struct):
    iat: float
    exp: float


class _Subject(msgspec.Struct):
    sub: str


def get_renewal_delay_s(token: str) -> float | None:
    """Return when to renew a new token, in seconds from now; None if the token is unreadable."""
    life = _decode_payload(token, _Lifetime)
    return None if life is None else max(WAIT_S_MIN, (life.exp - life.iat) * RENEWAL_SHARE)


def find_user(token: str) -> str | None:
    """Return a token's user; None if the token is unreadable."""
    subject = _decode_payload(token, _Subject)
    return None if subject is None else subject.sub


def _decode_payload(token: str, type_: type[T]) -> T | None:
    payload = token.split(".")[1:2]
    try:
        padded = "".join(payload) + "=="
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=type_)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None
