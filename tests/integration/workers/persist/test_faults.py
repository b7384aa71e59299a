"""The persist worker against a DynamoDB that throttles, fails, hangs and cuts, before the real one.

What is judged afterwards is the raw table, read past the proxy and past our own reading code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
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
from chatserver.warm.dynamo.client import open_dynamodb
from tests.integration.warm.messages.shard_support import layout_in
from tests.integration.warm.support import Tables
from tests.integration.workers.persist.test_message_changes import amend
from tests.integration.workers.persist.test_persist import swap
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    is_drained,
    make_direct,
    make_group,
    open_container,
    persister_of,
    running,
    stored_of,
    texts,
    variables_of,
    waiting_in,
)
from tests.support.servers.dynamodb_proxy import (
    Cut,
    DynamoProxy,
    Hang,
    Partly,
    Refuse,
    Storm,
    on_chat,
)
from tests.support.servers.processes import eventually
from workers.persist import batch_writer

pytest_plugins = ["tests.integration.warm.fixtures", "tests.integration.workers.fixtures"]

THROTTLED = Refuse("ProvisionedThroughputExceededException")
# A call gives up after a second of silence: no sooner, so that a machine that is slow is not taken
# for a store that hangs. The lease is nobody else's, however long this process is held up.
HASTY = {"call_timeout_s": 2.0}
ATTEMPTS_MAX = 2
pytestmark = pytest.mark.constants({"chatserver.warm.dynamo.client.ATTEMPTS_MAX": ATTEMPTS_MAX})
SHORT = {"write_timeout_s": 2.5, "lease_s": 20.0}


@pytest.fixture
async def fault_proxy(dynamodb: str) -> AsyncIterator[DynamoProxy]:
    """A proxy before the test run's DynamoDB."""
    async with DynamoProxy(dynamodb) as made:
        yield made


@contextlib.asynccontextmanager
async def behind(
    proxy: DynamoProxy,
    container: StorageContainer,
    warm_changes: dict[str, Any] | None = None,
    **persist: Any,
) -> AsyncIterator[StorageContainer]:
    """The parts of a worker that reaches DynamoDB through the proxy only."""
    changes = {"endpoint": proxy.endpoint, **HASTY, **(warm_changes or {})}
    warm = container.settings.warm.model_copy(update=changes)
    async with open_container(
        container.settings.redis.url, warm, persist={**SHORT, **persist}
    ) as made:
        yield made


class Ledger:
    """Committed entries, and the expected items."""

    def __init__(self, container: StorageContainer, gateway: Gateway) -> None:
        self._container = container
        self._gateway = gateway
        self.bodies: dict[tuple[str, int], str] = {}
        self.tops: Counter[str] = Counter()

    async def send(self, chat: Audience, *bodies: str) -> None:
        await self._gateway.send(chat, *bodies)
        for body in bodies:
            self._note(chat, body)

    async def edit(self, chat: Audience, target: int, body: str) -> None:
        await amend(self._container, chat.chat, ALICE, "edit", target, body)
        self._note(chat, body)
        self.bodies[chat.chat, target] = body

    async def delete(self, chat: Audience, target: int) -> None:
        await amend(self._container, chat.chat, ALICE, "delete", target)
        self._note(chat, "")
        self.bodies[chat.chat, target] = ""

    def _note(self, chat: Audience, body: str) -> None:
        self.tops[chat.chat] += 1
        self.bodies[chat.chat, self.tops[chat.chat]] = body


def found_in(rows: list[Any]) -> dict[tuple[str, int], str]:
    """The body at each place of the raw table; a place that is there twice fails."""
    found: dict[tuple[str, int], str] = {}
    for row in rows:
        place = row["chatid"]["S"], int(row["seq"]["N"])
        assert place not in found, f"{place} is stored twice"
        found[place] = row["body"]["S"] if row["kind"]["S"] != "edit" else "edit"
    return found


