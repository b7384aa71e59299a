"""Detection of archive objects that have no record in the `directory` table. Read-only.

An object's record (`chatserver.warm.archive.manifests`) is written before the object and removed
after it. So any object older than `age_s` must have a record.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import attrs

from chatserver.cold.client import ObjectMissing, ObjectStore
from chatserver.domain.archive_segments import PREFIX
from chatserver.domain.clock import Clock
from chatserver.domain.ids import ChatId
from chatserver.operations.audit.model import RuleFinding
from chatserver.warm.archive.manifests import Manifests

_NAME: Final = re.compile(r"/(\d{20})-(\d{20})(?:\.[^/]*)?\.jsonl\.zst$")


@attrs.define(eq=False, repr=False, kw_only=True)
class ObjectAuditor:
    """Compares the bucket with the records of archive objects."""

    _store: ObjectStore
    _manifests: Manifests
    _age_s: float
    _confirm_s: float
    _clock: Clock
    _sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def iter_chats(self) -> AsyncIterator[list[ChatId]]:
        """Yield, page by page, the chats that have objects in the bucket.

        Includes chats whose objects have no record in `directory`.
        """
        async for page in self._iter_pages(Prefix=f"{PREFIX}/", Delimiter="/"):
            prefixes = [common["Prefix"] for common in page.get("CommonPrefixes", ())]
            yield [ChatId(name.removeprefix(f"{PREFIX}/").rstrip("/")) for name in prefixes]

    async def find_orphans(self, chat: ChatId) -> list[RuleFinding]:
        """Return the objects of a chat that have no record.

        Guarantees:
            Objects that are just being written or removed are not reported.
            Cost: one LIST per 1,000 objects, and a read of their records.

        Raises:
            Unavailable: a store does not respond.
        """
        orphans: list[RuleFinding] = []
        async for page in self._iter_pages(Prefix=f"{PREFIX}/{chat}/"):
            oldest = self._clock.time() - self._age_s
            keys = {
                s3_object["Key"]
                for s3_object in page.get("Contents", ())
                if _get_time(s3_object) <= oldest
            }
            unknown = keys - await self._list_known(chat, keys)
            if unknown:
                # The records may have changed since the objects were listed: read them again.
                await self._sleep(self._confirm_s)
                unknown -= await self._list_known(chat, unknown)
            orphans += [
                _make_finding(chat, key) for key in sorted(unknown) if await self._has_object(key)
            ]
        return orphans

    async def _list_known(self, chat: ChatId, keys: set[str]) -> set[str]:
        ranges = [(int(named[1]), int(named[2])) for key in keys if (named := _NAME.search(key))]
        if not ranges:
            return set()
        # A segment that is replaced between these two Queries is in neither result, so
        # `find_orphans` calls this method twice.
        orphans = {segment.key for segment, _ in await self._manifests.list_orphans(chat)}
        first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
        rows = await self._manifests.list_covering(chat, first, last)
        return orphans | {row.key for row in rows}

    async def _has_object(self, key: str) -> bool:
        try:
            await self._store.call("head_object", Key=key)
        except ObjectMissing:
            return False
        return True

    async def _iter_pages(self, **request: Any) -> AsyncIterator[dict[str, Any]]:
        while True:
            page = await self._store.call("list_objects_v2", **request)
            yield page
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]


def _get_time(listed: dict[str, Any]) -> float:
    modified: datetime.datetime = listed["LastModified"]
    return modified.timestamp()


def _make_finding(chat: ChatId, key: str) -> RuleFinding:
    named = _NAME.search(key)
    first, last = (int(named[1]), int(named[2])) if named else (0, 0)
    return RuleFinding("orphan", chat, first, last, key)
