"""Key file: wraps data keys with AES-256-GCM, for development and deployments without KMS.

The file has one key per line, 32 bytes in base64; lines that begin with ``#`` are comments. The
first key wraps data keys; all keys unwrap them. To replace a key without interruption, add the
new key as the first line, restart, run `chatserver encryption rewrap`, and remove the old key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from chatserver.encryption.key_wrapping import Context, WrappedKey
from chatserver.encryption.value_cipher import KEY_BYTES
from chatserver.errors import KEYS_DOWN, ConfigError, Unavailable

KEYS_MAX: Final = 16
_NONCE_BYTES: Final = 12
_NAME: Final = "encryption.key_file (CHAT_ENCRYPTION_KEY_FILE)"


def new_line() -> str:
    """Return a new key as a line of a key file."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class KeyFile:
    """The keys of a key file."""

    kind = "file"

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = {_fingerprint(key): AESGCM(key) for key in keys}
        self._first = next(iter(self._keys))

    @classmethod
    def read(cls, path: Path) -> KeyFile:
        """Read a key file. Raises ConfigError."""
        try:
            lines = path.read_text("ascii").split("\n")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "is not text"
            raise ConfigError(f"{_NAME}: {path}: {reason}") from exc
        keys = [_parse(line) for line in map(str.strip, lines) if line and line[0] != "#"]
        if not 1 <= len(keys) <= KEYS_MAX:
            raise ConfigError(f"{_NAME}: must have 1 to {KEYS_MAX} keys, has {len(keys)}")
        return cls(keys)

    def __repr__(self) -> str:
        return f"KeyFile({', '.join(self._keys)})"

    async def create(self, context: Context) -> tuple[bytes, WrappedKey]:
        """Return a new data key, plain and wrapped."""
        secret = secrets.token_bytes(KEY_BYTES)
        return secret, await self.wrap(secret, context)

    async def wrap(self, secret: bytes, context: Context) -> WrappedKey:
        """Return a data key wrapped by the first key of the file."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = self._keys[self._first].encrypt(nonce, secret, _associated_data(context))
        return WrappedKey(nonce + data, f"{self.kind}:{self._first}")

    async def unwrap(self, wrapped: WrappedKey, context: Context) -> bytes:
        """Return a plain data key. Raises Unavailable."""
        name = wrapped.by.removeprefix(f"{self.kind}:")
        if name not in self._keys:
            raise Unavailable(
                f"{_NAME}: key {name}, which wraps a data key, is missing; add it", public=KEYS_DOWN
            )
        try:
            nonce, data = wrapped.data[:_NONCE_BYTES], wrapped.data[_NONCE_BYTES:]
            return self._keys[name].decrypt(nonce, data, _associated_data(context))
        except (InvalidTag, ValueError) as exc:
            raise Unavailable(
                f"{_NAME}: key {name} cannot unwrap the data key for {dict(context)}",
                public=KEYS_DOWN,
            ) from exc


def _parse(line: str) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{_NAME}: each line must be {KEY_BYTES} bytes in base64; create one with "
             "`chatserver encryption new-key`"
        )  # fmt: skip
    return key


def _fingerprint(key: bytes) -> str:
    return hashlib.sha256(b"chatserver key id v1" + key).hexdigest()[:16]


def _associated_data(context: Context) -> bytes:
    return json.dumps(dict(context), sort_keys=True).encode()
