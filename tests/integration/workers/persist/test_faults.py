"""The persist worker behind a proxy that throttles, fails, hangs and cuts requests to DynamoDB.

The tests check the raw table, read without the proxy and without the product's queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import click
import pytest

from chatserver.cli import dead_letters
from chatserver.container.storage import StorageContainer
from chatserver.domain.ids import ChatId
from chatserver.domain.messages import Audience
from chatserver.errors import Unavailable
from chatserver.hot.bus.gateway_stream import StoredUpdate
from chatserver.warm.dynamo import client
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.integration.warm.messages.shard_support import read_layout
from tests.integration.warm.support import Tables
from tests.integration.workers.persist.test_message_changes import commit_change
from tests.integration.workers.persist.test_persist import swap
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    count_backlog,
    is_drained,
    make_direct,
    make_group,
    open_container,
    persister_of,
    running,
    stored_of,
    texts,
    worker_process,
)
from tests.support.deadlines import wait_for_exit
from tests.support.servers.dynamodb_proxy import (
    Cut,
    DynamoProxy,
    Hang,
    Partly,
    Refuse,
    Storm,
    on_chat,
)
from tests.support.servers.processes import eventually, eventually_equal
from workers.persist import batch_writer

THROTTLED = Refuse("ProvisionedThroughputExceededException")
# The call timeout is long enough that a slow machine does not look like a hanging DynamoDB. The
# lease does not expire, even if this process stalls.
WARM_TIMEOUTS = {"call_timeout_s": 2.0}
ATTEMPTS_MAX = 2
pytestmark = pytest.mark.constants({"chatserver.warm.dynamo.client.ATTEMPTS_MAX": ATTEMPTS_MAX})
PERSIST_TIMEOUTS = {"write_timeout_s": 2.5, "lease_s": 20.0}


@contextlib.asynccontextmanager
async def open_behind_proxy(
    proxy: DynamoProxy,
    container: StorageContainer,
    warm_changes: dict[str, Any] | None = None,
    **persist: Any,
) -> AsyncIterator[StorageContainer]:
    """Open the components of a worker that uses DynamoDB through the proxy."""
    changes = {"endpoint": proxy.endpoint, **WARM_TIMEOUTS, **(warm_changes or {})}
    warm = container.settings.warm.model_copy(update=changes)
    async with open_container(
        container.settings.redis.url, warm, persist={**PERSIST_TIMEOUTS, **persist}
    ) as made:
        yield made


@contextlib.asynccontextmanager
async def persisting_behind(
    proxy: DynamoProxy,
    container: StorageContainer,
    warm_changes: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run a persist worker that uses DynamoDB through the proxy."""
    async with (
        open_behind_proxy(proxy, container, warm_changes, **settings) as others,
        running(persister_of(others).run()) as task,
    ):
        yield task


class ExpectedMessages:
    """Commits entries and records the expected items."""

    def __init__(self, container: StorageContainer, gateway: Gateway) -> None:
        self._container = container
        self._gateway = gateway
        self.bodies: dict[tuple[str, int], str] = {}
        self.tops: Counter[str] = Counter()

    async def send(self, chat: Audience, *bodies: str) -> None:
        await self._gateway.send(chat, *bodies)
        for body in bodies:
            self._record(chat, body)

    async def edit(self, chat: Audience, target: int, body: str) -> None:
        await commit_change(self._container, chat.chat, ALICE, "edit", target, body)
        self._record(chat, body)
        self.bodies[chat.chat, target] = body

    async def delete(self, chat: Audience, target: int) -> None:
        await commit_change(self._container, chat.chat, ALICE, "delete", target)
        self._record(chat, "")
        self.bodies[chat.chat, target] = ""

    def _record(self, chat: Audience, body: str) -> None:
        self.tops[chat.chat] += 1
        self.bodies[chat.chat, self.tops[chat.chat]] = body


def bodies_by_seq(rows: list[Any]) -> dict[tuple[str, int], str]:
    """Return the bodies in the raw table by chat and seq; fail on duplicates."""
    found: dict[tuple[str, int], str] = {}
    for row in rows:
        position = row["chatid"]["S"], int(row["seq"]["N"])
        assert position not in found, f"{position} is stored twice"
        found[position] = row["body"]["S"] if row["kind"]["S"] != "edit" else "edit"
    return found


def get_worker_variables(endpoint: str) -> dict[str, str]:
    """Return the environment variables of a worker process behind the proxy."""
    return {
        "CHAT_WARM_ENDPOINT": endpoint,
        "CHAT_WARM_CALL_TIMEOUT_S": str(WARM_TIMEOUTS["call_timeout_s"]),
        "chatserver.warm.dynamo.client.ATTEMPTS_MAX": str(ATTEMPTS_MAX),
        "CHAT_PERSIST_WRITE_TIMEOUT_S": str(PERSIST_TIMEOUTS["write_timeout_s"]),
        "CHAT_PERSIST_LEASE_S": str(PERSIST_TIMEOUTS["lease_s"]),
        "workers.persist.worker.BATCH_MAX": "4",
        "CHAT_TELEMETRY_LEVEL": "error",
    }


