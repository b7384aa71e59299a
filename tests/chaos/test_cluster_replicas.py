"""Redis Cluster with `redis.wait_replicas`: a master without a replica accepts writes.

In a failover, the only replica becomes the master, and has none. With
`CHAT_REDIS_WAIT_REPLICAS=1`, DynamoDB then takes the place of the replica.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatserver.domain.ids import ChatId
from chatserver.hot.redis.keys import Keys
from tests.chaos.conftest import SETTINGS
from tests.chaos.world import World, new_seed
from tests.support.history.events import Responded
from tests.support.servers.processes import eventually
from tests.support.servers.redis_cluster import RedisCluster
from tests.support.stack import Stack, open_stack, start_async

PARTITIONS = 64
KEYS = Keys(PARTITIONS)
FAILOVER_S = 90.0
DOWN_S = float(os.environ.get("CHAOS_MASTER_DOWN_S", "0"))


@pytest.fixture(scope="module")
def stack(cluster: RedisCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Gateways that acknowledge a message only after a replica has it."""
    env = SETTINGS | {
        "CHAT_REDIS_URL": cluster.url,
        "CHAT_REDIS_CLUSTER": "true",
        "CHAT_REDIS_PARTITIONS": str(PARTITIONS),
        "CHAT_REDIS_WAIT_REPLICAS": "1",
    }
    folder = tmp_path_factory.mktemp("chaos-replicas")
    workers = (("persist",), ("repair", "rpc"))
    with open_stack(folder, gateways=2, workers=workers, fsync="no", env=env) as made:
        yield made


async def test_chats_of_a_killed_master_accept_messages_until_it_is_back(
    stack: Stack, cluster: RedisCluster, tmp_path: Path
) -> None:
    """Its replica, the new master, has no replica; DynamoDB makes its messages durable (P1).

    `CHAOS_MASTER_DOWN_S` prolongs the outage. The test prints when each chat got its first ack.
    """
    world = World(stack, tmp_path, new_seed())
    async with world:
        await world.wait_for_acks()
        owners = {chat: cluster.owner_of(KEYS.chat(ChatId(chat))) for chat in world.history.chats}
        victim, _ = Counter(owners.values()).most_common(1)[0]
        chats = {chat for chat, owner in owners.items() if owner is victim}
        replica = cluster.replica_of(victim)
        await asyncio.to_thread(cluster.use_short_node_timeout)
        killed_at = world.recorder.now()
        victim.server.kill()
        await eventually(lambda: asyncio.to_thread(lambda: replica.is_master), FAILOVER_S)
        elected_at, before = world.recorder.now(), len(world.history.acks())

        def list_acks() -> list[Responded]:
            return [ack for ack in world.history.acks()[before:] if ack.chat in chats]

        await eventually(
            lambda: Counter(ack.chat for ack in list_acks()).keys() == chats,
            FAILOVER_S,
            "each chat of the killed master has a new ack",
        )
        await world.wait_for_acks(40, FAILOVER_S)
        await world.chat_for(DOWN_S - (world.recorder.now() - killed_at))
        acks, firsts = list_acks(), dict[str, float]()
        for ack in acks:
            firsts.setdefault(ack.chat, ack.t - elected_at)
        print(  # noqa: T201  # shown by pytest -s
            f"elected after {elected_at - killed_at:.1f} s; first acks of {len(chats)} chats "
            f"{', '.join(f'{after:.1f}' for after in sorted(firsts.values()))} s later; "
            f"{len(acks)} acks in {world.recorder.now() - elected_at:.0f} s without a replica"
        )
        link = await asyncio.to_thread(replica.info, "replication")
        assert link["connected_slaves"] == "0"
        await start_async(victim.server)
        await asyncio.to_thread(cluster.use_long_node_timeout)
        await world.finish_and_check()
