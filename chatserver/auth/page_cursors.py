"""Page cursors: signed positions at which the next page starts.

A cursor is signed, because a client could use a forged position to read data without permission. A
cursor is valid for one list and one caller, until `auth.secret` changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any, TypeVar

import msgspec
from pydantic import SecretStr

from chatserver.errors import BadRequest

_MAC_BYTES = 16
T = TypeVar("T")


class Cursors:
    """Signs and verifies cursors."""

    def __init__(self, secret: SecretStr) -> None:
        # Derive a separate key, so that no other signature with the secret is a valid cursor.
        key = secret.get_secret_value().encode()
        self._key = hmac.digest(key, b"chatserver cursor v1", "sha256")

    def sign(self, scope: str, position: Any) -> str | None:
        """Return the cursor for a position, or None if there is no position (end of the list).

        `scope` identifies the list and the caller. `position` may have any type that msgpack
        encodes; `open` checks the type.
        """
        if position is None:
            return None
        payload = msgspec.msgpack.encode(position)
        signed = self._compute_mac(scope, payload) + payload
        return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()

    def open(self, scope: str, cursor: str | None, kind: type[T]) -> T | None:
        """Return the list position that a cursor encodes; without a cursor, None (the beginning).

        Raises:
            BadRequest: the cursor was not issued for this list.
        """
        if cursor is None:
            return None
        try:
            signed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            signed = b""
        mac, payload = signed[:_MAC_BYTES], signed[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._compute_mac(scope, payload)):
            raise BadRequest("cursor: must be the `next` value of a page of the same list")
        return msgspec.msgpack.decode(payload, type=kind)

    def _compute_mac(self, scope: str, payload: bytes) -> bytes:
        text = scope.encode()
        return hmac.digest(self._key, b"%d:" % len(text) + text + payload, hashlib.sha256)[
            :_MAC_BYTES
        ]