@pytest.mark.timeout(300)
async def test_persist_with_random_faults_and_kills_loses_and_repeats_nothing(
    container: StorageContainer, gateway: Gateway, tables: Tables, fault_proxy: DynamoProxy
) -> None:
    """The table has each acked message once and in its current state."""
    rng, expected_messages = random.Random(5), ExpectedMessages(container, gateway)
    chats = [
        await make_direct(container),
        await make_direct(container, ALICE, CAROL),
        await make_group(container, ALICE, BOB, CAROL),
        await make_group(container, ALICE, BOB, ref="h"),
    ]
    storm = Storm(seed=5, share=0.3)
    fault_proxy.rules.append(storm)

    async def send_random(count: int) -> None:
        for number in range(count):
            chat = rng.choice(chats)
            await expected_messages.send(chat, *texts(rng.randint(1, 9), f"{number}"))
            target = rng.randint(1, expected_messages.tops[chat.chat])
            if (body := expected_messages.bodies[chat.chat, target]) and not body.startswith(
                "changed"
            ):
                if rng.random() < 0.7:
                    await expected_messages.edit(chat, target, f"changed {number}")
                else:
                    await expected_messages.delete(chat, target)

    async def has_made(calls: int) -> bool:
        return len(fault_proxy.calls) >= calls or await is_drained(container)

    await send_random(30)
    kills, env = 0, get_worker_variables(fault_proxy.endpoint)
    while kills < 2:  # only kills with a backlog count, because a fast worker may have finished
        async with worker_process(container, "persist", **env) as worker:
            calls = len(fault_proxy.calls) + rng.randint(5, 30)
            await eventually(lambda least=calls: has_made(least), 60)  # type: ignore[misc]  # mypy does not see that `least` has a default
            await send_random(8)
            worker.send_signal(signal.SIGKILL)
            await wait_for_exit(worker)
        await container.hot.call("HSET", container.hot.keys.lease(0, "persist"), "until_ms", 0)
        kills += await count_backlog(container) > 0
    storm.share = 0.1
    async with persisting_behind(fault_proxy, container):
        await eventually(lambda: is_drained(container), 120)

    expected = expected_messages.bodies
    assert sum(expected_messages.tops.values()) > 200
    rows = bodies_by_seq(await tables.scan("messages"))
    assert rows.keys() == expected.keys()
    wrong = {
        position: (rows[position], body)
        for position, body in expected.items()
        if rows[position] not in (body, "edit")
    }
    assert not wrong
    for chat, top in expected_messages.tops.items():
        stored = await container.hot.call("HGET", container.hot.keys.chat(ChatId(chat)), "stored")
        assert int(stored) == top
    met = {kind.__name__ for kind in (Refuse, Partly, Hang, Cut) if fault_proxy.calls_with(kind)}
    assert len(met) > 1, met  # which kinds is random


