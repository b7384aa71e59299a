"""Fairness of the persist worker: a busy or slow chat does not block the others."""

from __future__ import annotations

from collections import Counter

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, GatewayId
from chatserver.domain.messages import Audience
from chatserver.hot.bus.gateway_stream import StoredUpdate
from chatserver.hot.chats.persist_backlog import Backlog, CommitEntry, CommittedMessage
from tests.integration.workers.persist.test_faults import (
    THROTTLED,
    open_behind_proxy,
    persisting_behind,
)
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    is_drained,
    make_direct,
    make_group,
    persist,
    persister_of,
    running,
    stored_of,
    texts,
)
from tests.support.servers.dynamodb_proxy import DynamoProxy, on_chat
from tests.support.servers.processes import eventually, eventually_equal
from workers.persist import backlog_pieces
from workers.persist.batch_changes import EntryWrite

FLOOD = 2_500


async def get_stored_seq(container: StorageContainer, chat: ChatId) -> int:
    """Return the seq up to which a chat is stored."""
    return int(await container.hot.call("HGET", container.hot.keys.chat(chat), "stored") or 0)


def is_reported(gateway: Gateway, chat: Audience) -> bool:
    """Return whether the gateway has received `stored` for the chat's only message."""
    return any(record.chat == chat.chat for record in gateway.received(StoredUpdate))


async def test_persist_of_a_busy_chat_does_not_block_others(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """A message after thousands of messages of another chat is stored before them."""
    busy, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(busy, *texts(FLOOD))
    await gateway.send(other, "hi")
    written = 0

    async def other_stored() -> bool:
        nonlocal written
        written = await get_stored_seq(container, busy.chat)
        return is_reported(gateway, other)

    async with persisting_behind(fault_proxy, container):
        await eventually(other_stored, 60)
        await eventually(lambda: is_drained(container), 120)

    assert written < FLOOD / 5
    assert [m.body for m in await stored_of(container, busy.chat)] == texts(FLOOD)


async def test_persist_reads_which_sends_wait_for_stored_durability(
    container: StorageContainer, gateway: Gateway
) -> None:
    """The backlog marks them. They are stored and read like other messages."""
    direct, group = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    for chat in (direct, group):
        await gateway.send(chat, "hot")
        await gateway.send(chat, "stored", is_stored_wanted=True)
    entries = await Backlog(container.hot, 0).list_after("0-0", 10)
    found = [raw for entry in entries if isinstance(entry, CommitEntry) for raw in entry.messages]

    await persist(container)

    assert [raw.is_awaited for raw in found] == [False, True, False, True]
    assert [raw.receiver for raw in found] == [BOB, BOB, None, None]
    for chat in (direct, group):
        assert [m.body for m in await stored_of(container, chat.chat)] == ["hot", "stored"]


@pytest.mark.constants(
    {"workers.persist.worker.AHEAD_BYTES_MAX": 10000, "workers.persist.worker.BATCH_MAX": 1}
)
async def test_persist_of_a_slow_chat_above_the_memory_limit_does_not_block_others(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """The backlog of a slow chat stays in Redis and is stored in order later."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(slow, *texts(600, "slow"))
    await gateway.send(other, "hi")
    rule = on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)

    async with persisting_behind(fault_proxy, container):
        await eventually(lambda: is_reported(gateway, other), 60)
        assert await get_stored_seq(container, slow.chat) == 0
        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container), 60)

    assert [m.body for m in await stored_of(container, slow.chat)] == texts(600, "slow")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """Counts how often each entry is decoded, by (chat, seq)."""
    counts: Counter[tuple[str, int]] = Counter()
    decode = backlog_pieces._decode

    def count(gateway: GatewayId, raw: CommittedMessage) -> EntryWrite | None:
        work = decode(gateway, raw)
        assert work is not None
        counts[work.chat, raw.seq] += 1
        return work

    monkeypatch.setattr(backlog_pieces, "_decode", count)
    return counts


@pytest.mark.parametrize("has_slow_chat", [False, True])
@pytest.mark.constants(
    {"workers.persist.worker.AHEAD_BYTES_MAX": 30000, "workers.persist.worker.BATCH_MAX": 24}
)
async def test_persist_of_a_backlog_above_the_memory_limit_decodes_each_entry_at_most_twice(
    container: StorageContainer,
    gateway: Gateway,
    fault_proxy: DynamoProxy,
    decoded: Counter[tuple[str, int]],
    has_slow_chat: bool,
) -> None:
    """The number of reads does not depend on the number of chats, even with a slow chat."""
    slow = await make_direct(container)
    groups = [await make_group(container, ALICE, BOB, ref=f"g{n}") for n in range(12)]
    if has_slow_chat:
        await gateway.send(slow, *texts(100, "slow"))
        fault_proxy.rules.append(rule := on_chat(slow.chat, THROTTLED))
    for _ in range(15):
        for group in groups:
            await gateway.send(group, *texts(5))

    async def others_stored() -> bool:
        return all([await get_stored_seq(container, group.chat) == 75 for group in groups])

    async with persisting_behind(fault_proxy, container):
        await eventually(others_stored, 60)
        if has_slow_chat:
            fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container), 60)

    of_groups = [decoded[group.chat, seq] for group in groups for seq in range(1, 76)]
    assert {1} <= set(of_groups) <= {1, 2}
    for group in groups:
        assert [m.body for m in await stored_of(container, group.chat)] == texts(5) * 15


@pytest.mark.constants({"workers.persist.worker.BATCH_MAX": 2})
async def test_next_persist_worker_continues_at_the_position_of_each_chat(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """Messages that a stopped worker stored are not written again."""
    slow, busy = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    await gateway.send(slow, "slow")
    await gateway.send(busy, *texts(500))
    rule = on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)

    partition = container.hot.keys.get_partition(busy.chat)

    async with open_behind_proxy(fault_proxy, container) as others:
        async with running(persister_of(others).run()):
            await eventually_equal(
                Backlog(container.hot, partition).get_progress,
                500,
                of=lambda found: found.get(busy.chat),
            )
        fault_proxy.rules.remove(rule)
        fault_proxy.calls.clear()
        async with running(persister_of(others, "w2").run()):
            await eventually(lambda: is_drained(container), 60)

    assert busy.chat not in {chat for call, _ in fault_proxy.calls for chat in call.chats}
    assert [m.body for m in await stored_of(container, slow.chat)] == ["slow"]
    assert [m.body for m in await stored_of(container, busy.chat)] == texts(500)
