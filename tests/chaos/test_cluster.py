"""Redis Cluster: all operations, slot migration and master failover.

Three masters with a replica each, 64 partitions, real gateways and workers. docs/decisions/0004
defines the guarantees if a master dies before its replica has everything. On one machine a replica
lacks only data in transit, and the checker requires every guarantee.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import secrets
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from chatserver.client import ChatClient
from chatserver.domain.ids import ChatId, UserId, direct_chat_id
from chatserver.hot.redis.keys import Keys
from tests.chaos.conftest import PATIENT
from tests.chaos.world import World
from tests.support.history.events import Started
from tests.support.rawchat import Failed, RawChat, get_refusal
from tests.support.servers.processes import eventually
from tests.support.servers.redis_cluster import ClusterNode, RedisCluster
from tests.support.stack import Stack, open_stack, start_async
from tests.support.wire import Ended

PARTITIONS = 64
KEYS = Keys(PARTITIONS)
SMALL_MAX = 7  # with one member more, the chat is a large chat
DEADLINE_S = 60.0
# An idle client needs a second node timeout before its first send after a failover succeeds.
FAILOVER_S = 90.0


@pytest.fixture(scope="module")
def _stack(cluster: RedisCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    env = PATIENT | {
        "CHAT_REDIS_URL": cluster.url,
        "CHAT_REDIS_CLUSTER": "true",
        "CHAT_REDIS_PARTITIONS": str(PARTITIONS),
        "CHAT_CHATS_FANOUT_MEMBERS_MAX": str(SMALL_MAX),
    }
    folder = tmp_path_factory.mktemp("chaos-cluster")
    workers = (("persist",), ("repair", "rpc"))
    with open_stack(folder, gateways=2, workers=workers, fsync="no", env=env) as made:
        yield made


@pytest.fixture
def stack(_stack: Stack) -> Stack:
    """Two gateways and the workers, on the cluster."""
    return _stack


def slots_of(world: World) -> list[str]:
    """Return one key for each slot of the chats and users of a world."""
    names = [*world.history.chats, *{person.chat.user for person in world.people}]
    partitions = {KEYS.get_partition(name) for name in names}  # type: ignore[arg-type]  # plain
    return [KEYS.backlog(partition) for partition in sorted(partitions)]


def other_than(cluster: RedisCluster, node: ClusterNode) -> ClusterNode:
    """Return another master node."""
    return next(master for master in cluster.masters() if master is not node)


def count_resets(world: World) -> list[Started]:
    """Return how often devices restarted from a snapshot."""
    return [start for start in world.history.all_of(Started) if start.tops is not None]


@pytest.fixture
async def three_devices(stack: Stack) -> AsyncIterator[list[RawChat]]:
    """Connect alice's device and bob's two devices, on both gateways."""
    east, west = stack.gateways[:2]
    alice, bob = (f"{name}-{secrets.token_hex(3)}" for name in ("alice", "bob"))
    async with (
        stack.chat_of(alice, port=east.port) as first,
        stack.chat_of(bob, port=west.port) as second,
        stack.chat_of(bob, port=east.port, device=f"{bob}-laptop") as third,
    ):
        yield [first, second, third]


async def make_group(owner: RawChat, *others: str) -> str:
    """Create a group; return its id."""
    members, ref = list(others), secrets.token_hex(4)
    return await owner.create_group(members, ref=ref, deadline_s=DEADLINE_S)


async def test_changes_marks_and_signals_reach_all_devices_on_a_cluster(
    three_devices: list[RawChat],
) -> None:
    """All protocol operations also work if chats and users are on different nodes."""
    alice, bob, laptop = three_devices
    chat = await make_group(alice, bob.user)
    first = (await alice.send(chat, "frist"))["seq"]
    stored = await alice.send(chat, "keep", durability="stored")
    await alice.request("edit", DEADLINE_S, chat=chat, seq=first, ref="e1", body="first")
    await bob.request("react", DEADLINE_S, chat=chat, seq=first, ref="r1", emoji="👍")
    await alice.request("delete", DEADLINE_S, chat=chat, seq=stored["seq"], ref="d1")
    await alice.send(chat, "short", expires_s=1)
    last = (await alice.send(chat, "last"))["seq"]
    kinds = ["message", "message", "edit", "reaction", "delete", "message", "message"]
    for device in three_devices:
        await device.expect_frame("event", DEADLINE_S, chat=chat, cs=last)
        received = [event["kind"] for event in device.of_type("event", chat=chat) if "cs" in event]
        assert received == kinds

    await bob.request("mark", DEADLINE_S, chat=chat, read=last)
    for device in three_devices:
        marks = {"user": bob.user, "read": last, "received": last}
        await device.expect_frame("event", DEADLINE_S, kind="read", chat=chat, read=marks)
    await bob.send_frame("typing", chat=chat, on=True)
    await alice.expect_frame("signal", DEADLINE_S, kind="typing", chat=chat)
    await alice.send_frame("watch", users=[bob.user])
    await alice.expect_frame("signal", DEADLINE_S, kind="presence", state="online")
    for device in (bob, laptop):
        await device.send_frame("state", state="bg")
    await alice.expect_frame("signal", DEADLINE_S, kind="presence", state="away")

    async def bodies() -> list[str]:
        page = await laptop.request("history", DEADLINE_S, chat=chat)
        return [row["body"] for row in page["messages"] if row["kind"] == "text"]

    async def is_expired() -> bool:
        return await bodies() == ["first", "", "", "last"]

    await eventually(is_expired, DEADLINE_S, "the expired message is deleted in history")
    assert stored["durability"] == "stored"


async def test_group_becomes_large_and_small_again_on_a_cluster(
    stack: Stack, three_devices: list[RawChat]
) -> None:
    """Both transitions reach a device that is offline meanwhile and an SDK application."""
    alice, bob, laptop = three_devices
    guests = [f"guest-{number}-{secrets.token_hex(3)}" for number in range(SMALL_MAX - 1)]
    await stack.add_users(guests)
    chat = await make_group(alice, bob.user)
    await alice.send(chat, "small")
    for device in three_devices:
        await device.expect_frame("event", DEADLINE_S, chat=chat, cs=1)
    address = f"ws://127.0.0.1:{bob.port}/"
    client = ChatClient(address, stack.token(bob.user), device=f"{bob.user}-sdk", open_s=DEADLINE_S)
    async with client:
        await client.history(chat)
        await laptop.abort()
        await alice.request("invite", DEADLINE_S, chat=chat, ref="i1", users=guests)
        large = (await alice.send(chat, "large"))["seq"]
        await bob.expect_frame("event", DEADLINE_S, chat=chat, cs=large, seq=0)
        for guest in guests:
            await alice.request("remove", DEADLINE_S, chat=chat, ref=f"out-{guest}", user=guest)
        end = (await alice.send(chat, "small again"))["seq"]
        await laptop.start()
        for device in three_devices:
            await device.expect_frame("event", DEADLINE_S, chat=chat, cs=end)
            events = [event for event in device.of_type("event", chat=chat) if "cs" in event]
            assert [event["cs"] for event in events] == list(range(1, end + 1))
            assert events[-1]["seq"] > 0
        wanted = ["small", "large", "small again"]
        await eventually(lambda: [m.body for m in client.messages(chat)] == wanted, DEADLINE_S)

    await alice.request("remove", DEADLINE_S, chat=chat, ref="out", user=bob.user)
    refused = await get_refusal(bob.send(chat, "still here?"))
    assert refused.code == "not_found"


async def test_gateway_killed_before_fan_out_is_completed_by_repair_on_a_cluster(
    stack: Stack, three_devices: list[RawChat]
) -> None:
    """The acked message is in the chat on one node, but in no inbox on the other nodes."""
    alice, bob, _ = three_devices
    chat = await make_group(alice, bob.user)
    await bob.expect_frame("event", DEADLINE_S, chat=chat)
    gateway = stack.add_gateway(CHAT_FAILPOINT="send.before_deliver:kill")
    await start_async(gateway)
    async with stack.chat_of(alice.user, port=gateway.port, device=f"{alice.user}-2") as phone:
        with contextlib.suppress(Ended, TimeoutError):
            await phone.send(chat, "last words")
        assert gateway.process is not None
        await eventually(lambda: gateway.process and gateway.process.poll() is not None, DEADLINE_S)
        for device in three_devices:
            await device.expect_bodies(chat, ["last words"], DEADLINE_S)
    stack.gateways.remove(gateway)
    gateway.kill()


async def test_slot_migration_under_traffic_loses_and_repeats_nothing(
    world: World, stack: Stack, cluster: RedisCluster
) -> None:
    """A slot migration only delays sends: no loss, no repeat, no reset of a device."""
    async with world:
        await world.wait_for_acks()
        for key in slots_of(world)[:6]:
            source = await asyncio.to_thread(cluster.owner_of, key)
            target = await asyncio.to_thread(other_than, cluster, source)
            assert await asyncio.to_thread(cluster.move_slot, key, target) > 0
            await asyncio.to_thread(source.request, "SCRIPT", "FLUSH")
            await world.wait_for_acks(5)
        refused = len(world.history.refusals())
        await world.wait_for_acks(20)
        assert len(world.history.refusals()) == refused, (
            "sends are still refused after the migration"
        )
        await world.finish_and_check()

    assert count_resets(world) == []


async def test_master_killed_with_unreplicated_messages_loses_no_stored_message(
    stack: Stack, cluster: RedisCluster
) -> None:
    """A lagging replica restores an older state.

    DynamoDB has the other messages, and new seqs are higher. Only the chat is on the failed node;
    its members are on others. They are reset too, so the sender sends the unstored message again,
    and no message is lost (P1).
    """
    users, chat, victim = find_chat_on_another_node(cluster)
    await stack.add_users(users)
    async with (
        stack.chat_of(users[0]) as alice,
        stack.chat_of(users[1], port=stack.gateways[1].port) as bob,
    ):
        await alice.request("open_direct", user=bob.user)
        await alice.send(chat, "replicated")
        await alice.expect_frame("stored", chat=chat, upto=1)
        replica = await asyncio.to_thread(cluster.replica_of, victim)
        await asyncio.to_thread(cluster.wait_replicated, victim)
        await asyncio.to_thread(cluster.cut_replication, victim)
        for number in range(5):
            await alice.send(chat, f"stored {number}")
        await alice.expect_frame("stored", chat=chat, upto=6)
        stack.workers["persist"].send_signal(signal.SIGSTOP)
        await alice.send(chat, "acked only")
        await asyncio.to_thread(cluster.use_short_node_timeout)
        victim.server.kill()
        await eventually(lambda: asyncio.to_thread(lambda: replica.is_master), FAILOVER_S)

        async def is_acked(body: str, ref: str) -> bool:
            try:
                return bool(await alice.send(chat, body, ref=ref))
            except Failed as exc:
                assert exc.is_temporary
                return False
            except TimeoutError:
                return False  # this attempt must succeed

        stack.workers["persist"].send_signal(signal.SIGCONT)
        await eventually(lambda: is_acked("after", "after"), FAILOVER_S)
        await eventually(lambda: alice.of_type("reset") and bob.of_type("reset"), FAILOVER_S)
        assert "acked only" in [pending.body for pending in alice.lost]
        for lost in alice.lost:
            await eventually(functools.partial(is_acked, lost.body, lost.ref), FAILOVER_S)
        bodies = ["replicated", *(f"stored {n}" for n in range(5)), "after", "acked only"]
        rows = await bob.read_final(chat)
        assert [row.seq for row in rows] == list(range(1, 9))
        assert sorted(row.body for row in rows) == sorted(bodies)
    await start_async(victim.server)
    await asyncio.to_thread(cluster.use_long_node_timeout)


def find_chat_on_another_node(
    cluster: RedisCluster,
) -> tuple[list[UserId], ChatId, ClusterNode]:
    """Return two users, their direct chat on a node without them, and that node."""
    for number in itertools.count():
        users = [UserId(f"{name}-{number}-{secrets.token_hex(3)}") for name in ("alice", "bob")]
        chat = direct_chat_id(*users)
        node = cluster.owner_of(KEYS.chat(chat))
        if node not in [cluster.owner_of(KEYS.box(user)) for user in users]:
            return users, chat, node
    raise AssertionError


async def test_master_killed_is_replaced_by_its_replica(
    world: World, stack: Stack, cluster: RedisCluster
) -> None:
    """The failed node's partitions start a new epoch, and all devices restart (P1, P5)."""
    async with world:
        await world.wait_for_acks()
        owners = {key: cluster.owner_of(key) for key in slots_of(world)}
        victim = owners[slots_of(world)[0]]
        replica = cluster.replica_of(victim)
        await asyncio.to_thread(cluster.use_short_node_timeout)
        victim.server.kill()
        await eventually(lambda: asyncio.to_thread(lambda: replica.is_master), FAILOVER_S)
        await world.wait_for_acks(40)
        await start_async(victim.server)
        await asyncio.to_thread(cluster.use_long_node_timeout)
        await world.finish_and_check()

    users = {person.chat.user for person in world.people}
    assert {seen.user for seen in count_resets(world)} == users