@pytest.mark.parametrize("fault", [THROTTLED, Hang(is_done=False)], ids=["throttled", "hanging"])
@pytest.mark.constants({"workers.persist.worker.BATCH_MAX": 2})
async def test_persist_of_one_slow_chat_does_not_block_others(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy, fault: Any
) -> None:
    """Later messages of other chats are stored. The slow chat is stored in order afterwards."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    rule = on_chat(slow.chat, fault)
    fault_proxy.rules.append(rule)

    def get_stored_seq(chat: ChatId) -> int:
        return max((m.upto for m in gateway.received(StoredUpdate) if m.chat == chat), default=0)

    async with persisting_behind(fault_proxy, container) as task:
        for number in range(1, 11):
            await gateway.send(slow, f"slow {number}")
            await gateway.send(other, f"other {number}")
            await eventually(lambda least=number: get_stored_seq(other.chat) >= least)  # type: ignore[misc]  # mypy does not see that `least` has a default
        assert get_stored_seq(slow.chat) == 0
        assert [m.body for m in await stored_of(container, other.chat)] == texts(10, "other")
        assert await count_backlog(container) == 20  # nothing leaves Redis before it is persisted

        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container))

        assert not task.done()
        await eventually(lambda: get_stored_seq(slow.chat) == 10)
    assert [m.body for m in await stored_of(container, slow.chat)] == texts(10, "slow")


@pytest.mark.constants(
    {"workers.persist.worker.BATCH_MAX": 2, "workers.persist.shard_scaling.SHARD_WINDOW_S": 0.05}
)
async def test_throttled_chat_is_sharded_although_no_write_succeeds(
    container: StorageContainer, gateway: Gateway, tables: Tables, fault_proxy: DynamoProxy
) -> None:
    """Attempted writes count, because otherwise a throttled chat would never be sharded."""
    busy = await make_direct(container)
    fault_proxy.rules.append(on_chat(busy.chat, THROTTLED))
    low_limit = {"shard_writes_per_s": 1}

    async with persisting_behind(fault_proxy, container, low_limit):

        async def is_sharded() -> bool:
            await gateway.send(busy, "one more")
            return bool(await read_layout(tables.client, tables.settings, busy.chat))

        await eventually(is_sharded)

        assert await stored_of(container, busy.chat) == []
        fault_proxy.rules.clear()
        await eventually(lambda: is_drained(container))


@pytest.mark.constants(
    {"workers.persist.worker.BATCH_MAX": 2, "workers.persist.worker.AHEAD_MAX": 9}
)
async def test_persist_keeps_a_limited_number_of_entries_ahead_of_a_slow_chat(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """At the limit of entries in memory, the other chats wait too."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    rule = on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)

    async with persisting_behind(fault_proxy, container):
        await gateway.send(slow, "slow")
        for number in range(1, 21):
            await gateway.send(other, f"other {number}")

        async def count() -> int:
            return len(await stored_of(container, other.chat))

        await eventually(lambda: reached(count, 8))
        attempts = len(fault_proxy.calls)
        await eventually(lambda: len(fault_proxy.calls) > attempts + 4)  # the worker keeps retrying
        assert await count() < 12

        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container))
    assert await count() == 20


async def reached(count: Any, least: int) -> bool:
    """Return whether the count is at least `least`."""
    return bool(await count() >= least)


@pytest.mark.constants({"workers.persist.worker.SLOW_CHATS_MAX": 2})
async def test_persist_with_too_many_slow_chats_waits_for_them(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """Above the limit of slow chats, DynamoDB counts as down. No message is lost."""
    chats = [await make_group(container, ALICE, BOB, ref=f"g{n}") for n in range(5)]
    fault_proxy.rules.append(lambda _: THROTTLED)
    async with persisting_behind(fault_proxy, container) as task:
        for chat in chats:
            await gateway.send(chat, *texts(3))
        await eventually(lambda: len(fault_proxy.calls_with(Refuse)) > 12)
        assert await count_backlog(container) == 15

        fault_proxy.rules.clear()
        await eventually(lambda: is_drained(container))

        assert not task.done()
    for chat in chats:
        assert [m.body for m in await stored_of(container, chat.chat)] == texts(3)


@pytest.mark.parametrize("is_progress_known", [True, False])
@pytest.mark.constants(
    # In a new epoch, the worker would read which entries are stored.
    {"workers.persist.worker.BATCH_MAX": 1, "workers.persist.worker.CLOCKS_APART_S_MAX": -86_400}
)
async def test_persist_after_a_takeover_stores_no_outdated_text(
    container: StorageContainer,
    gateway: Gateway,
    fault_proxy: DynamoProxy,
    tables: Tables,
    is_progress_known: bool,
) -> None:
    """The next worker never writes edited or deleted text again.

    This also holds if the previous worker crashed before it recorded its progress.
    """
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    progress = container.hot.keys.progress(0)
    expected_messages, rule = ExpectedMessages(container, gateway), on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)
    async with open_behind_proxy(fault_proxy, container) as others:
        async with running(persister_of(others).run()):
            await expected_messages.send(slow, "slow")
            await expected_messages.send(other, "secret one", "secret two")

            await eventually_equal(lambda: stored_of(container, other.chat), 2, of=len)
            await expected_messages.edit(other, 1, "changed")
            await expected_messages.delete(other, 2)

            async def is_ahead() -> bool:
                found = [m.body for m in await stored_of(container, other.chat)]
                recorded = await container.hot.call("HGET", progress, other.chat)
                return found == ["changed", "", "changed", ""] and recorded == b"4"

            await eventually(is_ahead)
        if not is_progress_known:
            await container.hot.call("DEL", progress)
        fault_proxy.rules.remove(rule)
        fault_proxy.calls.clear()
        async with running(persister_of(others, "w2").run()):
            await eventually(lambda: is_drained(container))
        assert not await container.hot.call("EXISTS", progress)

    sent = str([call.body for call, _ in fault_proxy.calls])
    assert "'slow'" in sent
    assert ("changed" in sent) == (not is_progress_known)
    assert "secret" not in sent
    assert bodies_by_seq(await tables.scan("messages")).keys() == expected_messages.bodies.keys()


