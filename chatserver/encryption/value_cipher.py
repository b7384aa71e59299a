"""Value cipher: the interface to a tenant's data keys, and the format of encrypted values. No I/O.

An encrypted value is AES-256-GCM::

    0xFE  1     format: magic byte (never in UTF-8, nor the first byte of a zstd frame), version
    4 bytes     version of the data key, big-endian
    12 bytes    nonce
    n + 16      ciphertext and tag

The associated data is the header, and a JSON list of the tenant and the *context* of the value
(table, keys, attribute), so a value is valid only in its context.

The nonce is synthetic: a 96-bit BLAKE2b MAC of associated data and text, with a separate key. It
does not depend on a random number generator. The same text in the same context has the same
ciphertext, so writes stay idempotent and comparable. An observer of two versions of an item learns
only whether the text is the same. Nonces are as unlikely to collide as random ones. Rotate a
data key before it has encrypted 2^32 values; the probability of a collision is then 2^-33.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from typing import Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from chatserver.errors import CorruptData

EncryptionContext = tuple[str, ...]

KEY_BYTES: Final = 32
MAGIC: Final = b"\xfe\x01"
VERSION_BYTES: Final = 4
VERSION_MAX: Final = 2 ** (8 * VERSION_BYTES) - 1

_NONCE_BYTES: Final = 12
_HEADER_BYTES: Final = len(MAGIC) + VERSION_BYTES
OVERHEAD_BYTES: Final = _HEADER_BYTES + _NONCE_BYTES + 16


def build_header(version: int) -> bytes:
    """Return the first bytes of every value encrypted with this version of the data key."""
    return MAGIC + version.to_bytes(VERSION_BYTES, "big")


def is_encrypted(data: bytes) -> bool:
    """Return whether `data` is an encrypted value rather than UTF-8 text."""
    return data[:1] == MAGIC[:1]


def get_key_version(data: bytes) -> int:
    """Return the version of the data key that encrypted a value. Raises CorruptData."""
    if data[: len(MAGIC)] != MAGIC or len(data) < OVERHEAD_BYTES:
        raise CorruptData("encrypted value: unknown format")
    return int.from_bytes(data[len(MAGIC) : _HEADER_BYTES], "big")


class DataKey:
    """A version of a tenant's data key."""

    __slots__ = ("_aead", "_header", "_nonce_key", "_tenant", "version")

    def __init__(self, tenant: str, version: int, secret: bytes) -> None:
        size = len(secret)
        if size != KEY_BYTES:
            raise CorruptData(f"data key {version}: must have {KEY_BYTES} bytes")
        self.version = version
        self._tenant = tenant
        self._header = build_header(version)
        self._aead = AESGCM(hmac.digest(secret, b"chatserver encrypt v1", "sha256"))
        self._nonce_key = hmac.digest(secret, b"chatserver nonce v1", "sha256")

    def __repr__(self) -> str:
        return f"DataKey(version={self.version})"

    def __reduce__(self) -> str:
        raise TypeError("a data key cannot be serialized")

    def encrypt(self, context: EncryptionContext, text: bytes) -> bytes:
        """Encrypt `text`; only the same `context` can decrypt it. Deterministic."""
        header = self._header
        associated_data = self._associated_data(header, context)
        nonce = blake2b(
            associated_data + text, key=self._nonce_key, digest_size=_NONCE_BYTES
        ).digest()
        return header + nonce + self._aead.encrypt(nonce, text, associated_data)

    def decrypt(self, context: EncryptionContext, data: bytes) -> bytes:
        """Return the plaintext of an encrypted value.

        Raises:
            CorruptData: the value has been modified, or was encrypted for another context (table,
                keys, attribute), for another tenant, or with another key.
        """
        header, nonce = data[:_HEADER_BYTES], data[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES]
        try:
            encrypted = data[_HEADER_BYTES + _NONCE_BYTES :]
            return self._aead.decrypt(nonce, encrypted, self._associated_data(header, context))
        except (InvalidTag, ValueError) as exc:
            raise CorruptData(
                f"encrypted value at {'/'.join(context)}: cannot be decrypted; it was modified, "
                "copied from another item, or encrypted with another key"
            ) from exc

    def _associated_data(self, header: bytes, context: EncryptionContext) -> bytes:
        return header + msgspec.json.encode((self._tenant, *context))


class ValueCipher(Protocol):
    """The data keys of one tenant."""

    async def get_current(self) -> DataKey:
        """Return the key that encrypts new values; create one if there is none.

        Raises:
            Unavailable: no key can be read or unwrapped now.
        """

    async def find_for(self, data: bytes) -> DataKey | None:
        """Return the key for an encrypted value; None if it has been deleted (the value is lost).

        Raises:
            CorruptData: the value has an unknown format.
            Unavailable: the key cannot be read or unwrapped now, or its row is missing.
        """
