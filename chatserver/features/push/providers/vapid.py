"""VAPID (RFC 8292): the key pair that identifies this installation to push services.

Keys are in base64url: 32 bytes for the private key, 65 bytes for the public key. Browser
subscriptions are bound to the public key, so browsers must subscribe again after a key change.
"""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02  # type: ignore[import-untyped]  # no type information

from chatserver.domain.clock import Clock
from chatserver.errors import ConfigError

TOKEN_S = 12 * 3600  # token lifetime; push services accept at most 24 hours
RENEW_S = 6 * 3600
ORIGINS_MAX = 1_000
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # order of P-256


def make_vapid_pair() -> tuple[str, str]:
    """Return a new private key and its public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_numbers().private_value.to_bytes(32, "big")
    return _encode(private), _encode_public_key(key)


def derive_vapid_pair(secret: str) -> tuple[str, str]:
    """Derive a key pair deterministically from a secret, for development."""
    digest = hashlib.sha512(b"vapid:" + secret.encode()).digest()
    number = int.from_bytes(digest, "big") % (_ORDER - 1) + 1
    key = ec.derive_private_key(number, ec.SECP256R1())
    return _encode(number.to_bytes(32, "big")), _encode_public_key(key)


def check_vapid_pair(private: str, public: str, subject: str) -> None:
    """Check the VAPID settings of a worker.

    Raises:
        ConfigError: lists all problems.
    """
    problems = []
    try:
        derived = _encode_public_key(_load(private))
    except (ValueError, TypeError):
        problems.append(
            "notify.vapid_private: is not a valid key; run `chatserver vapid` to create one"
        )
    else:
        if derived != public.rstrip("="):
            problems.append("notify.vapid_public: does not match notify.vapid_private")
    if not subject.startswith(("mailto:", "https://")):
        problems.append(
            "notify.subject: is required by push services; set it to mailto:… or https://…"
        )
    if problems:
        raise ConfigError(*problems)


class VapidSigner:
    """Signs a token per push service origin, and reuses it for `RENEW_S`."""

    def __init__(self, private: str, subject: str, clock: Clock) -> None:
        self._vapid = Vapid02(_load(private))
        self._subject = subject
        self._clock = clock
        self._headers: dict[str, tuple[float, str]] = {}

    def authorize(self, endpoint: str) -> str:
        """Return the Authorization header for an endpoint."""
        parts = urlsplit(endpoint)
        origin = f"{parts.scheme}://{parts.netloc}"
        now = self._clock.time()
        made_at, header = self._headers.get(origin, (0.0, ""))
        if not header or not 0 <= now - made_at < RENEW_S:
            claims = {"aud": origin, "exp": int(now) + TOKEN_S, "sub": self._subject}
            header = str(self._vapid.sign(claims)["Authorization"])
            if len(self._headers) >= ORIGINS_MAX:
                self._headers.clear()
            self._headers[origin] = (now, header)
        return header


def _load(private: str) -> ec.EllipticCurvePrivateKey:
    raw = base64.urlsafe_b64decode(private + "=" * (-len(private) % 4))
    return ec.derive_private_key(int.from_bytes(raw, "big"), ec.SECP256R1())


def _encode_public_key(key: ec.EllipticCurvePrivateKey) -> str:
    return _encode(key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def make_dev_settings(secret: str) -> dict[str, str]:
    """Return push settings for `chatserver dev`, derived from a secret."""
    private, public = derive_vapid_pair(secret)
    return {
        "CHAT_NOTIFY_VAPID_PRIVATE": private,
        "CHAT_NOTIFY_VAPID_PUBLIC": public,
        "CHAT_NOTIFY_SUBJECT": "mailto:dev@localhost",
    }