@pytest.mark.constants({"workers.persist.worker.WRITES_IN_FLIGHT_MAX": 1})
async def test_persist_ends_although_a_write_fails_when_it_is_cancelled(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the write must not hide from a task that it was cancelled."""
    writing = asyncio.Event()

    async def fail_at_end(*_: Any) -> None:
        writing.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise Unavailable("the connection was closed")

    monkeypatch.setattr(container.messages, "put_batch", fail_at_end)
    worker = asyncio.create_task(persister_of(container).run())
    await Gateway(container.hot).send(await make_direct(container), "text")
    await asyncio.wait_for(writing.wait(), 20)

    worker.cancel()
    await asyncio.wait([worker], timeout=20)

    assert worker.cancelled()


async def test_persist_retried_batch_creates_each_dead_letter_once(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A batch that is written again in parts creates no second dead letter."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    rule = on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)
    # With one write in flight, bad messages are found before or after the slow chat fails.
    async with open_behind_proxy(fault_proxy, container) as others:
        for chat in (other, slow):
            await gateway.send(chat, *texts(30))
            await gateway.send(chat, "invalid", tail=swap(b'"body":"invalid"', b'"body":7'))
            await gateway.send(chat, "empty", tail=swap(b'"sender":"alice"', b'"sender":""'))
        async with running(persister_of(others).run()):
            await eventually_equal(lambda: stored_of(container, other.chat), 32, of=len)
            fault_proxy.rules.remove(rule)
            await eventually(lambda: is_drained(container))

    assert await container.hot.call("XLEN", container.hot.keys.dead(0)) == 4
    capsys.readouterr()
    await dead_letters._list(container.settings, 100)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split("\t")[1] for line in lines) == ["31", "31", "32", "32"]
    with pytest.raises(click.ClickException, match="4 of 4 still cannot be persisted"):
        await dead_letters._replay(container.settings, None)
    for chat in (slow, other):
        found = await container.messages.list_after(chat.chat, 0, 50)
        assert [m.seq for m in found] == list(range(1, 33))
        assert [m.seq for m in found if m.deleted] == [31, 32]


async def test_throttled_calls_are_retried_with_jitter_until_the_deadline(
    container: StorageContainer, fault_proxy: DynamoProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait is random up to a bound that doubles, so that callers do not retry together."""
    waits: list[tuple[int, float]] = []
    backoff_s = client._backoff_s

    def record(attempt: int) -> float:
        waits.append((attempt, backoff_s(attempt)))
        return waits[-1][1]

    monkeypatch.setattr(client, "_backoff_s", record)
    warm = container.settings.warm.model_copy(
        update={"endpoint": fault_proxy.endpoint, "call_timeout_s": 3.0}
    )
    fault_proxy.rules.append(lambda _: THROTTLED)
    async with open_dynamodb(warm) as throttled:
        calls = [throttled.call("list_tables", {"Limit": 1}) for _ in range(6)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    assert len(waits) > 6 * ATTEMPTS_MAX
    for number, wait_s in waits:
        assert 0 <= wait_s <= min(client.RETRY_WAIT_S * 2 ** (number - 1), client.RETRY_WAIT_S_MAX)
    assert len({wait_s for _, wait_s in waits}) == len(waits)


async def test_persist_retries_with_exponential_backoff_and_jitter(
    container: StorageContainer,
    gateway: Gateway,
    fault_proxy: DynamoProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pauses between attempts of a write double up to a bound, each with jitter."""
    pauses: list[float] = []
    jittered_pauses: list[float] = []
    add_jitter = batch_writer.add_jitter  # type: ignore[attr-defined]  # imported there

    def record(seconds: float) -> float:
        pauses.append(seconds)
        jittered_pauses.append(add_jitter(seconds))
        return min(jittered_pauses[-1], 0.02)  # the test checks the pattern without real time

    monkeypatch.setattr(batch_writer, "add_jitter", record)
    team = await make_direct(container)
    rule = on_chat(team.chat, THROTTLED)
    fault_proxy.rules.append(rule)
    # The DynamoDB client retries a throttled call for the timeout.
    async with persisting_behind(fault_proxy, container, write_timeout_s=0.5):
        await gateway.send(team, "hi")
        await eventually(lambda: len(pauses) >= 9)
        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container))

    bound, first = batch_writer.BACKOFF_S_MAX, batch_writer.BACKOFF_S
    assert pauses[:9] == [min(first * 2**n, bound) for n in range(9)]
    assert pauses[8] == bound
    assert all(
        wanted / 2 <= got <= wanted for wanted, got in zip(pauses, jittered_pauses, strict=True)
    )
    assert len({got / wanted for wanted, got in zip(pauses, jittered_pauses, strict=True)}) == len(
        pauses
    )
