"""Device tokens: proof that a device has logged in to an account before. Pure functions.

    <user>.<device>.<issued at>.<mac>

A device token grants no access. It gives the device its own limit on login attempts, which wrong
guesses from unknown devices do not use up (OWASP: device cookies). The mac is HMAC-SHA-256 with a
key derived from `auth.secret`; nothing is stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from chatserver.config import Auth
from chatserver.domain.clock import Clock
from chatserver.domain.ids import UserId

DEVICE_TOKEN_S = 400 * 86_400  # lifetime: 400 days, the maximum for a cookie in browsers
TOKEN_CHARS_MAX = 256
_DEVICE_BYTES = 12
_TOKEN = re.compile(
    r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{16})\.([1-9][0-9]{0,11})\.([A-Za-z0-9_-]{43})"
)


class DeviceTokens:
    def __init__(self, settings: Auth, clock: Clock) -> None:
        secret = settings.secret.get_secret_value().encode()
        self._key = hmac.digest(secret, b"chatserver device tokens v1", hashlib.sha256)
        self._clock = clock

    def make(self, user: UserId, device: str | None = None) -> str:
        """Return a token for an account and a device; without `device`, for a new device id."""
        device = device or secrets.token_urlsafe(_DEVICE_BYTES)
        text = f"{user}.{device}.{int(self._clock.time())}"
        return f"{text}.{self._compute_mac(text)}"

    def find_device(self, tokens: Iterable[str], user: UserId) -> str | None:
        """Return the device id in the first valid token for an account, or None."""
        for token in tokens:
            match = _TOKEN.fullmatch(token) if len(token) <= TOKEN_CHARS_MAX else None
            if match is None or match[1] != user:
                continue
            is_genuine = hmac.compare_digest(self._compute_mac(token.rpartition(".")[0]), match[4])
            if is_genuine and self._clock.time() < int(match[3]) + DEVICE_TOKEN_S:
                return match[2]
        return None

    def _compute_mac(self, text: str) -> str:
        mac = hmac.digest(self._key, text.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
