"""Tenants on a Redis Cluster: blocked on all masters, and deleted from all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chatserver.config import Redis
from chatserver.errors import ConfigError, Unavailable
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.tenant_redis import open_tenant_redis
from tests.support.servers.processes import eventually
from tests.support.servers.redis_cluster import RedisCluster, open_redis_cluster

PARTITIONS = 64
# A block takes this long, and so does a call that no master responds to.
CALL_TIMEOUT_S = 5.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A cluster of three masters."""
    with open_redis_cluster(tmp_path_factory.mktemp("cluster"), replicas=False) as made:
        made.use_long_node_timeout()
        yield made


async def test_block_and_deletion_reach_all_masters(cluster: RedisCluster) -> None:
    """A running process detects the block, and keys are deleted on every node."""
    settings = Redis.model_validate(
        {
            "url": cluster.url,
            "cluster": True,
            "partitions": PARTITIONS,
            "call_timeout_s": CALL_TIMEOUT_S,
        }
    ).for_tenant("acme")
    async with open_hot(settings) as hot, open_tenant_redis(settings) as redis:
        reasons: list[str] = []
        hot.on_blocked.append(reasons.append)
        for partition in range(PARTITIONS):
            await hot.call("SET", f"{{p{partition}}}:pushing:zoe", "1")
        assert (await redis.get_owner()).tenant == "acme"
        found, checked = await redis.find_remaining(1000)
        assert len(found) == checked == 3 * PARTITIONS  # epoch, where, and the key above

        await redis.block("acme", "tenant acme is blocked: a test")

        await eventually(
            lambda: "tenant acme is blocked: a test" in reasons, 60, "the block is reported"
        )
        deleted = [count async for count in redis.delete_pages()]
        assert sum(deleted) == 3 * PARTITIONS
        assert await redis.find_remaining(10) == ([], PARTITIONS)
        with pytest.raises(Unavailable):
            await hot.call("SET", "{p0}:pushing:zoe", "1")
        with pytest.raises(ConfigError, match="tenant acme is blocked: a test"):
            async with open_hot(settings):
                pass
        assert await redis.find_remaining(10) == ([], PARTITIONS)

        await redis.unblock()

        await eventually(lambda: reasons[-1] == "", 60, "the end of the block is reported")
