"""The client on a Redis Cluster: routing, order, slots that move, nodes that die, and epochs.

One file, though a long one: its tests share one cluster of six nodes, which takes seconds to form.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from chatserver.config import Redis
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Seq
from chatserver.errors import ConfigError, Unavailable
from chatserver.hot.bus.gateway_stream import AnyRecord, GatewayStream, GatewayStreamWriter, NewSeq
from chatserver.hot.bus.rpc_client import WarmCalls
from chatserver.hot.bus.rpc_queue import CallQueue
from chatserver.hot.chats.undelivered import UndeliveredChats
from chatserver.hot.leases import Lease
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.scripts import Value, all_scripts, load_script
from chatserver.hot.redis.slot_routes import HELD_MAX
from tests.integration.hot.every_key import use_everything
from tests.integration.hot.support import patient
from tests.support.servers.processes import eventually
from tests.support.servers.redis_cluster import (
    NODE_TIMEOUT_MS,
    ClusterNode,
    RedisCluster,
    open_redis_cluster,
)

PARTITIONS = 64
GATEWAY = GatewayId("gw1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, each with a replica."""
    with open_redis_cluster(tmp_path_factory.mktemp("cluster"), replicas=True) as made:
        made.be_patient()
        yield made


@pytest.fixture
def empty(cluster: RedisCluster) -> RedisCluster:
    """The cluster without data."""
    for node in cluster.masters():
        node.ask("FLUSHALL")
    return cluster


def settings_of(where: RedisCluster, **changes: Any) -> Redis:
    """Settings for the cluster."""
    return patient(where.url, **{"cluster": True, "partitions": PARTITIONS, **changes})


@pytest.fixture
async def hot(empty: RedisCluster) -> AsyncIterator[HotClient]:
    """A connected client."""
    async with open_hot(settings_of(empty)) as client:
        yield client


class Told:
    """Counts a client's notifications."""

    def __init__(self, hot: HotClient) -> None:
        self.epochs = self.reloads = 0
        hot.on_epoch.append(self._epoch)
        hot.on_reload.append(self._reload)

    def _epoch(self) -> None:
        self.epochs += 1

    def _reload(self) -> None:
        self.reloads += 1


def other_than(cluster: RedisCluster, key: str) -> ClusterNode:
    """Return a master that does not serve a key."""
    owner = cluster.owner_of(key)
    return next(node for node in cluster.masters() if node is not owner)


# starting


async def test_cluster_client_finds_every_partition_and_loads_scripts_everywhere(
    hot: HotClient, empty: RedisCluster
) -> None:
    """One address is enough; each partition is used on the node that serves it."""
    for partition in range(PARTITIONS):
        lease = Lease(
            hot=hot, partition=partition, work="test", owner="me", ttl_s=10, clock=SystemClock()
        )
        assert await lease.claim()

    sizes = [node.ask("DBSIZE") for node in empty.masters()]
    # An epoch, a lease, and the hashes of inbox seqs and of gateways.
    assert sum(sizes) == 4 * PARTITIONS
    assert all(sizes)
    sha = load_script("accept").sha
    assert all(node.ask("SCRIPT", "EXISTS", sha) == [1] for node in empty.masters())


async def test_cluster_client_names_each_master_that_takes_no_writes(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Each of them is asked; we are ready while one of them takes what is written."""
    masters = empty.masters()
    try:
        for count, node in enumerate(masters, 1):
            node.ask("CONFIG", "SET", "min-replicas-to-write", "5")
            await eventually(functools.partial(lambda n: len(hot.refusals) == n, count))
            assert bool(hot.refusal) == (count == len(masters))
        assert "NOREPLICAS" in hot.refusal
    finally:
        for node in masters:
            node.ask("CONFIG", "SET", "min-replicas-to-write", "0")
    await eventually(lambda: not hot.refusals)


async def test_cluster_client_runs_everything_that_the_hot_tier_does(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Every script and every key of the hot tier has one slot, and its calls find it."""
    for node in empty.masters():
        node.ask("SCRIPT", "FLUSH")

    await use_everything(hot)

    # A node that has one again was asked to run it, and refuses keys of several slots before that.
    ran = {
        script.name
        for script in all_scripts()
        if any(node.ask("SCRIPT", "EXISTS", script.sha) == [1] for node in empty.masters())
    }
    ran.add("ensure_epoch")  # when the client was opened
    assert ran == {script.name for script in all_scripts()}


async def test_clients_of_one_cluster_share_its_epochs(hot: HotClient, empty: RedisCluster) -> None:
    """The first client to connect names the epochs."""
    async with open_hot(settings_of(empty)) as other:
        assert other.epochs == hot.epochs
        assert all(other.epochs)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"cluster": False}, r"redis\.cluster .* is off, but .* is a node of a Redis Cluster"),
        ({"partitions": 8}, r"redis\.partitions: is 8, .* initialized with 64"),
    ],
)
async def test_client_with_settings_of_another_hot_tier_is_refused(
    hot: HotClient, empty: RedisCluster, changes: dict[str, Any], problem: str
) -> None:
    """Keys would be looked for where they are not."""
    with pytest.raises(ConfigError, match=problem):
        async with open_hot(settings_of(empty, **changes)):
            pass


