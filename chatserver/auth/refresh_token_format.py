"""Refresh tokens: each use of a token replaces it with the next generation. Pure functions.

    <user>.<login>.<generation>.<mac>

The mac is HMAC-SHA-256 over user, login, generation and the login's own 32 random bytes, with a key
derived from `auth.secret`. Stored data alone therefore grants no access: a copy of the `directory`
table has the random bytes but not the key. The next token is computed, not random, so a repeated
request returns the same token.

If a genuine token of an older generation is used after its grace period, a token was stolen. The
server cannot know which client is the thief, so the login ends. A forged token has no effect.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from chatserver.config import Auth
from chatserver.domain.ids import UserId
from chatserver.errors import Unauthenticated

SEED_BYTES = 32
TOKEN_CHARS_MAX = 256
REFUSED = "refresh token is invalid or revoked; log in again"
_TOKEN = re.compile(
    r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,64})\.([1-9][0-9]{0,9})\.([A-Za-z0-9_-]{43})"
)


class RefreshToken(NamedTuple):
    """A parsed refresh token, not verified yet."""

    user: UserId
    login: str
    generation: int
    mac: str


class RefreshTokens:
    def __init__(self, settings: Auth) -> None:
        secret = settings.secret.get_secret_value().encode()
        self._key = hmac.digest(secret, b"chatserver refresh tokens v1", hashlib.sha256)

    def new_seed(self) -> bytes:
        """Return random bytes that make the tokens of a new login unique."""
        return secrets.token_bytes(SEED_BYTES)

    def make(self, user: UserId, login: str, generation: int, seed: bytes) -> str:
        """Return the refresh token of a login for this generation."""
        mac = self._compute_mac(user, login, generation, seed)
        return f"{user}.{login}.{generation}.{mac}"

    def is_genuine(self, token: RefreshToken, seed: bytes) -> bool:
        """Return whether this server created a token."""
        expected = self._compute_mac(token.user, token.login, token.generation, seed)
        return hmac.compare_digest(expected, token.mac)

    def _compute_mac(self, user: str, login: str, generation: int, seed: bytes) -> str:
        # Only `seed`, the last part, can contain a dot, so different parts give different texts.
        text = f"{user}.{login}.{generation}.".encode() + seed
        mac = hmac.digest(self._key, text, hashlib.sha256)
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def parse_refresh_token(text: str) -> RefreshToken:
    """Parse a refresh token without verifying it.

    Raises:
        Unauthenticated: the text is not a refresh token.
    """
    match = _TOKEN.fullmatch(text) if len(text) <= TOKEN_CHARS_MAX else None
    if match is None:
        raise Unauthenticated(REFUSED)
    user, login, generation, mac = match.groups()
    return RefreshToken(UserId(user), login, int(generation), mac)
