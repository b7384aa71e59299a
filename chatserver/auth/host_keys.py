"""Signature verification with the host application's keys.

The algorithm comes from the settings, never from the token (CVE-2022-29217): a key is loaded for
that algorithm and works with no other. In a key set (RFC 7517), keys for another algorithm or
purpose are skipped.

A token names its key by `kid`, which is looked up only among the loaded keys: no part of a token
determines where keys are loaded from (GHSA-j77h-rr39-c552).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

from chatserver.auth.claim_checks import refuse
from chatserver.config import Auth
from chatserver.errors import ConfigError, CorruptData, Unauthenticated, UnknownKey

KEYS_MAX = 32
STATIC_KEYS_MAX = 4
JWKS_BYTES_MAX = 65_536
RSA_BITS_MIN = 2048
SECRET_BYTES_MIN = 32
_KID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]{1,8000}?-----END PUBLIC KEY-----")
_FAMILIES = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


class HostKey(NamedTuple):
    """A key of the host application, and its `kid` if it has one."""

    kid: str | None
    key: Any


class HostKeys:
    """Keys of the host application for one signature algorithm.

    `is_fetched`: the keys are from a key set, so tokens need a `kid` unless there is only one key.
    """

    def __init__(
        self, algorithm: str | None, keys: Sequence[HostKey], *, is_fetched: bool = False
    ) -> None:
        self._algorithm = algorithm
        self._keys = tuple(keys)
        self._is_fetched = is_fetched
        self._jws = PyJWS(algorithms=[algorithm] if algorithm else [])

    def verify(self, token: str, header: dict[str, Any]) -> bytes:
        """Return the payload of a token with a valid signature.

        Raises:
            Unauthenticated: the signature is invalid.
            UnknownKey: the token names a key that is not in this set.
        """
        if self._algorithm is None or header.get("alg") != self._algorithm:
            refuse("has a signature algorithm that is not accepted")
        # Headers such as `jku`, `jwk` and `x5u` would let a token choose its own key.
        if not header.keys() <= {"alg", "typ", "kid"}:
            refuse("has a header with more than alg, typ and kid")
        for candidate in self._find(header.get("kid")):
            try:
                return bytes(self._jws.decode(token, candidate.key, algorithms=[self._algorithm]))
            except (PyJWTError, NotImplementedError, ValueError, TypeError):
                continue  # PyJWT raises any of these errors if the key does not fit
        raise Unauthenticated("token: not signed by the host application")

    def _find(self, kid: object) -> Sequence[HostKey]:
        if kid is None:
            if self._is_fetched and len(self._keys) != 1:
                refuse("has no key id (`kid`)")
            return self._keys
        if not isinstance(kid, str) or _KID.fullmatch(kid) is None:
            refuse("has a key id with characters other than letters, digits, _ and -")
        if not self._is_fetched:
            return self._keys
        matches = [key for key in self._keys if key.kid == kid]
        if not matches:
            raise UnknownKey("token: its key id is unknown")
        return matches


def read_static_keys(settings: Auth) -> HostKeys:
    """Return the keys contained in the settings.

    Raises:
        ConfigError: there is no valid key for the algorithm, or the key is too short.
    """
    algorithm = settings.host_algorithm
    if algorithm is None:
        return HostKeys(None, [])
    if settings.host_secret is not None:
        secret = settings.host_secret.get_secret_value().encode()
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigError(f"auth.host_secret: must be at least {SECRET_BYTES_MIN} bytes")
        if secret == settings.secret.get_secret_value().encode():
            raise ConfigError("auth.host_secret: must differ from auth.secret")
        return HostKeys(algorithm, [HostKey(None, secret)])
    if settings.host_public_keys is None:
        return HostKeys(algorithm, [], is_fetched=True)
    texts = _PEM.findall(settings.host_public_keys)
    if not 1 <= len(texts) <= STATIC_KEYS_MAX:
        raise ConfigError(f"auth.host_public_keys: must contain 1 to {STATIC_KEYS_MAX} PEM keys")
    try:
        keys = [
            _check_key(algorithm, _get_algorithm(algorithm).prepare_key(text)) for text in texts
        ]
    except (PyJWTError, ValueError, TypeError) as exc:
        raise ConfigError(f"auth.host_public_keys: not a key for {algorithm}: {exc}") from exc
    return HostKeys(algorithm, [HostKey(None, key) for key in keys])


class _Jwk(msgspec.Struct):
    """The JWK fields that determine whether a key is usable."""

    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    d: str | None = None


class _KeySet(msgspec.Struct):
    keys: list[msgspec.Raw]


def parse_jwks(data: bytes, algorithm: str | None) -> HostKeys:
    """Return the keys in a key set (RFC 7517) that can verify `algorithm` signatures.

    Raises:
        CorruptData: the data is not a key set, or holds no usable key.
    """
    if algorithm is None:
        raise CorruptData("key set: auth.host_algorithm is not set")
    if len(data) > JWKS_BYTES_MAX:
        raise CorruptData(f"key set: is longer than {JWKS_BYTES_MAX} bytes")
    keys: list[HostKey] = []
    try:
        for raw in msgspec.json.decode(data, type=_KeySet).keys[:KEYS_MAX]:
            jwk = msgspec.json.decode(raw, type=_Jwk)
            if _is_for_us(jwk, algorithm):
                key = _get_algorithm(algorithm).from_jwk(bytes(raw).decode())
                keys.append(HostKey(jwk.kid, _check_key(algorithm, key)))
    except (msgspec.MsgspecError, PyJWTError, ValueError, TypeError, RecursionError) as exc:
        raise CorruptData(f"key set: cannot be parsed: {exc}") from exc
    if not keys:
        raise CorruptData(f"key set: has no key for {algorithm}")
    return HostKeys(algorithm, keys, is_fetched=True)


def _is_for_us(jwk: _Jwk, algorithm: str) -> bool:
    return (
        jwk.kty == _FAMILIES.get(algorithm)
        and jwk.use in (None, "sig")
        and jwk.alg in (None, algorithm)
        and jwk.d is None  # skip private keys: once published, they are compromised
        and (jwk.kid is None or _KID.fullmatch(jwk.kid) is not None)
    )


def _get_algorithm(name: str) -> Any:
    return get_default_algorithms()[name]


def _check_key(algorithm: str, key: Any) -> Any:
    """Return `key` if it is a public key of the algorithm's type and is long enough.

    Raises:
        ValueError: the key is not acceptable; the message says why.
    """
    match algorithm:
        case "RS256" if isinstance(key, rsa.RSAPublicKey):
            if key.key_size < RSA_BITS_MIN:
                raise ValueError(f"an RSA key must have at least {RSA_BITS_MIN} bits")
        case "ES256" if isinstance(key, ec.EllipticCurvePublicKey):
            if not isinstance(key.curve, ec.SECP256R1):
                raise ValueError("ES256 needs a key on P-256")
        case "EdDSA" if isinstance(key, ed25519.Ed25519PublicKey):
            pass
        case _:
            raise ValueError(f"not a public key for {algorithm}")
    return key
