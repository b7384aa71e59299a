"""The repair worker: what a dead gateway left undelivered arrives, once, and soon."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from chatserver.container.storage import StorageContainer
from chatserver.dev.servers import Server
from chatserver.domain.ids import ChatId, Seq, UserId
from chatserver.hot.bus.gateway_stream import NewSeq
from chatserver.hot.redis.keys import Keys
from chatserver.warm.dynamo import client
from tests.integration.warm.support import Fault, Faults, Tables
from tests.integration.workers.support import (
    ALICE,
    BOB,
    CAROL,
    Gateway,
    end,
    make_direct,
    make_group,
    open_container,
    running,
)
from tests.support.rawchat import RawChat
from tests.support.servers.processes import eventually
from tests.support.stack import Stack, bring_up
from workers import repair
from workers.repair import RepairWorker

pytest_plugins = [
    "tests.integration.warm.fixtures",
    "tests.integration.workers.fixtures",
    "tests.support.stack_fixtures",
]

NewName = Callable[[str], str]
ARRIVES_S = 30.0  # two seconds, as the settings are, and as much as a busy machine takes


# ── gateways that die between two steps ─────────────────────────────────────────────────────────


class Cells:
    """Gateways and workers on a database of their own, in four partitions."""

    def __init__(self, stack: Stack) -> None:
        self.env = {
            "CHAT_REDIS_URL": stack.redis_url.removesuffix("/0") + "/1",
            "CHAT_REDIS_PARTITIONS": "4",
        }
        self.stack = stack
        self.safe: Server

    def start(self) -> None:
        """Start the workers and a gateway that nothing happens to."""
        workers = dict(self.stack.workers)
        self.worker = self.stack.start_worker("repair", "rpc", **self.env)
        self.stack.workers.clear()
        self.stack.workers.update(workers)
        self.safe = self.stack.start_gateway(**self.env)

    def stop(self) -> None:
        """End them."""
        self.worker.kill()
        self.safe.kill()
        self.stack.gateways.remove(self.safe)


@pytest.fixture(scope="module")
def cells(stack: Stack) -> Iterator[Cells]:
    """Where most messages are delivered by a second script."""
    made = Cells(stack)
    made.start()
    yield made
    made.stop()


async def open_pair(
    stack: Stack, safe: Server, doomed: Server, new_name: NewName
) -> tuple[RawChat, RawChat, str]:
    """Alice on the gateway that is to fail, Bob on the other one, and their chat."""
    keys, first, second = Keys(4), new_name("alice"), new_name("bob")
    while keys.partition_of(UserId(first)) == keys.partition_of(UserId(second)):
        second = new_name("bob")  # one whose inbox the commit itself cannot serve
    bob = await stack.chat_of(second, port=safe.port).start()
    early = await stack.chat_of(first, port=safe.port).start()
    chat = (await early.ask("open_direct", user=bob.user))["chat"]["chat"]
    await bob.ask("open_direct", user=early.user)
    await early.stop()
    # Another device: nobody is replaced, which would be mail of its own.
    device = f"{early.user}-late"
    alice = await stack.chat_of(early.user, device=device, port=doomed.port).start()
    return alice, bob, chat


def test_repair_by_default_is_done_within_two_seconds() -> None:
    """Overdue after a second, looked for every half; the rest is one round trip or two."""
    assert repair.REPAIR_AFTER_MS + repair.INTERVAL_MS <= 1500
    assert repair.LEASE_S <= 2.0


async def test_repair_finishes_the_fan_out_of_a_gateway_that_died_before_it(
    stack: Stack, cells: Cells, new_name: NewName
) -> None:
    """A message acked but in no inbox when the process died is soon in all of them."""
    doomed = stack.add_gateway(CHAT_FAILPOINT="send.before_deliver:kill", **cells.env)
    await bring_up(doomed)
    alice, bob, chat = await open_pair(stack, cells.safe, doomed, new_name)

    ack = await alice.say(chat, "last words")

    await bob.expect_bodies(chat, ["last words"], ARRIVES_S)
    assert doomed.process is not None
    assert await asyncio.to_thread(doomed.process.wait, 30) == -signal.SIGKILL
    stack.gateways.remove(doomed)
    await alice.reconnect(port=cells.safe.port)
    await alice.expect_bodies(chat, ["last words"])
    await bob.say(chat, "I heard you")
    await alice.expect_bodies(chat, ["last words", "I heard you"])
    assert ack["seq"] == 1
    await alice.stop()
    await bob.stop()


async def test_repair_tells_the_gateways_that_one_died_before_telling(
    stack: Stack, new_name: NewName
) -> None:
    """The inbox has it, but the other gateway does not know: its device gets it soon."""
    doomed = stack.add_gateway(CHAT_FAILPOINT="gateway_stream.before_post:kill")
    await bring_up(doomed)
    alice, bob, chat = await open_pair(stack, stack.gateways[0], doomed, new_name)

    await alice.say(chat, "last words")

    await bob.expect_bodies(chat, ["last words"], ARRIVES_S)
    assert doomed.process is not None
    assert await asyncio.to_thread(doomed.process.wait, 30) == -signal.SIGKILL
    stack.gateways.remove(doomed)
    await alice.abort()
    await bob.stop()


async def test_repair_beside_a_gateway_that_was_only_slow_serves_nobody_twice(
    stack: Stack, cells: Cells, new_name: NewName
) -> None:
    """Both finish the same fan-out: each device gets the message once."""
    sleeper = stack.add_gateway(CHAT_FAILPOINT="send.before_deliver:stop", **cells.env)
    await bring_up(sleeper)
    alice, bob, chat = await open_pair(stack, cells.safe, sleeper, new_name)
    await alice.say(chat, "half way")
    await bob.expect_bodies(chat, ["half way"], ARRIVES_S)

    sleeper.send_signal(signal.SIGCONT)

    await alice.expect_bodies(chat, ["half way"])
    await alice.say(chat, "and on")
    await bob.expect(lambda me: len(me.messages(chat)) == 2)
    await alice.expect_bodies(chat, ["half way", "and on"])
    await bob.expect_bodies(chat, ["half way", "and on"])
    await alice.stop()
    await bob.stop()
    sleeper.kill()
    stack.gateways.remove(sleeper)


# ── what it does with its list ──────────────────────────────────────────────────────────────────


@pytest.fixture
async def hasty(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StorageContainer]:
    """The parts of a repair worker that takes after a tenth of a second what is not finished."""
    # Nothing ends by itself because this process is held up.
    monkeypatch.setattr(repair, "CHAT_S_MAX", 60.0)
    monkeypatch.setattr(repair, "LEASE_S", 60.0)
    monkeypatch.setattr(repair, "REPAIR_AFTER_MS", 100)
    monkeypatch.setattr(repair, "INTERVAL_MS", 50)
    monkeypatch.setattr(client, "ATTEMPTS_MAX", 1)
    async with open_container(redis_url, tables.settings) as made:
        yield made


async def leave_undelivered(
    container: StorageContainer, *chats: ChatId, ago_ms: int = 60_000
) -> None:
    """List chats as undelivered, as a dying gateway leaves them."""
    seconds, _ = await container.hot.call("TIME")
    for chat in chats:
        noted_ms = int(seconds) * 1000 - ago_ms
        await container.hot.call("ZADD", container.hot.keys.undelivered(0), noted_ms, chat)


async def listed(container: StorageContainer) -> list[str]:
    """The chats with an unfinished fan-out."""
    names = await container.hot.call("ZRANGE", container.hot.keys.undelivered(0), 0, -1)
    return [name.decode() for name in names]


async def test_repair_tells_every_gateway_with_a_member(hasty: StorageContainer) -> None:
    """They read what their devices lack; a repeat changes nothing."""
    gateway = Gateway(hasty.hot)
    team = await make_group(hasty, ALICE, BOB, CAROL)
    async with running(gateway.listen(), "gateway"):
        await gateway._gateway_stream.renew()
        await gateway.announce(BOB, CAROL)
        await gateway.send(team, "one", "two")
        await leave_undelivered(hasty, team.chat)
        worker = RepairWorker(hasty, 0, "w1")

        assert await worker.repair_once() == 1
        await eventually(lambda: {m.user for m in gateway.received(NewSeq)} == {BOB, CAROL})
        assert await worker.repair_once() == 0

    assert await listed(hasty) == []
    (state,) = await gateway.announce(BOB)
    entries = await hasty.inboxes.list_after(BOB, Seq(0), 100)
    assert [entry.seq for entry in entries] == list(range(1, state.head + 1))
    assert [entry.cs for entry in entries if entry.chat == team.chat] == [1, 2]


async def test_repair_leaves_alone_what_is_young(hasty: StorageContainer) -> None:
    """A living gateway is given its time."""
    team = await make_direct(hasty)
    await leave_undelivered(hasty, team.chat, ago_ms=-60_000)

    assert await RepairWorker(hasty, 0, "w1").repair_once() == 0

    assert await listed(hasty) == [team.chat]


async def test_repair_of_a_chat_that_is_no_more_takes_it_off(hasty: StorageContainer) -> None:
    """The chat has no members."""
    await leave_undelivered(hasty, ChatId("never-was"))

    assert await RepairWorker(hasty, 0, "w1").repair_once() == 1

    assert await listed(hasty) == []


def cut(_: object) -> Exception:
    """The connection to DynamoDB breaks."""
    return ConnectionResetError("cut")


async def test_repair_skips_chats_that_cannot_be_opened_and_comes_back_to_them(
    hasty: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than are read at once, all older: the one behind them is served all the same."""
    monkeypatch.setattr(repair, "CHATS_MAX", 2)
    closed = [await make_group(hasty, ALICE, BOB, ref=f"g{n}") for n in range(5)]
    good = await make_direct(hasty)
    for team in closed:
        await hasty.hot.call("UNLINK", hasty.hot.keys.chat(team.chat))
    await leave_undelivered(hasty, *(team.chat for team in closed), ago_ms=90_000)
    await leave_undelivered(hasty, good.chat, ago_ms=30_000)
    faults = Faults(hasty.messages._client)
    broken: list[Fault] = [cut] * 500
    for operation in ("GetItem", "Query", "BatchGetItem", "TransactGetItems"):
        faults.add(operation, *broken)
    worker = RepairWorker(hasty, 0, "w1")

    assert await worker.repair_once() == 1
    assert sorted(await listed(hasty)) == sorted(team.chat for team in closed)

    faults._faults.clear()
    assert await worker.repair_once() == 5
    assert await listed(hasty) == []


async def test_repair_of_two_workers_one_looks_and_the_other_takes_over(
    hasty: StorageContainer, redis_url: str, tables: Tables
) -> None:
    """One lease; a stopping worker releases it, so the other does not wait."""
    team = await make_direct(hasty)
    key = hasty.hot.keys.lease(0, "repair")

    async def holder() -> bytes:
        held: bytes = await hasty.hot.call("HGET", key, "owner")
        return held

    first = asyncio.create_task(RepairWorker(hasty, 0, "w1").run())
    await eventually(lambda: hasty.hot.call("EXISTS", key))
    async with running(RepairWorker(hasty, 0, "w2").run()):
        await leave_undelivered(hasty, team.chat)
        await eventually(lambda: is_empty(hasty))
        assert await holder() == b"w1"

        await end(first)
        await leave_undelivered(hasty, team.chat)
        await eventually(lambda: is_empty(hasty))

        assert await holder() == b"w2"


async def is_empty(container: StorageContainer) -> bool:
    """Whether nothing is left to do."""
    return await listed(container) == []