@contextlib.asynccontextmanager
async def worker_process(container: StorageContainer, endpoint: str) -> AsyncIterator[Any]:
    """A worker as operators run it, killed at the end."""
    variables = {
        "CHAT_WARM_ENDPOINT": endpoint,
        "CHAT_WARM_CALL_TIMEOUT_S": str(HASTY["call_timeout_s"]),
        "chatserver.warm.dynamo.client.ATTEMPTS_MAX": str(ATTEMPTS_MAX),
        "CHAT_PERSIST_WRITE_TIMEOUT_S": str(SHORT["write_timeout_s"]),
        "CHAT_PERSIST_LEASE_S": str(SHORT["lease_s"]),
        "workers.persist.worker.BATCH_MAX": "4",
        "CHAT_TELEMETRY_LEVEL": "error",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.cli", "worker", "persist",
        env={**os.environ, **variables_of(container), **variables},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.timeout(300)
async def test_persist_in_a_storm_of_faults_and_kills_loses_and_repeats_nothing(
    container: StorageContainer, gateway: Gateway, tables: Tables, fault_proxy: DynamoProxy
) -> None:
    """Each acked message stands in the table once, as it is now, and nothing else (F4, F21-F23)."""
    dice, ledger = random.Random(5), Ledger(container, gateway)
    chats = [
        await make_direct(container),
        await make_direct(container, ALICE, CAROL),
        await make_group(container, ALICE, BOB, CAROL),
        await make_group(container, ALICE, BOB, ref="h"),
    ]
    storm = Storm(seed=5, share=0.3)
    fault_proxy.rules.append(storm)

    async def talk(count: int) -> None:
        for number in range(count):
            chat = dice.choice(chats)
            await ledger.send(chat, *texts(dice.randint(1, 9), f"{number}"))
            target = dice.randint(1, ledger.tops[chat.chat])
            if (body := ledger.bodies[chat.chat, target]) and not body.startswith("changed"):
                if dice.random() < 0.7:
                    await ledger.edit(chat, target, f"changed {number}")
                else:
                    await ledger.delete(chat, target)

    async def has_made(calls: int) -> bool:
        return len(fault_proxy.calls) >= calls or await is_drained(container)

    await talk(30)
    kills = 0
    while kills < 2:  # of one that had more to do; a quick one may have done all
        async with worker_process(container, fault_proxy.endpoint) as worker:
            enough = len(fault_proxy.calls) + dice.randint(5, 30)
            await eventually(lambda least=enough: has_made(least), 60)  # type: ignore[misc]  # mypy does not see that `least` has a default
            await talk(8)
            worker.send_signal(signal.SIGKILL)
            await worker.wait()
        await container.hot.call("HSET", container.hot.keys.lease(0, "persist"), "until_ms", 0)
        kills += await waiting_in(container) > 0
    storm.share = 0.1
    async with behind(fault_proxy, container) as others, running(persister_of(others, "w9").run()):
        await eventually(lambda: is_drained(container), 120)

    expected = ledger.bodies
    assert sum(ledger.tops.values()) > 200
    rows = found_in(await tables.scan("messages"))
    assert rows.keys() == expected.keys()
    wrong = {
        place: (rows[place], body)
        for place, body in expected.items()
        if rows[place] not in (body, "edit")
    }
    assert not wrong
    for chat, top in ledger.tops.items():
        stored = await container.hot.call("HGET", container.hot.keys.chat(ChatId(chat)), "stored")
        assert int(stored) == top
    met = {kind.__name__ for kind in (Refuse, Partly, Hang, Cut) if fault_proxy.met(kind)}
    assert len(met) > 1, met  # which of them, chance decides


@pytest.mark.parametrize("fault", [THROTTLED, Hang(is_done=False)], ids=["throttled", "hanging"])
@pytest.mark.constants({"workers.persist.worker.BATCH_MAX": 2})
async def test_persist_of_one_slow_chat_does_not_stop_the_others(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy, fault: Any
) -> None:
    """Later messages of other chats are stored meanwhile; then it catches up in order."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    rule = on_chat(slow.chat, fault)
    fault_proxy.rules.append(rule)

    def told(chat: ChatId) -> int:
        return max((m.upto for m in gateway.received(StoredUpdate) if m.chat == chat), default=0)

    async with (
        behind(fault_proxy, container) as others,
        running(persister_of(others).run()) as task,
    ):
        for number in range(1, 11):
            await gateway.send(slow, f"slow {number}")
            await gateway.send(other, f"other {number}")
            await eventually(lambda least=number: told(other.chat) >= least)  # type: ignore[misc]  # mypy does not see that `least` has a default
        assert told(slow.chat) == 0
        assert [m.body for m in await stored_of(container, other.chat)] == texts(10, "other")
        assert await waiting_in(container) == 20  # nothing leaves Redis before it is persisted

        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container))

        assert not task.done()
        await eventually(lambda: told(slow.chat) == 10)
    assert [m.body for m in await stored_of(container, slow.chat)] == texts(10, "slow")


@pytest.mark.constants(
    {"workers.persist.worker.BATCH_MAX": 2, "workers.persist.shard_scaling.SHARD_WINDOW_S": 0.05}
)
async def test_chat_that_is_throttled_is_spread_although_nothing_of_it_is_written(
    container: StorageContainer, gateway: Gateway, tables: Tables, fault_proxy: DynamoProxy
) -> None:
    """Attempted writes count: otherwise a throttled chat would never be sharded."""
    busy = await make_direct(container)
    fault_proxy.rules.append(on_chat(busy.chat, THROTTLED))
    eager = {"shard_writes_per_s": 1}

    async with (
        behind(fault_proxy, container, eager) as others,
        running(persister_of(others).run()),
    ):

        async def is_spread() -> bool:
            await gateway.send(busy, "one more")
            return bool(await layout_in(tables.client, tables.settings, busy.chat))

        await eventually(is_spread)

        assert await stored_of(container, busy.chat) == []
        fault_proxy.rules.clear()
        await eventually(lambda: is_drained(container))


@pytest.mark.constants(
    {"workers.persist.worker.BATCH_MAX": 2, "workers.persist.worker.AHEAD_MAX": 9}
)
async def test_persist_of_a_slow_chat_goes_only_so_far_ahead(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """Entries kept in memory are bounded: then the others wait, too."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    rule = on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)

    async with (
        behind(fault_proxy, container) as others,
        running(persister_of(others).run()),
    ):
        await gateway.send(slow, "slow")
        for number in range(1, 21):
            await gateway.send(other, f"other {number}")

        async def count() -> int:
            return len(await stored_of(container, other.chat))

        await eventually(lambda: reached(count, 8))
        tries = len(fault_proxy.calls)
        await eventually(lambda: len(fault_proxy.calls) > tries + 4)  # it keeps trying
        assert await count() < 12

        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container))
    assert await count() == 20


