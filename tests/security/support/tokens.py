"""Tokens, keys and key sets of a host application, and a key server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from chatserver.auth.access_tokens import Tokens
from chatserver.config import Auth
from chatserver.domain.clock import SystemClock

SERVER_SECRET = "0123456789abcdef0123456789abcdef"
HOST_SECRET = "fedcba9876543210fedcba9876543210"
RSA = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
Key = Any


def now() -> int:
    return int(SystemClock().time())


def pem(key: Key) -> str:
    """Return the public key in PEM, as in the settings."""
    made: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return made.decode()


def tokens(**host: Any) -> Tokens:
    """Return a token verifier with the host application's settings."""
    fields = {"secret": SERVER_SECRET, "local_accounts": not host, **host}
    return Tokens(Auth.model_validate(fields), SystemClock())


def claims(**changes: Any) -> dict[str, Any]:
    """Return the host application's claims with changes; `...` removes a claim."""
    complete = {"sub": "zoe", "aud": "chatserver", "iat": now(), "exp": now() + 600} | changes
    return {name: value for name, value in complete.items() if value is not ...}


def signed(key: Key, algorithm: str, payload: dict[str, Any] | None = None, **header: Any) -> str:
    """Return a token signed by the host application."""
    return jwt.encode(payload or claims(), key, algorithm, headers=header or None)


def jwk(key: Key, kid: str | None, **more: Any) -> dict[str, Any]:
    """Return a key in the JWK format."""
    makers: dict[type, Any] = {
        rsa.RSAPrivateKey: RSAAlgorithm,
        ec.EllipticCurvePrivateKey: ECAlgorithm,
        ed25519.Ed25519PrivateKey: OKPAlgorithm,
    }
    (maker,) = [maker for kind, maker in makers.items() if isinstance(key, kind)]
    made: dict[str, Any] = maker.to_jwk(key.public_key(), as_dict=True)
    made.pop("key_ops", None)
    return made | ({} if kid is None else {"kid": kid}) | more


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


class KeyServer:
    """The HTTP server of a key set; `count` is the number of requests."""

    def __init__(self) -> None:
        self.body = b"{}"
        self.count = 0
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one request."""
        await reader.readuntil(b"\r\n\r\n")
        self.count += 1
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + self.body)
        await writer.drain()
        writer.close()
