"""A busy chat is sharded and unsharded under load, with suspended and killed workers.

Two worker processes on real stores measure the load of the test: above the limit of a partition,
then far below it, then above it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import UserId
from chatserver.domain.messages import Audience
from chatserver.domain.write_sharding import Layout
from chatserver.protocol.frames import Message
from chatserver.warm.messages.message_indexes import MessageIndexes
from chatserver.warm.messages.messages import Messages
from tests.integration.warm.messages.shard_support import raw_seqs, read_layout
from tests.integration.warm.support import Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    Gateway,
    is_drained,
    make_direct,
    open_container,
    running,
    texts,
    worker_process,
)
from tests.support.servers.processes import eventually

REFRESH_S = 0.3
SHARDS = {"shard_writes_per_s": 5, "shards_max": 4}
SHARD_TIMES = {
    "workers.persist.shard_scaling.SHARD_WINDOW_S": 0.2,
    "workers.persist.shard_scaling.SHARD_CALM_S": 0.3,
    "chatserver.warm.messages.sharded_chats.SHARD_REFRESH_S": REFRESH_S,
}
pytestmark = pytest.mark.constants(SHARD_TIMES)
ENV = {f"CHAT_WARM_{name.upper()}": str(value) for name, value in SHARDS.items()} | {
    **{name: str(value) for name, value in SHARD_TIMES.items()},
    "CHAT_PERSIST_LEASE_S": "4",  # of a suspended lease holder
    "CHAT_PERSIST_WRITE_TIMEOUT_S": "3",  # enough for a slow machine
    "workers.persist.worker.IDLE_MS": "50",
}
BUSY, CALM = (10, 0.05), (1, 0.6)  # messages that are sent together, and the pause after them


@pytest.fixture
async def sharding_container(redis_url: str, tables: Tables) -> AsyncIterator[StorageContainer]:
    """The components of a process with these settings, which sends and reads."""
    warm = tables.settings.model_copy(update=SHARDS)
    async with open_container(redis_url, warm) as made:
        yield made


class Load:
    """Sends to a chat at a given rate until stopped."""

    def __init__(self, gateway: Gateway, team: Audience) -> None:
        self.pace = BUSY
        self.sent = 0
        self.is_stopping = False
        self._gateway = gateway
        self._team = team

    async def run(self) -> None:
        """Send until stopped; each message is acked."""
        while not self.is_stopping:
            count, pause_s = self.pace
            sender = ALICE if self.sent % 3 else BOB
            await self._gateway.send(self._team, *texts(count), sender=sender)
            self.sent += count
            await asyncio.sleep(pause_s)  # the rate of the load


class Follower:
    """Reads stored messages of a chat continuously; checks that each comes once and in order."""

    def __init__(self, messages: Messages, chat: str) -> None:
        self.found: list[Message] = []
        self._messages = messages
        self._chat = chat

    async def run(self) -> None:
        """Read until canceled."""
        while True:
            last = self.found[-1] if self.found else None
            after, ts = (last.seq, last.ts) if last else (0, None)
            page = await self._messages.list_after(self._chat, after, 100, ts)
            assert [each.seq for each in page] == list(range(after + 1, after + 1 + len(page)))
            self.found += page
            if not page:
                await asyncio.sleep(0.02)  # no notification of stored messages


def worker(container: StorageContainer, failpoint: str) -> AbstractAsyncContextManager[Any]:
    """Run a worker process that is suspended or killed at a failpoint."""
    return worker_process(container, "persist", **ENV, CHAT_FAILPOINT=failpoint)


def is_suspended(process: Any) -> bool:
    """Return whether a process is suspended by SIGSTOP."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def has_shards(
    container: StorageContainer, tables: Tables, team: Audience, shards: int
) -> Callable[[], Awaitable[bool]]:
    """Return a check that the chat has `shards` shards and that a message was stored on them."""

    async def check() -> bool:
        layout = await read_layout(tables.client, tables.settings, team.chat)
        head = await container.messages.find_head(team.chat)
        return layout.shards == shards and head is not None and head.ts > layout.from_ts

    return check


@pytest.mark.timeout(400)
async def test_sharding_changes_under_load_lose_and_repeat_no_message(
    sharding_container: StorageContainer, tables: Tables
) -> None:
    """One worker is suspended during a change and resumed later; another is killed after one."""
    container = sharding_container
    gateway = Gateway(container.hot)
    team = await make_direct(container)
    load, follower = Load(gateway, team), Follower(container.messages, team.chat)
    async with contextlib.AsyncExitStack() as stack:
        suspended = await stack.enter_async_context(worker(container, "shards.before_reshard:stop"))
        lease = container.hot.keys.lease(0, "persist")
        await eventually(lambda: container.hot.call("HGET", lease, "owner"), 90)
        sending = await stack.enter_async_context(running(load.run(), "load"))
        await stack.enter_async_context(running(follower.run(), "follower"))
        # It has computed the start of the period and is suspended before it writes it.
        await eventually(lambda: is_suspended(suspended), 60)
        killed = await stack.enter_async_context(worker(container, "shards.after_reshard:kill:2"))
        await eventually(has_shards(container, tables, team, 4), 90)
        load.pace = CALM
        assert await asyncio.wait_for(killed.wait(), 60) == -signal.SIGKILL

        suspended.send_signal(signal.SIGCONT)
        await eventually(has_shards(container, tables, team, 1), 60)
        load.pace = BUSY
        await eventually(has_shards(container, tables, team, 4), 60)
        load.is_stopping = True
        await sending
        await eventually(lambda: is_drained(container), 60)
        sent = int(await container.hot.call("HGET", container.hot.keys.chat(team.chat), "seq"))
        await eventually(lambda: len(follower.found) == sent, 30)

    layout = await read_layout(tables.client, tables.settings, team.chat)
    assert len(layout.periods) >= 3
    await assert_complete(container, tables, team, layout, sent)


async def assert_complete(
    container: StorageContainer, tables: Tables, team: Audience, layout: Layout, sent: int
) -> None:
    """Check that each entry is stored once in its shard, and that every query returns it once."""
    raw = await raw_seqs(tables.client, tables.settings, team.chat)
    every = list(range(1, sent + 1))
    assert sorted(seq for each in raw.values() for seq in each) == every
    assert set(raw) <= {team.chat, *(f"{team.chat}#{n}" for n in range(4))}
    assert len(raw) > 2, "the chat was not sharded"

    down: list[Message] = []
    while not down or down[0].seq > 1:
        before = down[0].seq if down else None
        down = [*await container.messages.list_before(team.chat, before, 150), *down]
    assert [each.seq for each in down] == every
    queries = MessageIndexes(tables.client)

    async def seqs_of(read: Any, of: str, sender: UserId | None = None) -> None:
        found: list[int] = []
        start = None
        while True:
            page = await read(of, limit=190, start=start, newest_first=False)
            found += [each.seq for each in page.items]
            if (start := page.next) is None:
                break
        assert found == [m.seq for m in down if sender in (None, m.sender)]

    await seqs_of(queries.list_chat, team.chat)
    await seqs_of(queries.list_active, team.chat)
    await seqs_of(queries.list_sent, ALICE, ALICE)
    await seqs_of(queries.list_received, ALICE, BOB)
    assert all(layout.get_shards_at(m.ts) == 1 or m.seq not in raw[team.chat] for m in down), (
        "an entry of a sharded period is in the chat's own partition"
    )
