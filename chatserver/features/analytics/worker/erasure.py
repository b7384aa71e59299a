"""Rewriting of Parquet files after the erasure of a user.

The erasure has already deleted the user's messages in all tiers and rewritten the archive. This
module compares the exported units (ranges of entries) of the user's chats with the tiers, and
rewrites the files of units that differ. The files then no longer contain the user's message text,
nor the user ID as sender or receiver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from chatserver.container.storage import StorageContainer
from chatserver.container.storage_feature_ports import RewriteExported
from chatserver.domain.ids import ChatId
from chatserver.errors import ConfigError, Unavailable
from chatserver.features.analytics.container import AnalyticsContainer
from chatserver.features.analytics.package_check import check_extra
from chatserver.features.analytics.worker.export_passes import make_exporter, make_source
from chatserver.telemetry.failpoints import failpoint

TRIES_MAX: Final = 20
RETRY_S: Final = 0.1


def make_rewriter(container: StorageContainer) -> RewriteExported:
    """Return a function that calls `rewrite_chat` for each chat and returns the number of files."""

    async def rewrite(chats: Collection[ChatId]) -> int:
        return sum([await rewrite_chat(container, chat) for chat in sorted(chats)])

    return rewrite


async def rewrite_chat(container: StorageContainer, chat: ChatId) -> int:
    """Rewrite the Parquet files of a chat that are outdated; return how many were rewritten.

    Guarantees:
        Idempotent. On return, no file contains text that was deleted before the call.
        Cost: one or two small reads per exported unit (range of entries). Unarchived units are
            read completely.

    Raises:
        Unavailable: a store does not respond, or the files cannot be written; retry.
    """
    files = 0
    for _ in range(TRIES_MAX):
        written, is_postponed = await _rewrite_once(container, chat)
        files += written
        if not is_postponed:
            return files
        await asyncio.sleep(RETRY_S)
    raise Unavailable(f"analytics: the files of chat {chat} cannot be written now; try again")


async def _rewrite_once(container: StorageContainer, chat: ChatId) -> tuple[int, bool]:
    """Rewrite outdated files; return how many, and whether some could not be written now."""
    state, source = container.get(AnalyticsContainer).state, make_source(container)
    exporter = make_exporter(container, source)
    is_postponed = False
    async for page in state.iter_units_down(chat):
        for unit in page:
            if unit.version and unit.version == await source.find_version(unit):
                continue
            try:
                check_extra()
            except ConfigError as exc:
                raise Unavailable(
                    exc.problems[0],
                    public="the files of the analytics export cannot be written now; try again",
                ) from exc
            await exporter.add(unit)
            if exporter.is_full:
                is_postponed |= bool(await exporter.flush())
                failpoint("analytics.in_erasure")
    is_postponed |= bool(await exporter.flush())
    return exporter.tally.files, is_postponed
