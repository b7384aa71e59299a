"""The persist worker is killed before each of its calls to Redis and DynamoDB, one by one.

After each kill, the next worker completes what its predecessor started (guarantee P1).
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.domain.inboxes import ListedChat
from chatserver.domain.messages import Audience
from chatserver.hot.bus.gateway_stream import StoredUpdate
from chatserver.hot.chats.eviction import Eviction
from chatserver.hot.chats.message_changes import HiddenMessages
from tests.integration.workers.persist.test_message_changes import commit_change
from tests.integration.workers.persist.test_persist import swap
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    is_drained,
    make_direct,
    make_group,
    persister_of,
    running,
    stored_of,
    texts,
    variables_of,
)
from tests.support import fork_server, store_calls
from tests.support.servers.processes import eventually

DEADLINE_S = 60.0
CALLS_MAX = 200  # more calls than the worker makes
# With small batches and chunks, the worker has batches past the checkpoint.
SMALL = {
    "workers.persist.worker.BATCH_MAX": "3",
    "workers.persist.worker.WRITES_IN_FLIGHT_MAX": "1",
    "workers.persist.chat_queues.CHUNK_MAX": "2",
    "workers.persist.batch_writer.WRITE_MAX": "2",
}
# Calls by which the worker changes Redis and DynamoDB; it makes all of them in each run.
EFFECTS = {
    "batch_write_item", "update_item",
    "record_persisted_seqs", "record_persisting_id", "trim_persisted", "move_checkpoint", "XADD",
}  # fmt: skip


async def send_all(container: StorageContainer, gateway: Gateway, number: int) -> list[Audience]:
    """Commit messages, changes, a dead letter, a read mark and a hidden message in new chats."""
    carol = UserId(f"{CAROL}{number}")
    direct = await make_direct(container, ALICE, carol)
    group = await make_group(container, ALICE, BOB, carol, ref=f"g{number}")
    await gateway.send(direct, *texts(2))
    await gateway.send(group, *texts(2), sender=BOB)
    await commit_change(container, group.chat, BOB, "edit", 1, "changed")
    await commit_change(container, group.chat, BOB, "delete", 2)
    await gateway.send(direct, "two", sender=carol)
    listed = [ListedChat(direct.chat, Seq(0), Seq(0))]
    await container.inboxes.open_user_state(carol, listed, container.hot.get_epoch(0))
    await container.inboxes.mark(carol, direct.chat, Seq(2), Seq(2))
    await HiddenMessages(container.hot).hide(carol, direct.chat, Seq(1))
    await gateway.send(group, "last")
    await gateway.send(direct, "empty", tail=swap(b'"sender":"alice"', b'"sender":""'))
    return [direct, group]


async def run_killed_worker(container: StorageContainer, log: Path, number: int) -> int | None:
    """Run a worker that is killed before call `number`.

    Return its exit code, or None if it persisted everything with fewer calls.
    """
    variables = {
        **SMALL,
        "CHAT_FAILPOINT": f"{store_calls.FAILPOINT}:kill:{number}",
        store_calls.CALLERS: "workers/persist/,hot/bus/gateway_stream.py",
    }
    env = {**os.environ, **variables_of(container), **variables}
    with log.open("wb") as output:
        process = await asyncio.to_thread(
            fork_server.start_process, [*fork_server.CLI, "worker", "persist"], env, output
        )
    try:

        async def has_ended() -> bool:
            return process.poll() is not None or await is_drained(container)

        await eventually(has_ended, DEADLINE_S, "the worker is killed or has persisted everything")
        return process.poll()
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, DEADLINE_S)


def find_notified_tops(gateway: Gateway, chat: ChatId) -> dict[str, int]:
    """Return the newest position that the gateway was notified of, by sender."""
    tops: dict[str, int] = {}
    for update in gateway.received(StoredUpdate):
        if update.chat == chat:
            tops[update.user] = max(update.upto, tops.get(update.user, 0))
    return tops


@pytest.mark.timeout(600)
async def test_persist_worker_killed_before_any_call_leaves_nothing_behind(
    container: StorageContainer, gateway: Gateway, tmp_path: Path
) -> None:
    """`stored` reaches each chat's newest seq, its gateways are notified, and it can be evicted."""
    calls: set[str] = set()
    hot, eviction = container.hot, Eviction(container.hot)
    evict_all = hot.settings.model_copy(update={"chat_idle_s": -60})
    for number in range(1, CALLS_MAX):
        log = tmp_path / f"worker-{number}.log"
        await gateway._gateway_stream.renew()
        chats = await send_all(container, gateway, number)
        code = await run_killed_worker(container, log, number)
        made = log.read_text().split("\n")
        calls.update(made)
        where = f"killed before call {number}: {made[-2:-1]}"
        assert code in (None, -signal.SIGKILL), where
        await hot.call("HSET", hot.keys.lease(0, "persist"), "until_ms", 0)
        async with running(persister_of(container, f"w{number}").run()):
            await eventually(lambda: is_drained(container), DEADLINE_S, where)
        for chat in chats:
            stored, seq = await hot.call("HMGET", hot.keys.chat(chat.chat), "stored", "seq")
            assert stored == seq, where
            found = await stored_of(container, chat.chat)
            assert [message.seq for message in found] == list(range(1, int(seq) + 1)), where
            tops = {message.sender: message.seq for message in found if message.sender != "-"}

            def is_notified(chat: ChatId = chat.chat, tops: dict[str, int] = tops) -> bool:
                sent = find_notified_tops(gateway, chat)
                return all(sent.get(sender, 0) >= seq for sender, seq in tops.items())

            await eventually(is_notified, DEADLINE_S, f"{where}: {tops}")
        old_settings, hot.settings = hot.settings, evict_all
        for chat in chats:
            await container.undelivered_chats.finish([(chat.chat, Seq(CALLS_MAX))])
            await eviction.record_active(0, [chat.chat], 0)
        await eviction.evict_idle(0, container.clock.time())
        hot.settings = old_settings
        for chat in chats:
            assert not await hot.call("EXISTS", hot.keys.log(chat.chat)), where
            left = await hot.call("HKEYS", hot.keys.chat(chat.chat))
            assert left and all(field.startswith(b"#") for field in left), where
        if code is None:
            break
    assert number > 30
    assert calls >= EFFECTS, EFFECTS - calls
