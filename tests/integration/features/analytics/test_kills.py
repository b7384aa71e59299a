"""Exports that are killed at any step: the next export completes them."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.integration.features.analytics.support import RECENT_TS, Lake
from tests.support.deadlines import wait_for_exit
from tests.support.servers.processes import eventually_equal

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The failpoints of an export, in the order in which it reaches them.
STEPS = ("after_claim", "before_file", "after_file", "before_record", "after_record", "after_mark")


@pytest.mark.parametrize("step", STEPS)
async def test_export_killed_at_a_step_is_completed_by_the_next(lake: Lake, step: str) -> None:
    """After the kill each message is in the files at most once, and at the end exactly once."""
    chat = await lake.open_direct()
    await lake.put(*chat.texts(80))
    await lake.archive(chat)

    killed = await lake.run("export", CHAT_FAILPOINT=f"analytics.{step}:kill")
    between = lake.seqs(chat)
    files_after_kill = set(lake.files())
    lake.delete_lease()
    done = await lake.run("export")

    assert killed.returncode == -9, killed.stderr
    assert len(between) == len(set(between))
    assert done.returncode == 0, done.stderr
    assert lake.seqs(chat) == list(range(1, 81))
    assert files_after_kill <= set(lake.files())  # these files are kept as valid ones
    assert (await lake.export()).units == 0


async def test_killed_rewrite_is_completed_by_the_next(lake: Lake) -> None:
    """There are existing files and messages that are still in DynamoDB."""
    chat = await lake.open_direct()
    sent = chat.texts(60)
    await lake.put(*sent[:50])
    await lake.archive(chat)
    await lake.export()
    await lake.put(*sent[50:])
    for seq, target in ((61, 1), (62, 49)):
        entry = chat.text(seq, kind="delete", body="", target=target, ts=RECENT_TS + seq)
        await lake.change(sent[target - 1], entry)

    for name in ("after_claim", "before_file", "after_file", "after_file", "before_record"):
        await lake.run("export", "--warm", CHAT_FAILPOINT=f"analytics.{name}:kill")
        lake.delete_lease()
        seqs = lake.seqs(chat)
        assert len(seqs) == len(set(seqs))
        assert set(range(1, 51)) <= set(seqs)
    done = await lake.run("export", "--warm")

    assert done.returncode == 0, done.stderr
    assert lake.seqs(chat) == list(range(1, 61))
    deleted = [row["seq"] for row in lake.rows(chat) if row["is_deleted"]]
    assert deleted == [1, 49]


async def test_worker_exports_archived_messages(lake: Lake) -> None:
    """The first pass of `chatserver worker analytics` exports archived messages at once."""
    chat = await lake.open_direct()
    await lake.put(*chat.texts(20), chat.text(21, ts=RECENT_TS))
    await lake.archive(chat)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli", "worker", "analytics", env=lake.environment()
    )
    try:
        await eventually_equal(lambda: asyncio.to_thread(lake.seqs, chat), list(range(1, 21)))
    finally:
        process.terminate()
        await wait_for_exit(process)

    assert process.returncode == 0