async def test_cluster_client_of_a_single_server_is_refused(redis_url: str) -> None:
    """The setting is named."""
    with pytest.raises(ConfigError, match=r"redis\.cluster \(CHAT_REDIS_CLUSTER\)"):
        async with open_hot(patient(redis_url, cluster=True)):
            pass


async def test_cluster_client_refuses_a_node_that_would_evict(empty: RedisCluster) -> None:
    """One such node is enough (fault F10)."""
    node = empty.masters()[-1]
    node.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match="maxmemory-policy is allkeys-lru"):
            async with open_hot(settings_of(empty)):
                pass
    finally:
        node.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


# slots that move


class Traffic:
    """Calls on a key, many in flight, and what became of them."""

    def __init__(self, hot: HotClient, key: str) -> None:
        self._hot = hot
        self._key = key
        self.sent = 0
        self.answered: list[int] = []  # in the order of the answers
        self.failed: list[tuple[int, str]] = []

    async def run(self) -> None:
        """Append numbers until cancelled."""
        while True:
            # Fewer than may wait for a slot, however long a slow machine takes to move it.
            if self.sent - len(self.answered) - len(self.failed) < HELD_MAX // 4:
                for _ in range(5):
                    self._send(self.sent)
                    self.sent += 1
            await asyncio.sleep(0.001)

    def _send(self, number: int) -> None:
        def on_reply(reply: Any) -> None:
            if isinstance(reply, Exception):
                self.failed.append((number, str(reply)))
            else:
                self.answered.append(number)

        self._hot.send(on_reply, "RPUSH", self._key, number)


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """Run something beside the test."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_cluster_client_keeps_order_and_loses_no_call_while_a_slot_moves(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Refused calls wait and are made again, before those that came later (fault F13)."""
    key = "{p7}:list"
    traffic = Traffic(hot, key)
    async with running(traffic.run()):
        for _ in range(4):
            await eventually(lambda: len(traffic.answered) > 50)
            target = await asyncio.to_thread(other_than, empty, key)
            assert await asyncio.to_thread(empty.move_slot, key, target) > 0
            seen = len(traffic.answered)
            await eventually(lambda seen=seen: len(traffic.answered) > seen + 50)  # type: ignore[misc]  # bound for this turn of the loop
    await eventually(lambda: len(traffic.answered) + len(traffic.failed) == traffic.sent)

    assert traffic.failed == []
    assert traffic.answered == list(range(traffic.sent))
    held = await hot.call("LRANGE", key, 0, -1)
    assert [int(number) for number in held] == traffic.answered


