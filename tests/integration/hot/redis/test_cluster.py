"""The client on a Redis Cluster: routing, order, moving slots, failed nodes, and epochs.

The tests are in one file because they share a cluster of six nodes, which takes seconds to form.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import ChatId, GatewayId, Seq
from chatserver.errors import ConfigError, Unavailable
from chatserver.hot.bus.gateway_stream import AnyRecord, GatewayStream, GatewayStreamWriter, NewSeq
from chatserver.hot.bus.rpc_client import RpcClient
from chatserver.hot.bus.rpc_queue import RpcQueue
from chatserver.hot.chats.fan_out_completion import UndeliveredChats
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.replies import set_future
from chatserver.hot.redis.scripts import all_scripts, load_script
from chatserver.hot.worker_leases import Lease
from tests.integration.hot.every_key import use_everything
from tests.integration.hot.redis.cluster_support import (
    PARTITIONS,
    Traffic,
    find_other_master,
    running,
    settings_of,
)
from tests.integration.hot.support import Notifications, redis_settings
from tests.support.servers.processes import eventually, eventually_equal
from tests.support.servers.redis_cluster import (
    NODE_TIMEOUT_MS,
    RedisCluster,
    open_redis_cluster,
)

GATEWAY = GatewayId("gw1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, each with a replica."""
    with open_redis_cluster(tmp_path_factory.mktemp("cluster"), replicas=True) as made:
        made.use_long_node_timeout()
        yield made


@pytest.fixture
def empty(cluster: RedisCluster) -> RedisCluster:
    """The cluster without data."""
    for node in cluster.masters():
        node.request("FLUSHALL")
    return cluster


@pytest.fixture
async def hot(empty: RedisCluster) -> AsyncIterator[HotClient]:
    """A connected client."""
    async with open_hot(settings_of(empty)) as client:
        yield client


# starting


async def test_cluster_client_finds_every_partition_and_loads_scripts_everywhere(
    hot: HotClient, empty: RedisCluster
) -> None:
    """One address is enough; calls for each partition go to the node that serves it."""
    for partition in range(PARTITIONS):
        lease = Lease(
            hot=hot, partition=partition, work="test", owner="me", ttl_s=10, clock=SystemClock()
        )
        assert await lease.claim()

    sizes = [node.request("DBSIZE") for node in empty.masters()]
    # Each partition has an epoch, a lease, and the hashes of inbox seqs and of gateways.
    assert sum(sizes) == 3 * PARTITIONS
    assert all(sizes)
    sha = load_script("commit_messages").sha
    assert all(node.request("SCRIPT", "EXISTS", sha) == [1] for node in empty.masters())


async def test_cluster_client_names_each_master_that_refuses_writes(
    hot: HotClient, empty: RedisCluster
) -> None:
    """The client reports `refusal` only if all masters refuse writes."""
    masters = empty.masters()
    try:
        for count, node in enumerate(masters, 1):
            node.request("CONFIG", "SET", "min-replicas-to-write", "5")
            await eventually(functools.partial(lambda n: len(hot.health.refusals) == n, count))
            assert bool(hot.health.refusal) == (count == len(masters))
        assert all("NOREPLICAS" in why for why in hot.health.refusals.values())
    finally:
        for node in masters:
            node.request("CONFIG", "SET", "min-replicas-to-write", "0")
    await eventually(lambda: not hot.health.refusals)


