"""A chat's history is read in both directions while it moves from tier to tier (P6)."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from chatserver import config
from chatserver.cold.bucket import apply_bucket
from chatserver.cold.client import open_s3
from chatserver.container.storage import StorageContainer
from chatserver.hot.chats.eviction import Eviction
from tests.integration.features.attachments.support import cold_settings
from tests.integration.warm.support import Tables
from tests.integration.workers.support import open_container, persister_of, running
from tests.support.servers.processes import eventually
from tests.support.threetiers import LongChat, history_of, walk
from workers.archive.worker import ArchiveWorker

OLD, RECENT, ROUNDS = 1600, 300, 2
HOT = {"log_max": 80, "inbox_max": 80, "chat_idle_s": 1}


async def is_evicted(container: StorageContainer) -> bool:
    """Evict the chat if it was idle for a second; return whether it was evicted."""
    return await Eviction(container.hot).evict_idle(0, container.clock.time() + 60) > 0


@pytest.mark.timeout(400)
async def test_history_is_complete_in_both_directions_while_workers_move_it(
    redis_url: str, tables: Tables, s3: str
) -> None:
    """Each seq is read once with its own text, and the pages come from all three tiers."""
    cold = cold_settings(s3)
    archive = config.Archive(
        retention_s=3600, sweep_interval_s=0.05, segment_entries_min=1, segment_entries_max=100,
        wait_s=0,
    )  # fmt: skip
    async with (
        open_s3(cold) as store,
        open_container(
            redis_url, tables.settings, cold=cold, archive=archive, redis=HOT
        ) as container,
    ):
        await apply_bucket(store, cold)
        chat, history = LongChat(container, OLD, RECENT), history_of(container)
        await chat.prepare()
        seen: Counter[str] = Counter()
        async with (
            running(persister_of(container).run(), "persist"),
            running(ArchiveWorker(container, 0, "a1").run(), "archive"),
        ):
            for number in itertools.count():
                await chat.send_messages(30)
                reader = asyncio.create_task(walk(history, chat, is_down=number % 2 == 0, limit=25))
                await chat.send_messages(30)
                seen += (await reader).pages
                if number == 1:
                    await eventually(lambda: is_evicted(container))
                # The archive worker may be slower than the readers.
                if number >= ROUNDS - 1 and seen["warm"] and seen["cold"]:
                    break

            async def is_archived() -> bool:
                return (await container.manifests.get_top(chat.chat)).seq >= OLD

            await eventually(is_archived)
            await chat.send_messages(60)
            last = [
                await walk(history, chat, is_down=is_down, limit=25) for is_down in (True, False)
            ]

    for one in last:
        assert set(one.pages) == {"hot", "warm", "cold"}
        assert one.messages == chat.head
