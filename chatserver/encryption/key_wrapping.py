"""Wrapping of data keys by a KMS key or a key file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from chatserver.errors import Unavailable

Context = Mapping[str, str]  # tenant and key version; `unwrap` needs the same values as `wrap`


class WrappedKey(NamedTuple):
    """A wrapped data key. `by` is the wrapping key: ``file:<fingerprint>`` or ``kms:<ARN>``."""

    data: bytes
    by: str


class KeyWrapper(Protocol):
    """A KMS key or the keys in a key file.

    Every method raises Unavailable if the key cannot be used now.
    """

    kind: str

    async def create(self, context: Context) -> tuple[bytes, WrappedKey]:
        """Return a new data key, plain and wrapped."""

    async def wrap(self, secret: bytes, context: Context) -> WrappedKey: ...

    async def unwrap(self, wrapped: WrappedKey, context: Context) -> bytes: ...


class KeyWrappers:
    """Wraps with the first wrapper; unwraps with the wrapper that `WrappedKey.by` names."""

    def __init__(self, first: KeyWrapper, *others: KeyWrapper) -> None:
        self._first = first
        self._all = {wrapper.kind: wrapper for wrapper in (first, *others)}

    async def create(self, context: Context) -> tuple[bytes, WrappedKey]:
        """Return a new data key, plain and wrapped."""
        return await self._first.create(context)

    async def rewrap(self, wrapped: WrappedKey, context: Context) -> WrappedKey:
        """Return the same data key, wrapped by the current KMS key or key file."""
        return await self._first.wrap(await self.unwrap(wrapped, context), context)

    async def unwrap(self, wrapped: WrappedKey, context: Context) -> bytes:
        """Return the plain data key. Raises Unavailable."""
        kind = wrapped.by.partition(":")[0]
        if kind not in self._all:
            setting = "key_file" if kind == "file" else "kms_key_id"
            raise Unavailable(
                f"encryption: a data key is wrapped by {wrapped.by}; set encryption.{setting} too"
            )
        return await self._all[kind].unwrap(wrapped, context)