async def test_epoch_of_a_slot_that_moved_under_the_eyes_of_a_client_stays(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Nothing was lost, so no device is reset; later clients read the same epoch."""
    told, before = Told(hot), list(hot.epochs)
    key = hot.keys.epoch(3)
    target = other_than(empty, key)

    empty.move_slot(key, target)

    life = target.info("replication")["master_replid"].encode()
    await eventually(lambda: target.ask("HGET", key, "replid") == life)
    assert await hot.call("HGET", key, "epoch") == before[3].encode()
    assert (hot.epochs, told.epochs) == (before, 0)
    async with open_hot(settings_of(empty)) as other:
        assert other.epochs == before


async def test_epoch_of_a_slot_that_moved_while_nobody_looked_is_another(
    empty: RedisCluster,
) -> None:
    """Without proof that nothing was lost, devices start from a snapshot (promise P5)."""
    async with open_hot(settings_of(empty)) as hot:
        before = list(hot.epochs)
    key = hot.keys.epoch(3)

    empty.move_slot(key, other_than(empty, key))

    async with open_hot(settings_of(empty)) as hot:
        changed = [n for n in range(PARTITIONS) if hot.epochs[n] != before[n]]
    assert changed == [3]


async def test_calls_of_a_slot_that_is_being_moved_run_where_their_key_is(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A single key is found on either side (ASK); a script waits for all of its keys."""
    key, new = "{p9}:old", "{p9}:new"
    await hot.call("SET", key, "v")
    target = other_than(empty, key)
    source = empty.start_move(key, target)
    try:
        assert await hot.call("GET", key) == b"v"
        empty.move_keys(key, source, target)

        assert await hot.call("GET", key) == b"v"
        assert await hot.call("SET", new, "w") == b"OK"
        assert await hot.transaction(("GET", key), ("GET", new)) == [b"v", b"w"]
        with pytest.raises(Unavailable, match="TRYAGAIN"):
            await hot.call("MGET", key, "{p9}:missing")
    finally:
        empty.end_move(key, target)
    assert await hot.call("MGET", key, "{p9}:missing") == [b"v", None]


async def test_script_that_came_while_a_slot_moves_runs_when_it_has_moved(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A short move costs a pause only, and what waited is answered in order."""
    key = "{p9}:old"
    await hot.call("SET", key, "v")
    target = other_than(empty, key)
    source = empty.start_move(key, target)
    empty.move_keys(key, source, target)
    order: list[int] = []
    calls = [asyncio.ensure_future(hot.call("MGET", key, "{p9}:gone")) for _ in range(3)]
    for number, call in enumerate(calls):
        call.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # bound for this turn of the loop
    await asyncio.sleep(0)

    empty.end_move(key, target)

    assert await asyncio.gather(*calls) == [[b"v", None]] * 3
    assert order == [0, 1, 2]


async def test_transaction_of_a_slot_that_moved_runs_once_on_its_new_node(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A transaction of which one command was refused did not run at all."""
    key = "{p11}:n"
    await hot.call("SET", key, 1)
    empty.move_slot(key, other_than(empty, key))

    assert await hot.transaction(("INCR", key), ("INCR", key)) == [2, 3]
    assert await hot.call("GET", key) == b"3"


# scripts


async def test_node_that_forgot_its_scripts_is_told_them_again(
    hot: HotClient, empty: RedisCluster
) -> None:
    """SCRIPT FLUSH on one node costs a round trip, and SCRIPT LOAD reaches all of them (F20)."""
    for node in empty.masters():
        node.ask("SCRIPT", "FLUSH")
    script = load_script("acquire_lease")

    assert await hot.call("SCRIPT", "LOAD", script.source) == script.sha.encode()

    assert all(node.ask("SCRIPT", "EXISTS", script.sha) == [1] for node in empty.masters())
    empty.owner_of("{p5}:l").ask("SCRIPT", "FLUSH")
    assert await hot.run(script, {"lease": "{p5}:l"}, {"owner": "me", "ttl_ms": 60_000}) == 1


# replicas


async def test_commit_that_waits_for_replicas_is_answered_when_they_have_it(
    empty: RedisCluster,
) -> None:
    """An acked message survives the master; others are refused temporarily (P1)."""
    script, keys = load_script("acquire_lease"), {"lease": "{p5}:l"}
    master = empty.owner_of("{p5}:l")
    # They wait for a quarter of a call's time.
    lasting, hasty = (settings_of(empty, wait_replicas=1, call_timeout_s=s) for s in (60.0, 6.0))

    async def claim(hot: HotClient) -> Any:
        args: dict[str, Value] = {"owner": "me", "ttl_ms": 60_000}
        return await hot.run(script, keys, args, is_commit=True)

    async with open_hot(lasting) as waits, open_hot(hasty) as gives_up:
        assert await claim(waits) == 1
        empty.cut_replication(master)
        try:
            with pytest.raises(Unavailable, match="0 of 1 replicas"):
                await claim(gives_up)
        finally:
            await asyncio.to_thread(empty.mend_replication, master)
        assert await claim(waits) == 1


# readers that block, and mail


async def test_gateway_stream_follows_its_slot(hot: HotClient, empty: RedisCluster) -> None:
    """Records arrive after a move, through any node."""
    gateway_stream, got = GatewayStream(hot, GATEWAY), list[AnyRecord]()
    postman, is_reading = GatewayStreamWriter(hot), asyncio.Event()

    async def read() -> None:
        async for records in gateway_stream.iter_records():
            is_reading.set()
            got.extend(records or [])

    async with running(read()):
        await is_reading.wait()
        for seq in range(1, 4):
            postman.post(GATEWAY, NewSeq("alice", seq))
            await eventually(lambda seq=seq: NewSeq("alice", seq) in got)  # type: ignore[misc]  # bound for this turn of the loop
            key = hot.keys.gateway_stream(GATEWAY)
            await asyncio.to_thread(empty.move_slot, key, other_than(empty, key))

    assert got == [NewSeq("alice", 1), NewSeq("alice", 2), NewSeq("alice", 3)]


async def test_calls_to_the_warm_tier_follow_their_slot(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A worker that loses the stream finds it again when it is started again."""
    taken: list[str] = []

    async def work() -> None:
        while True:
            with contextlib.suppress(Unavailable):
                async for call in CallQueue(
                    hot=hot, consumer="w1", clock=SystemClock()
                ).iter_calls():
                    taken.append(call.call.gateway)
            await asyncio.sleep(0.01)

    async with running(work()):
        for number in range(1, 4):
            # nobody answers
            async with running(WarmCalls(hot, GATEWAY, 60).load_chat(ChatId("c"))):
                await eventually(lambda number=number: len(taken) == number)  # type: ignore[misc]  # bound for this turn of the loop
            key = hot.keys.rpc_calls()
            await asyncio.to_thread(empty.move_slot, key, other_than(empty, key))


async def test_settling_on_a_cluster_waits_for_the_mail_of_the_tick(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Mail is on another node: a chat leaves the list only when it is posted."""
    chat, key = ChatId("c1"), hot.keys.gateway_stream(GATEWAY)
    listed = hot.keys.undelivered(hot.keys.partition_of(chat))
    await GatewayStream(hot, GATEWAY).renew()
    await hot.call("ZADD", listed, 1, chat)
    postman = GatewayStreamWriter(hot)
    settling = UndeliveredChats(hot, postman)
    owner = empty.owner_of(key)
    owner.ask("CONFIG", "SET", "min-replicas-to-write", 5)  # mail is refused
    try:
        postman.post(GATEWAY, NewSeq("alice", 1))
        settling.settle_soon(chat, Seq(1))
        await eventually(lambda: not postman._postings and not postman._out)
        postman.post(GATEWAY, NewSeq("alice", 2))
        with pytest.raises(Unavailable, match="gateway stream were lost"):
            await settling.settle([(chat, Seq(1))])
    finally:
        owner.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    assert await hot.call("ZCARD", listed) == 1

    postman.post(GATEWAY, NewSeq("alice", 3))
    settling.settle_soon(chat, Seq(1))

    async def is_settled() -> bool:
        return await hot.call("ZCARD", listed) == 0

    await eventually(is_settled)
    ((_, fields),) = await hot.call("XREVRANGE", key, "+", "-", "COUNT", 1)
    assert fields[0] == b"r"


# nodes that die


async def test_node_that_dies_takes_its_partitions_only_and_comes_back_in_a_new_epoch(
    empty: RedisCluster,
) -> None:
    """Calls on it fail in time, the others go on; its replica gives a new epoch (F12, P1, P5)."""
    async with open_hot(settings_of(empty)) as hot:
        told, before = Told(hot), list(hot.epochs)
        victim = empty.owner_of("{p0}:x")
        lost = {n for n in range(PARTITIONS) if empty.owner_of(hot.keys.epoch(n)) is victim}
        replica = empty.replica_of(victim)

        async def ask_all() -> list[Any]:
            calls = (hot.call("GET", f"{{p{n}}}:x") for n in range(PARTITIONS))
            return await asyncio.gather(*calls, return_exceptions=True)

        victim.server.kill()

        replies = await ask_all()
        assert {n for n, reply in enumerate(replies) if isinstance(reply, Unavailable)} == lost
        assert [reply for reply in replies if not isinstance(reply, Unavailable)] == [None] * (
            PARTITIONS - len(lost)
        )
        assert hot.is_up

        for node in empty.nodes:
            if node is not victim:  # only now is it taken for dead: nothing came in between
                node.ask("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)

        async def answers_all() -> bool:
            return await ask_all() == [None] * PARTITIONS

        await eventually(answers_all, 60)
        assert replica.is_master
        changed = {n for n in range(PARTITIONS) if hot.epochs[n] != before[n]}
        assert changed == lost
        assert told.epochs == 1
        assert told.reloads >= 1
        victim.server.start()
        await asyncio.to_thread(empty.be_patient)
        await hot.call("SET", "{p0}:x", "back")