async def test_cluster_client_runs_all_scripts_and_uses_all_keys(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Each script and its keys are in one slot, on the node that serves it."""
    for node in empty.masters():
        node.request("SCRIPT", "FLUSH")

    await use_everything(hot)

    # A node has a script again only if it ran it. It refuses keys of several slots.
    ran = {
        script.name
        for script in all_scripts()
        if any(node.request("SCRIPT", "EXISTS", script.sha) == [1] for node in empty.masters())
    }
    ran.add("get_or_create_epoch")  # these ran when the client was opened
    assert ran == {script.name for script in all_scripts()}


async def test_clients_of_one_cluster_share_its_epochs(hot: HotClient, empty: RedisCluster) -> None:
    """The first client that connects creates the epochs."""
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
async def test_cluster_client_with_wrong_settings_is_refused(
    hot: HotClient, empty: RedisCluster, changes: dict[str, Any], problem: str
) -> None:
    """Keys would be in other partitions or on other nodes."""
    with pytest.raises(ConfigError, match=problem):
        async with open_hot(settings_of(empty, **changes)):
            pass


async def test_cluster_client_of_a_single_server_is_refused(redis_url: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match=r"redis\.cluster \(CHAT_REDIS_CLUSTER\)"):
        async with open_hot(redis_settings(redis_url, cluster=True)):
            pass


async def test_cluster_client_refuses_a_node_that_evicts_keys(empty: RedisCluster) -> None:
    """One such node is enough to refuse."""
    node = empty.masters()[-1]
    node.request("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match="maxmemory-policy is allkeys-lru"):
            async with open_hot(settings_of(empty)):
                pass
    finally:
        node.request("CONFIG", "SET", "maxmemory-policy", "noeviction")


# moving slots


async def test_cluster_client_keeps_order_and_loses_no_call_while_a_slot_moves(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Refused calls wait and are retried before later calls."""
    key = "{p7}:list"
    traffic = Traffic(hot, key)
    async with running(traffic.run()):
        for _ in range(4):
            await eventually(lambda: len(traffic.answered) > 50)
            target = await asyncio.to_thread(find_other_master, empty, key)
            assert await asyncio.to_thread(empty.move_slot, key, target) > 0
            seen = len(traffic.answered)
            await eventually(lambda seen=seen: len(traffic.answered) > seen + 50)  # type: ignore[misc]  # bound in this iteration
    await eventually(lambda: len(traffic.answered) + len(traffic.failed) == traffic.sent)

    assert traffic.failed == []
    assert traffic.answered == list(range(traffic.sent))
    held = await hot.call("LRANGE", key, 0, -1)
    assert [int(number) for number in held] == traffic.answered


async def test_epoch_of_a_slot_that_moved_while_a_client_was_connected_stays(
    hot: HotClient, empty: RedisCluster
) -> None:
    """No data was lost, so no device is reset. Later clients read the same epoch."""
    notifications, before = Notifications(hot), list(hot.epochs)
    key = hot.keys.epoch(3)
    target = find_other_master(empty, key)

    empty.move_slot(key, target)

    replid = target.info("replication")["master_replid"].encode()
    await eventually(lambda: target.request("HGET", key, "replid") == replid)
    assert await hot.call("HGET", key, "epoch") == before[3].encode()
    assert (hot.epochs, notifications.epochs) == (before, 0)
    async with open_hot(settings_of(empty)) as other:
        assert other.epochs == before


async def test_epoch_of_a_slot_that_moved_without_connected_clients_is_new(
    empty: RedisCluster,
) -> None:
    """Data may have been lost, so devices start from a snapshot (guarantee P5)."""
    async with open_hot(settings_of(empty)) as hot:
        before = list(hot.epochs)
    key = hot.keys.epoch(3)

    empty.move_slot(key, find_other_master(empty, key))

    async with open_hot(settings_of(empty)) as hot:
        changed = [n for n in range(PARTITIONS) if hot.epochs[n] != before[n]]
    assert changed == [3]


async def test_calls_of_a_moving_slot_run_on_the_node_that_has_the_key(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A single key is found on both nodes (ASK).

    Calls with several keys need all keys on one node.
    """
    key, new = "{p9}:old", "{p9}:new"
    await hot.call("SET", key, "v")
    target = find_other_master(empty, key)
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


async def test_calls_with_several_keys_run_when_their_slot_has_moved(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A short move causes only a pause, and waiting calls get replies in order."""
    key = "{p9}:old"
    await hot.call("SET", key, "v")
    target = find_other_master(empty, key)
    source = empty.start_move(key, target)
    empty.move_keys(key, source, target)
    order: list[int] = []
    calls = [asyncio.ensure_future(hot.call("MGET", key, "{p9}:gone")) for _ in range(3)]
    for number, call in enumerate(calls):
        call.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # bound in this iteration
    await asyncio.sleep(0)

    empty.end_move(key, target)

    assert await asyncio.gather(*calls) == [[b"v", None]] * 3
    assert order == [0, 1, 2]


async def test_transaction_of_a_slot_that_moved_runs_once_on_its_new_node(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A transaction with a refused command did not run at all."""
    key = "{p11}:n"
    await hot.call("SET", key, 1)
    empty.move_slot(key, find_other_master(empty, key))

    assert await hot.transaction(("INCR", key), ("INCR", key)) == [2, 3]
    assert await hot.call("GET", key) == b"3"


# scripts


async def test_node_with_flushed_scripts_gets_them_again(
    hot: HotClient, empty: RedisCluster
) -> None:
    """SCRIPT FLUSH on one node costs a round trip, and SCRIPT LOAD goes to all nodes."""
    for node in empty.masters():
        node.request("SCRIPT", "FLUSH")
    script = load_script("acquire_lease")

    assert await hot.call("SCRIPT", "LOAD", script.source) == script.sha.encode()

    assert all(node.request("SCRIPT", "EXISTS", script.sha) == [1] for node in empty.masters())
    empty.owner_of("{p5}:l").request("SCRIPT", "FLUSH")
    assert await hot.run(script, {"lease": "{p5}:l"}, {"owner": "me", "ttl_ms": 60_000}) == 1


# replicas


async def test_commit_that_waits_for_replicas_needs_dynamodb_without_them(
    empty: RedisCluster,
) -> None:
    """An acked message survives the loss of the master; other sends are unavailable (P1)."""
    backlog = "{p5}:backlog"
    master = empty.owner_of(backlog)
    long, short = (settings_of(empty, wait_replicas=1, call_timeout_s=s) for s in (60.0, 2.0))

    async def commit(hot: HotClient) -> bytes:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        hot.commit(set_future(reply), "XADD", backlog, "*", "g", "gw1")
        entry: bytes = await reply
        return entry

    async with open_hot(long) as long_client, open_hot(short) as short_client:
        assert await commit(long_client)
        empty.cut_replication(master)
        try:
            with pytest.raises(Unavailable, match="0 of 1 replicas"):
                await commit(short_client)
            # These two find no replica, and so send no WAIT.
            commits = [asyncio.create_task(commit(long_client)) for _ in range(2)]
            await eventually(lambda: is_length(long_client, backlog, 4))
            newest = await long_client.call("XREVRANGE", backlog, "+", "-", "COUNT", 1)
            await long_client.call("HSET", "{p5}:checkpoint", "id", newest[0][0])
            assert newest[0][0] in await asyncio.gather(*commits)
        finally:
            await asyncio.to_thread(empty.restore_replication, master)

        async def is_committed() -> bool:
            try:
                return bool(await commit(short_client))
            except Unavailable:  # until the client detects the replica
                return False

        await eventually(is_committed)


async def is_length(hot: HotClient, stream: str, count: int) -> bool:
    """Return whether a stream has `count` entries."""
    return bool(await hot.call("XLEN", stream) == count)


# blocking readers, and gateway streams


async def test_gateway_stream_is_read_after_its_slot_moved(
    hot: HotClient, empty: RedisCluster
) -> None:
    """No record is lost or repeated during several moves."""
    gateway_stream, received = GatewayStream(hot, GATEWAY), list[AnyRecord]()
    writer, is_reading = GatewayStreamWriter(hot), asyncio.Event()

    async def read() -> None:
        async for records in gateway_stream.iter_records():
            is_reading.set()
            received.extend(records or [])

    async with running(read()):
        await is_reading.wait()
        for seq in range(1, 4):
            writer.send(GATEWAY, NewSeq("alice", seq))
            await eventually(lambda seq=seq: NewSeq("alice", seq) in received)  # type: ignore[misc]  # bound in this iteration
            key = hot.keys.gateway_stream(GATEWAY)
            await asyncio.to_thread(empty.move_slot, key, find_other_master(empty, key))

    assert received == [NewSeq("alice", 1), NewSeq("alice", 2), NewSeq("alice", 3)]


async def test_calls_to_the_warm_tier_are_read_after_their_slot_moved(
    hot: HotClient, empty: RedisCluster
) -> None:
    """A worker that loses the stream reads it again after its restart."""
    taken: list[str] = []

    async def work() -> None:
        while True:
            with contextlib.suppress(Unavailable):
                async for call in RpcQueue(
                    hot=hot, consumer="w1", clock=SystemClock()
                ).iter_calls():
                    taken.append(call.call.gateway)
            await asyncio.sleep(0.01)

    async with running(work()):
        for number in range(1, 4):
            # No worker responds to the call.
            async with running(RpcClient(hot, GATEWAY, 60).load_chat(ChatId("c"))):
                await eventually(lambda number=number: len(taken) == number)  # type: ignore[misc]  # bound in this iteration
            key = hot.keys.rpc_calls()
            await asyncio.to_thread(empty.move_slot, key, find_other_master(empty, key))


async def test_finish_soon_on_a_cluster_waits_for_notifications(
    hot: HotClient, empty: RedisCluster
) -> None:
    """Gateway streams are on other nodes: a chat leaves the list only after the notifications."""
    chat, key = ChatId("c1"), hot.keys.gateway_stream(GATEWAY)
    listed = hot.keys.undelivered(hot.keys.get_partition(chat))
    await GatewayStream(hot, GATEWAY).renew()
    await hot.call("ZADD", listed, 1, chat)
    writer = GatewayStreamWriter(hot)
    undelivered = UndeliveredChats(hot, writer)
    owner = empty.owner_of(key)
    owner.request("CONFIG", "SET", "min-replicas-to-write", 5)  # notifications are refused now
    try:
        writer.send(GATEWAY, NewSeq("alice", 1))
        undelivered.finish_soon(chat, Seq(1))
        await eventually(lambda: not writer._flushes and not writer._out)
        writer.send(GATEWAY, NewSeq("alice", 2))
        with pytest.raises(Unavailable, match="gateway stream were lost"):
            await undelivered.finish([(chat, Seq(1))])
    finally:
        owner.request("CONFIG", "SET", "min-replicas-to-write", 0)
    assert await hot.call("ZCARD", listed) == 1

    writer.send(GATEWAY, NewSeq("alice", 3))
    undelivered.finish_soon(chat, Seq(1))

    await eventually_equal(lambda: hot.call("ZCARD", listed), 0)
    ((_, fields),) = await hot.call("XREVRANGE", key, "+", "-", "COUNT", 1)
    assert fields[0] == b"r"


# dead nodes


async def test_killed_node_affects_only_its_partitions_and_changes_their_epoch(
    empty: RedisCluster,
) -> None:
    """Its calls fail and others continue. Its replica has a new epoch (P1, P5)."""
    async with open_hot(settings_of(empty)) as hot:
        notifications, before = Notifications(hot), list(hot.epochs)
        victim = empty.owner_of("{p0}:x")
        lost = {n for n in range(PARTITIONS) if empty.owner_of(hot.keys.epoch(n)) is victim}
        replica = empty.replica_of(victim)

        async def call_all() -> list[Any]:
            calls = (hot.call("GET", f"{{p{n}}}:x") for n in range(PARTITIONS))
            return await asyncio.gather(*calls, return_exceptions=True)

        victim.server.kill()

        replies = await call_all()
        assert {n for n, reply in enumerate(replies) if isinstance(reply, Unavailable)} == lost
        assert [reply for reply in replies if not isinstance(reply, Unavailable)] == [None] * (
            PARTITIONS - len(lost)
        )
        assert hot.is_up

        for node in empty.nodes:
            if node is not victim:  # the failover must not start before this
                node.request("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)

        await eventually_equal(call_all, [None] * PARTITIONS)
        assert replica.is_master
        changed = {n for n in range(PARTITIONS) if hot.epochs[n] != before[n]}
        assert changed == lost
        assert notifications.epochs == 1
        assert notifications.reloads >= 1
        victim.server.start()
        await asyncio.to_thread(empty.use_long_node_timeout)
        await hot.call("SET", "{p0}:x", "back")
