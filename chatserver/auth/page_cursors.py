"""Page cursors: signed positions at which the next page starts.

A cursor is signed, because a client could use a forged position to read data without permission. A
cursor is valid for one list and one caller, until `auth.secret` changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from pydantic import SecretStr

from chatserver.errors import BadRequest

_MAC_BYTES = 16
T = TypeVar("T")
Place = tuple[int, str]


class Cursors:
    """Signs and verifies cursors."""

    def __init__(self, secret: SecretStr) -> None:
        # Derive a separate key, so that no other signature with the secret is a valid cursor.
        key = secret.get_secret_value().encode()
        self._key = hmac.digest(key, b"chatserver cursor v1", "sha256")

    def sign(self, scope: str, place: Any) -> str | None:
        """Return the cursor for a position, or None if there is no position (end of the list).

        `scope` identifies the list and the caller. `place`, the position, may have any type that
        msgpack encodes; `open` checks the type.
        """
        if place is None:
            return None
        payload = msgspec.msgpack.encode(place)
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

    def slice_page(
        self,
        scope: str,
        items: Iterable[T],
        get_place: Callable[[T], Place],
        cursor: str | None,
        limit: int,
    ) -> tuple[list[T], str | None]:
        """Return `(page, next)`: a page of `items` and the cursor of the next page, or None.

        `items` is the whole list, in any order. `get_place` returns an item's sort key, which must
        not change when other items are inserted or deleted.

        Raises:
            BadRequest: the cursor was not issued for this list.
        """
        after = self.open(scope, cursor, tuple[int, str])
        remaining = [item for item in items if after is None or get_place(item) > after]
        page = sorted(remaining, key=get_place)[:limit]
        return page, self.sign(scope, get_place(page[-1])) if len(remaining) > limit else None

    def _compute_mac(self, scope: str, payload: bytes) -> bytes:
        text = scope.encode()
        return hmac.digest(self._key, b"%d:" % len(text) + text + payload, hashlib.sha256)[
            :_MAC_BYTES
        ]