async def reached(count: Any, least: int) -> bool:
    """Whether there are so many."""
    return bool(await count() >= least)


@pytest.mark.constants({"workers.persist.worker.SLOW_CHATS_MAX": 2})
async def test_persist_of_more_slow_chats_than_it_may_keep_waits_for_them(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy
) -> None:
    """When everything fails it is the store that is down: nothing is lost, and all is caught up."""
    chats = [await make_group(container, ALICE, BOB, ref=f"g{n}") for n in range(5)]
    fault_proxy.rules.append(lambda _: THROTTLED)
    async with (
        behind(fault_proxy, container) as others,
        running(persister_of(others).run()) as task,
    ):
        for chat in chats:
            await gateway.send(chat, *texts(3))
        await eventually(lambda: len(fault_proxy.met(Refuse)) > 12)
        assert await waiting_in(container) == 15

        fault_proxy.rules.clear()
        await eventually(lambda: is_drained(container))

        assert not task.done()
    for chat in chats:
        assert [m.body for m in await stored_of(container, chat.chat)] == texts(3)


@pytest.mark.parametrize("is_progress_known", [True, False])
@pytest.mark.constants({"workers.persist.worker.BATCH_MAX": 1})
async def test_persist_successor_of_one_that_was_ahead_stores_no_text_of_before(
    container: StorageContainer,
    gateway: Gateway,
    fault_proxy: DynamoProxy,
    tables: Tables,
    is_progress_known: bool,
) -> None:
    """Edited or deleted text never reappears in the warm tier, not even briefly (I15).

    Nor if the predecessor died before it noted what it had written.
    """
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    progress = container.hot.keys.progress(0)
    ledger, rule = Ledger(container, gateway), on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)
    async with behind(fault_proxy, container) as others:
        async with running(persister_of(others).run()):
            await ledger.send(slow, "slow")
            await ledger.send(other, "secret one", "secret two")

            async def is_stored() -> bool:
                return len(await stored_of(container, other.chat)) == 2

            await eventually(is_stored)
            await ledger.edit(other, 1, "changed")
            await ledger.delete(other, 2)

            async def is_ahead() -> bool:
                found = [m.body for m in await stored_of(container, other.chat)]
                noted = await container.hot.call("HGET", progress, other.chat)
                return found == ["changed", "", "changed", ""] and noted == b"4"

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
    assert found_in(await tables.scan("messages")).keys() == ledger.bodies.keys()


