"""The repair worker: messages that a crashed gateway left undelivered are delivered once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

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
from tests.support.stack import NewName, Stack, start_async
from workers import delivery_repair
from workers.delivery_repair import RepairWorker

DELIVERY_DEADLINE_S = 30.0  # repair takes two seconds; the rest is for a slow machine


# ── gateways that crash between two steps ─────────────────────────────────────────────────────────


class PartitionedStack:
    """Gateways and workers on a separate Redis database with four partitions."""

    def __init__(self, stack: Stack) -> None:
        self.env = {
            "CHAT_REDIS_URL": stack.redis_url.removesuffix("/0") + "/1",
            "CHAT_REDIS_PARTITIONS": "4",
        }
        self.stack = stack
        self.healthy: Server

    def start(self) -> None:
        """Start the workers and a gateway that does not crash."""
        workers = dict(self.stack.workers)
        self.worker = self.stack.start_worker("repair", "rpc", **self.env)
        self.stack.workers.clear()
        self.stack.workers.update(workers)
        self.healthy = self.stack.start_gateway(**self.env)

    def stop(self) -> None:
        """Stop the gateways and workers."""
        self.worker.kill()
        self.healthy.kill()
        self.stack.gateways.remove(self.healthy)


@pytest.fixture(scope="module")
def partitioned(stack: Stack) -> Iterator[PartitionedStack]:
    """A stack in which a second script delivers most messages."""
    made = PartitionedStack(stack)
    made.start()
    yield made
    made.stop()


async def open_pair(
    stack: Stack, healthy: Server, crashing: Server, new_name: NewName
) -> tuple[RawChat, RawChat, str]:
    """Open alice on the gateway that will crash and bob on the other one, and their chat."""
    keys, first, second = Keys(4), new_name("alice"), new_name("bob")
    while keys.get_partition(UserId(first)) == keys.get_partition(UserId(second)):
        second = new_name("bob")  # in another partition, so the commit cannot deliver
    bob = await stack.chat_of(second, port=healthy.port).start()
    early = await stack.chat_of(first, port=healthy.port).start()
    chat = await early.open_direct(bob.user)
    await bob.request("open_direct", user=early.user)
    await early.stop()
    # Use another device: a replaced session would cause other gateway records.
    device = f"{early.user}-late"
    alice = await stack.chat_of(early.user, device=device, port=crashing.port).start()
    return alice, bob, chat


def test_repair_defaults_deliver_within_two_seconds() -> None:
    """The time until a fan-out is overdue plus the check interval; the rest is for round trips."""
    assert delivery_repair.REPAIR_AFTER_MS + delivery_repair.INTERVAL_MS <= 1500
    assert delivery_repair.LEASE_S <= 2.0


async def test_repair_completes_the_fan_out_of_a_crashed_gateway(
    stack: Stack, partitioned: PartitionedStack, new_name: NewName
) -> None:
    """The message was acked, but was in no inbox when the gateway crashed."""
    crashing = stack.add_gateway(CHAT_FAILPOINT="send.before_deliver:kill", **partitioned.env)
    await start_async(crashing)
    alice, bob, chat = await open_pair(stack, partitioned.healthy, crashing, new_name)

    ack = await alice.send(chat, "hello")

    await bob.expect_bodies(chat, ["hello"], DELIVERY_DEADLINE_S)
    assert crashing.process is not None
    assert await asyncio.to_thread(crashing.process.wait, 30) == -signal.SIGKILL
    stack.gateways.remove(crashing)
    await alice.reconnect(port=partitioned.healthy.port)
    await alice.expect_bodies(chat, ["hello"])
    await bob.send(chat, "hi")
    await alice.expect_bodies(chat, ["hello", "hi"])
    assert ack["seq"] == 1
    await alice.stop()
    await bob.stop()


async def test_repair_notifies_gateways_after_a_crash_before_the_notification(
    stack: Stack, new_name: NewName
) -> None:
    """The message is in the inbox, but the other gateway was not notified."""
    crashing = stack.add_gateway(CHAT_FAILPOINT="gateway_stream.before_post:kill")
    await start_async(crashing)
    alice, bob, chat = await open_pair(stack, stack.gateways[0], crashing, new_name)

    await alice.send(chat, "hello")

    await bob.expect_bodies(chat, ["hello"], DELIVERY_DEADLINE_S)
    assert crashing.process is not None
    assert await asyncio.to_thread(crashing.process.wait, 30) == -signal.SIGKILL
    stack.gateways.remove(crashing)
    await alice.abort()
    await bob.stop()


async def test_repair_concurrent_with_a_slow_gateway_delivers_once(
    stack: Stack, partitioned: PartitionedStack, new_name: NewName
) -> None:
    """Repair and the gateway complete the same fan-out, and each device gets the message once."""
    slow = stack.add_gateway(CHAT_FAILPOINT="send.before_deliver:stop", **partitioned.env)
    await start_async(slow)
    alice, bob, chat = await open_pair(stack, partitioned.healthy, slow, new_name)
    await alice.send(chat, "first")
    await bob.expect_bodies(chat, ["first"], DELIVERY_DEADLINE_S)

    slow.send_signal(signal.SIGCONT)

    await alice.expect_bodies(chat, ["first"])
    await alice.send(chat, "second")
    await bob.expect(lambda me: len(me.messages(chat)) == 2)
    await alice.expect_bodies(chat, ["first", "second"])
    await bob.expect_bodies(chat, ["first", "second"])
    await alice.stop()
    await bob.stop()
    slow.kill()
    stack.gateways.remove(slow)


# ── the list of undelivered chats ─────────────────────────────────────────────────────────────────


@pytest.fixture
async def container(
    redis_url: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StorageContainer]:
    """The components of a worker. Fan-outs are overdue after a tenth of a second."""
    # Long enough that nothing expires if this process stalls.
    monkeypatch.setattr(delivery_repair, "CHAT_S_MAX", 60.0)
    monkeypatch.setattr(delivery_repair, "LEASE_S", 60.0)
    monkeypatch.setattr(delivery_repair, "REPAIR_AFTER_MS", 100)
    monkeypatch.setattr(delivery_repair, "INTERVAL_MS", 50)
    monkeypatch.setattr(client, "ATTEMPTS_MAX", 1)
    async with open_container(redis_url, tables.settings) as made:
        yield made


async def leave_undelivered(
    container: StorageContainer, *chats: ChatId, ago_ms: int = 60_000
) -> None:
    """List chats as undelivered, like a crashed gateway."""
    seconds, _ = await container.hot.call("TIME")
    for chat in chats:
        listed_ms = int(seconds) * 1000 - ago_ms
        await container.hot.call("ZADD", container.hot.keys.undelivered(0), listed_ms, chat)


async def list_undelivered(container: StorageContainer) -> list[str]:
    """Return the chats with an incomplete fan-out."""
    names = await container.hot.call("ZRANGE", container.hot.keys.undelivered(0), 0, -1)
    return [name.decode() for name in names]


async def test_repair_notifies_every_gateway_with_a_member(container: StorageContainer) -> None:
    """The gateways read missing events. A second run changes nothing."""
    gateway = Gateway(container.hot)
    team = await make_group(container, ALICE, BOB, CAROL)
    async with running(gateway.listen(), "gateway"):
        await gateway._gateway_stream.renew()
        await gateway.announce(BOB, CAROL)
        await gateway.send(team, "one", "two")
        await leave_undelivered(container, team.chat)
        worker = RepairWorker(container, 0, "w1")

        assert await worker.repair_once() == 1
        states = await gateway.announce(BOB, CAROL)
        heads = {(BOB, states[0].head), (CAROL, states[1].head)}
        await eventually(lambda: {(m.user, m.seq) for m in gateway.received(NewSeq)} == heads)
        assert await worker.repair_once() == 0

    assert await list_undelivered(container) == []
    (state,) = await gateway.announce(BOB)
    entries = await container.inboxes.list_after(BOB, Seq(0), 100)
    assert [entry.seq for entry in entries] == list(range(1, state.head + 1))
    assert [entry.cs for entry in entries if entry.chat == team.chat] == [1, 2]


async def test_repair_ignores_recent_fan_outs(container: StorageContainer) -> None:
    """A running gateway completes them itself."""
    team = await make_direct(container)
    await leave_undelivered(container, team.chat, ago_ms=-60_000)

    assert await RepairWorker(container, 0, "w1").repair_once() == 0

    assert await list_undelivered(container) == [team.chat]


async def test_repair_removes_a_chat_that_does_not_exist(container: StorageContainer) -> None:
    """A chat without members has no one to deliver to."""
    await leave_undelivered(container, ChatId("never-was"))

    assert await RepairWorker(container, 0, "w1").repair_once() == 1

    assert await list_undelivered(container) == []


def cut(_: object) -> Exception:
    """Fail a call with a connection reset."""
    return ConnectionResetError("cut")


async def test_repair_skips_chats_that_cannot_be_loaded_and_retries_them(
    container: StorageContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later chat is repaired even if a full page of older chats cannot be loaded."""
    monkeypatch.setattr(delivery_repair, "CHATS_MAX", 2)
    unloaded = [await make_group(container, ALICE, BOB, ref=f"g{n}") for n in range(5)]
    loaded = await make_direct(container)
    for team in unloaded:
        await container.hot.call("UNLINK", container.hot.keys.chat(team.chat))
    await leave_undelivered(container, *(team.chat for team in unloaded), ago_ms=90_000)
    await leave_undelivered(container, loaded.chat, ago_ms=30_000)
    faults = Faults(container.messages._client)
    broken: list[Fault] = [cut] * 500
    for operation in ("GetItem", "Query", "BatchGetItem", "TransactGetItems"):
        faults.add(operation, *broken)
    worker = RepairWorker(container, 0, "w1")

    assert await worker.repair_once() == 1
    assert sorted(await list_undelivered(container)) == sorted(team.chat for team in unloaded)

    faults._faults.clear()
    assert await worker.repair_once() == 5
    assert await list_undelivered(container) == []


async def test_repair_with_two_workers_one_runs_and_the_other_takes_over(
    container: StorageContainer, redis_url: str, tables: Tables
) -> None:
    """A stopping worker releases the lease, so the other one does not wait."""
    team = await make_direct(container)
    key = container.hot.keys.lease(0, "repair")

    async def holder() -> bytes:
        held: bytes = await container.hot.call("HGET", key, "owner")
        return held

    first = asyncio.create_task(RepairWorker(container, 0, "w1").run())
    await eventually(lambda: container.hot.call("EXISTS", key))
    async with running(RepairWorker(container, 0, "w2").run()):
        await leave_undelivered(container, team.chat)
        await eventually(lambda: is_empty(container))
        assert await holder() == b"w1"

        await end(first)
        await leave_undelivered(container, team.chat)
        await eventually(lambda: is_empty(container))

        assert await holder() == b"w2"


async def is_empty(container: StorageContainer) -> bool:
    """Return whether all fan-outs are complete."""
    return await list_undelivered(container) == []
