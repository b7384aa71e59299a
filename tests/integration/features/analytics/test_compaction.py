"""Compaction: queries see each row once, despite kills, pauses and erasures."""

from __future__ import annotations

import asyncio
import io
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from chatserver.container.storage_feature_ports import REWRITE_EXPORTED
from chatserver.errors import ChatError
from chatserver.features.analytics.cold import ParquetFiles
from chatserver.features.analytics.container import AnalyticsContainer
from chatserver.features.analytics.duckdb_query import query_exported_files
from chatserver.features.analytics.worker import compaction
from chatserver.features.analytics.worker.compaction import CompactionTally, Compactor
from chatserver.features.analytics.worker.export_passes import make_compactor, make_lease
from chatserver.protocol.frames import Message
from tests.integration.features.analytics.support import RECENT_TS, DirectChat, Lake
from tests.support.servers.processes import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

FILES_MIN = 4  # files per date at which these tests compact
COUNTED = "SELECT chat, count(*) AS n, count(DISTINCT seq) AS seqs FROM messages GROUP BY chat"
# The failpoints of a compaction, in the order in which it reaches them.
STEPS = ("after_freeze", "before_compacted", "after_compacted", "after_compacted_rows")


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FILES_MIN", FILES_MIN)


async def compact(lake: Lake) -> CompactionTally:
    lease = make_lease(lake.container, secrets.token_hex(4))
    async with lease.release_on_exit():
        return await make_compactor(lake.container, lease).run()


async def compact_killed(lake: Lake, step: str) -> None:
    """Run a compaction in a process that kills itself at a failpoint."""
    name = "chatserver.features.analytics.worker.compaction.FILES_MIN"
    done = await lake.run(
        "compact", **{name: str(FILES_MIN), "CHAT_FAILPOINT": f"analytics.{step}:kill"}
    )
    assert done.returncode == -9, done.stderr
    lake.delete_lease()


def first_message_of(chat: DirectChat) -> Message:
    """Return the first message of a chat; its text is unique."""
    return chat.text(1, body=text_of(chat))


def text_of(chat: DirectChat) -> str:
    return f"only in {chat.id}"


async def make_files(lake: Lake, count: int = FILES_MIN) -> list[DirectChat]:
    """Export chats of the same date, each in a separate pass."""
    chats = []
    for _ in range(count):
        chat = await lake.open_direct()
        await lake.put(first_message_of(chat), *chat.texts(5, 2))
        await lake.archive(chat)
        await lake.export()
        chats.append(chat)
    return chats


async def query(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    files = lake.container.get(AnalyticsContainer).files
    return list((await query_exported_files(files, sql, 1000)).rows)


async def check_rows(lake: Lake, chats: list[DirectChat]) -> None:
    """Check that a query sees each message of these chats once."""
    found = {chat: (n, seqs) for chat, n, seqs in await query(lake, COUNTED)}
    assert {chat.id: found.get(chat.id) for chat in chats} == {chat.id: (6, 6) for chat in chats}


async def delete_first(lake: Lake, chat: DirectChat) -> None:
    """Delete the first message of a chat, also in the archive."""
    entry = chat.text(7, kind="delete", body="", target=1, ts=RECENT_TS)
    await lake.change(first_message_of(chat), entry)
    await lake.archive(chat)


def iter_counts(lake: Lake) -> Iterator[tuple[str, int]]:
    """Yield each file with its number of rows."""
    for key, data in lake.files().items():
        yield key, pq.read_metadata(io.BytesIO(data)).num_rows


def find_text(lake: Lake, chat: DirectChat) -> list[str]:
    """Return the files that contain the first text of a chat, in their bytes or decoded."""
    text = text_of(chat)
    return [
        key
        for key, data in lake.files().items()
        if text.encode() in data or text in repr(pq.read_table(io.BytesIO(data)).to_pylist())
    ]


async def test_small_files_of_a_date_are_merged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty files remain for a day. Later files are merged into the compacted one."""
    chats = await make_files(lake)
    tally = await compact(lake)
    counts = dict(iter_counts(lake))
    again = await compact(lake)
    await check_rows(lake, chats)
    chats += await make_files(lake, FILES_MIN - 1)
    await check_rows(lake, chats)
    second = await compact(lake)
    await check_rows(lake, chats)
    monkeypatch.setattr(compaction, "KEEP_S", -60.0)
    last = await compact(lake)

    assert (tally.moved, tally.created, tally.deleted) == (FILES_MIN, 1, 0)
    assert sorted(counts.values()) == [0] * FILES_MIN + [6 * FILES_MIN]
    assert (again.moved, again.created) == (0, 0)
    assert (second.moved, second.created) == (FILES_MIN, 1)
    assert last.deleted == 2 * FILES_MIN
    ((key, rows),) = iter_counts(lake)
    assert "/day-" in key and rows == 6 * len(chats)
    await check_rows(lake, chats)


@pytest.mark.parametrize("step", STEPS)
async def test_compaction_killed_at_a_step_is_completed_by_the_next(lake: Lake, step: str) -> None:
    """A query sees each row once after the kill, and after the next pass."""
    chats = await make_files(lake)

    await compact_killed(lake, step)
    await check_rows(lake, chats)
    await compact(lake)

    await check_rows(lake, chats)
    await compact(lake)
    assert sorted(rows for _, rows in iter_counts(lake) if rows) == [6 * FILES_MIN]


@pytest.mark.parametrize("step", ["", *STEPS])
async def test_deleted_text_is_removed_from_all_files_after_any_compaction(
    lake: Lake, step: str
) -> None:
    """Erasure finds rows in the compacted file and cancels an interrupted compaction."""
    chats = await make_files(lake)
    if step:
        await compact_killed(lake, step)
    else:
        await compact(lake)
    await delete_first(lake, chats[0])
    assert find_text(lake, chats[0]) != []

    await lake.container.get_port(REWRITE_EXPORTED)([chats[0].id])

    assert find_text(lake, chats[0]) == []
    await check_rows(lake, chats)
    await compact(lake)
    await check_rows(lake, chats)
    assert find_text(lake, chats[0]) == []
    deleted = "SELECT chat, seq FROM messages WHERE is_deleted"
    assert await query(lake, deleted) == [(chats[0].id, 1)]


class PausedFiles(ParquetFiles):
    """Files that pause before the compacted file is created, until `resume` is set."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.container.store)
        self.is_paused, self.resume = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, data: bytes, etag: str | None) -> str:
        if "/day-" in key:
            self.is_paused.set()
            await self.resume.wait()
        return await super().put(key, data, etag)