@pytest.mark.constants({"workers.persist.worker.WRITES_IN_FLIGHT_MAX": 1})
async def test_persist_poison_in_a_batch_that_fails_is_buried_once(
    container: StorageContainer, gateway: Gateway, fault_proxy: DynamoProxy,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A batch that is written again in parts does not bury again; operators see one letter."""
    slow, other = await make_direct(container), await make_group(container, ALICE, BOB, CAROL)
    rule = on_chat(slow.chat, THROTTLED)
    fault_proxy.rules.append(rule)
    # One lane: the other chat's poison is found before the slow chat's items fail, or after.
    async with behind(fault_proxy, container) as others:
        for chat in (other, slow):
            await gateway.send(chat, *texts(30))
            await gateway.send(chat, "poison", tail=swap(b'"body":"poison"', b'"body":7'))
            await gateway.send(chat, "empty", tail=swap(b'"sender":"alice"', b'"sender":""'))
        async with running(persister_of(others).run()):

            async def others_stored() -> bool:
                return len(await stored_of(container, other.chat)) == 32

            await eventually(others_stored)
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


async def test_calls_that_are_throttled_are_tried_again_until_the_deadline(
    container: StorageContainer, fault_proxy: DynamoProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait is random up to a bound that doubles; no two callers wait in step."""
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


async def test_persist_waits_longer_each_time_and_never_in_step(
    container: StorageContainer,
    gateway: Gateway,
    fault_proxy: DynamoProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the tries of a write lie growing pauses, of each a random part, up to a bound."""
    asked: list[float] = []
    given: list[float] = []
    jittered = batch_writer.jittered

    def record(seconds: float) -> float:
        asked.append(seconds)
        given.append(jittered(seconds))
        return min(given[-1], 0.02)  # the pattern counts here, not the time

    monkeypatch.setattr(batch_writer, "jittered", record)
    team = await make_direct(container)
    rule = on_chat(team.chat, THROTTLED)
    fault_proxy.rules.append(rule)
    async with (
        # DynamoDB's client tries a throttled call again until this time has passed.
        behind(fault_proxy, container, write_timeout_s=0.5) as others,
        running(persister_of(others).run()),
    ):
        await gateway.send(team, "hi")
        await eventually(lambda: len(asked) >= 9)
        fault_proxy.rules.remove(rule)
        await eventually(lambda: is_drained(container))

    bound, first = batch_writer.BACKOFF_S_MAX, batch_writer.BACKOFF_S
    assert asked[:9] == [min(first * 2**n, bound) for n in range(9)]
    assert asked[8] == bound
    assert all(wanted / 2 <= got <= wanted for wanted, got in zip(asked, given, strict=True))
    assert len({got / wanted for wanted, got in zip(asked, given, strict=True)}) == len(asked)
