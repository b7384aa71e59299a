"""Stacks of the chaos tests, shared by all scenarios until a test breaks one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.world import World, new_seed
from tests.support.servers.redis_cluster import RedisCluster, open_redis_cluster
from tests.support.stack import Stack, open_stack

# Short leases and refresh intervals, so that automatic recovery happens within the test.
SETTINGS = {
    "CHAT_PERSIST_LEASE_S": "2",
    "CHAT_PERSIST_WRITE_TIMEOUT_S": "1",
    "CHAT_GATEWAY_ONLINE_TTL_S": "3",
    "CHAT_GATEWAY_PING_INTERVAL_S": "4",
    "CHAT_GATEWAY_PONG_TIMEOUT_S": "2",
    "CHAT_REDIS_CALL_TIMEOUT_S": "1",
}
# For clients that do not reconnect automatically, and for tests that fail on any refusal. A process
# that a busy machine stalls for some seconds must not cause one.
PATIENT = SETTINGS | {
    "CHAT_GATEWAY_PING_INTERVAL_S": "60",
    "CHAT_GATEWAY_PONG_TIMEOUT_S": "50",
    "CHAT_REDIS_CALL_TIMEOUT_S": "15",
}


@pytest.fixture(scope="session")
def _stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Stack]]:
    with ExitStack() as opened:
        current: dict[int, tuple[ExitStack, Stack]] = {}

        def get(partitions: int) -> Stack:
            if partitions in current and current[partitions][1].is_broken:
                current.pop(partitions)[0].close()
            if partitions not in current:
                settings = SETTINGS | {"CHAT_REDIS_PARTITIONS": str(partitions)}
                made = open_stack(
                    tmp_path_factory.mktemp("chaos"),
                    gateways=2,
                    workers=(("persist",), ("repair", "rpc")),
                    fsync="always",
                    env=settings,
                )
                servers = opened.enter_context(ExitStack())
                current[partitions] = servers, servers.enter_context(made)
            return current[partitions][1]

        yield get


@pytest.fixture
def stack(request: pytest.FixtureRequest, _stacks: Callable[[int], Stack]) -> Stack:
    """Two gateways, a separate persist worker and the other workers.

    Redis has AOF `always`. The parameter is the number of partitions. With one partition, the
    commit script writes to all inboxes; with several, a second script delivers most messages.
    """
    return _stacks(getattr(request, "param", 1))


@pytest.fixture
def world(stack: Stack, tmp_path: Path) -> World:
    """Users on the stack. They start when the test enters the context manager."""
    return World(stack, tmp_path, new_seed())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, each with a replica; failover is disabled until a test enables it."""
    with open_redis_cluster(tmp_path_factory.mktemp("cluster"), replicas=True) as made:
        made.use_long_node_timeout()
        yield made