async def test_paused_compaction_does_not_restore_deleted_text(lake: Lake) -> None:
    """The text is erased after the compaction read it, so the write of its file is refused."""
    chats = await make_files(lake)
    files = PausedFiles(lake)
    lease = make_lease(lake.container, "paused")
    paused = Compactor(files=files, lease=lease, clock=lake.container.clock)
    task = asyncio.create_task(paused.run())
    await files.is_paused.wait()
    await delete_first(lake, chats[0])

    await lake.container.get_port(REWRITE_EXPORTED)([chats[0].id])
    files.resume.set()
    tally = await task
    await lease.release()

    assert tally.created == 0
    assert find_text(lake, chats[0]) == []
    await check_rows(lake, chats)
    assert (await compact(lake)).created == 1
    await check_rows(lake, chats)
    assert find_text(lake, chats[0]) == []


async def test_concurrent_compactions_move_each_row_once(lake: Lake) -> None:
    """A second compaction completes the work of a paused one, which then changes nothing."""
    chats = await make_files(lake)
    files = PausedFiles(lake)
    lease = make_lease(lake.container, "paused")
    paused = Compactor(files=files, lease=lease, clock=lake.container.clock)
    task = asyncio.create_task(paused.run())
    await files.is_paused.wait()
    lake.delete_lease()

    await compact(lake)
    await check_rows(lake, chats)
    files.resume.set()
    await asyncio.gather(task, return_exceptions=True)

    await check_rows(lake, chats)
    lake.delete_lease()
    await compact(lake)
    await check_rows(lake, chats)
    assert sorted(rows for _, rows in iter_counts(lake) if rows) == [6 * FILES_MIN]


async def test_queries_during_compaction_see_each_row_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are created, moved and deleted while queries run."""
    monkeypatch.setattr(compaction, "KEEP_S", -60.0)
    chats = await make_files(lake)
    is_done, results = asyncio.Event(), 0

    async def query_repeatedly() -> None:
        nonlocal results
        while not is_done.is_set():
            try:
                await check_rows(lake, chats[:FILES_MIN])
            except ChatError as exc:
                assert "being compacted" in exc.message  # temporary: query again
                continue
            results += 1

    async def compact_repeatedly() -> None:
        for _ in range(3):
            await compact(lake)
            chats.extend(await make_files(lake, FILES_MIN - 1))
        await eventually(has_results, what="queries succeed")
        is_done.set()

    async def has_results() -> bool:
        return results >= 3

    await asyncio.gather(query_repeatedly(), compact_repeatedly())

    await check_rows(lake, chats)
