"""Segment store: archive segments in S3, with a bounded cache in memory.

Objects are immutable (`chatserver.domain.archive_segments`), so cached content is never outdated.
Memory: `archive.cache_bytes_max` for the cache, plus `LOADS_MAX` segments during decompression.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Final

from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.cold.segment_format import (
    Unpacked,
    decrypt_bodies,
    encode_segment,
    has_content,
    unpack_segment,
)
from chatserver.config import Archive
from chatserver.domain.archive_segments import ArchiveSegment
from chatserver.encryption.value_cipher import ValueCipher, get_key_version
from chatserver.errors import KEYS_DOWN, CorruptData, TooLarge, Unavailable
from chatserver.protocol.frames import Message
from chatserver.telemetry import metrics

LOADS_MAX: Final = 4
ENTRY_BYTES: Final = 800  # memory per cached entry, in addition to its JSON line


class SegmentObjects:
    def __init__(
        self, store: ObjectStore, settings: Archive, cipher: ValueCipher | None = None
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._bytes_max = settings.cache_bytes_max
        self._cache: collections.OrderedDict[str, tuple[Sequence[Message], int]] = (
            collections.OrderedDict()
        )
        self._bytes = 0
        self._loads = asyncio.Semaphore(LOADS_MAX)
        self._loading: dict[str, asyncio.Lock] = {}

    async def encode(self, entries: Sequence[Message], tag: str) -> tuple[ArchiveSegment, bytes]:
        """Return the segment for `entries`, and its content. Raises CorruptData, Unavailable."""
        key = None if self._cipher is None else await self._cipher.get_current()
        return await asyncio.to_thread(encode_segment, entries, tag, key)

    async def is_current(self, segment: ArchiveSegment) -> bool:
        """Return whether a segment is encrypted with the current key, or has nothing to encrypt.

        Raises the errors of `read`.
        """
        assert self._cipher is not None
        key = await self._cipher.get_current()
        unpacked = await self._read_unpacked(segment)
        if unpacked.bodies is None:
            return not any(map(has_content, unpacked.entries))
        return get_key_version(unpacked.bodies) == key.version

    async def put(self, segment: ArchiveSegment, data: bytes) -> None:
        """Write a segment's object. Idempotent."""
        await self._store.call(
            "put_object", Key=segment.key, Body=data, ContentType="application/zstd"
        )

    async def remove(self, segment: ArchiveSegment) -> None:
        """Remove a segment's object. Idempotent."""
        self._evict(segment.key)
        await self._store.call("delete_object", Key=segment.key)

    async def read(self, segment: ArchiveSegment) -> Sequence[Message]:
        """Return the entries of a segment. Callers must not modify them.

        If the encryption key has been deleted, entries with encrypted text are tombstones.

        Raises:
            CorruptData: the object is missing or does not match the manifest.
            Unavailable: S3 does not respond, or the encryption key is unavailable.
        """
        key = segment.key
        lock = self._loading.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # concurrent readers share one load
                if (cached := self._cache.get(key)) is not None:
                    self._cache.move_to_end(key)
                    metrics.SEGMENT_READS.labels("cache").inc()
                    return cached[0]
                return await self._load(segment)
        finally:
            if not lock.locked():
                self._loading.pop(key, None)

    async def _read_unpacked(self, segment: ArchiveSegment) -> Unpacked:
        try:
            data = await self._store.read(segment.key, size_max=segment.stored_bytes)
        except ObjectMissing as exc:
            raise CorruptData(f"{segment.key}: missing from the bucket") from exc
        except TooLarge as exc:
            raise CorruptData(f"{segment.key}: larger than the size in the manifest") from exc
        return await asyncio.to_thread(unpack_segment, segment, data)

    async def _load(self, segment: ArchiveSegment) -> Sequence[Message]:
        async with self._loads:
            unpacked = await self._read_unpacked(segment)
            entries: Sequence[Message] = unpacked.entries
            if unpacked.bodies is not None:
                if self._cipher is None:
                    raise Unavailable(
                        f"{segment.key} is encrypted, but encryption.provider is not set",
                        public=KEYS_DOWN,
                    )
                key = await self._cipher.find_for(unpacked.bodies)
                entries = await asyncio.to_thread(decrypt_bodies, unpacked, key)
        metrics.SEGMENT_READS.labels("s3").inc()
        size = segment.raw_bytes + ENTRY_BYTES * len(entries)
        self._cache[segment.key] = (entries, size)
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._evict(next(iter(self._cache)))
        return entries

    def _evict(self, key: str) -> None:
        _, size = self._cache.pop(key, ((), 0))
        self._bytes -= size
