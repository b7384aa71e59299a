"""A Redis with Sentinels: its master is killed, or becomes a replica."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatserver import config
from chatserver.dev.binaries import find_binary
from chatserver.dev.servers import HOST, Server, redis_launch
from chatserver.errors import Unavailable
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import eventually, free_port, redis_client, redis_url_of

FAILOVER_S = 60.0  # on a busy machine; 2 s on an idle one


@dataclasses.dataclass
class SentinelSetup:
    """A master with a replica and three Sentinels."""

    servers: list[Server]
    sentinels: list[Server]

    @property
    def settings(self) -> config.Redis:
        """Return settings that have only the addresses of the Sentinels."""
        urls = [redis_url_of(sentinel).rpartition("/")[0] for sentinel in self.sentinels]
        return redis_settings("redis://nowhere:1/0", sentinels=urls)

    def enable_failover(self) -> None:
        """Detect a dead master quickly.

        Before this call, a slow server does not cause a failover.
        """
        for sentinel in self.sentinels:
            words = ("SENTINEL", "SET", "mymaster", "down-after-milliseconds", "700")
            self.admin(sentinel).execute_command(*words)

    def admin(self, server: Server) -> Any:
        """Return a client of a server."""
        return redis_client(redis_url_of(server), protocol=2)


def start_sentinel(folder: Path, master: Server) -> Server:
    """Start a Sentinel: the Redis server, with a configuration file that it rewrites."""
    port = free_port()
    launch = redis_launch(folder / f"sentinel-{port}", port, appendonly="no")
    launch.folder.mkdir(parents=True)
    file = launch.folder / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind {HOST}\ndir {launch.folder}\n"
        f"sentinel monitor mymaster {HOST} {master.port} 2\n"
        "sentinel down-after-milliseconds mymaster 60000\n"  # see `enable_failover`
        "sentinel failover-timeout mymaster 3000\n"
    )
    argv = [str(find_binary("redis-server")), str(file), "--sentinel"]
    return Server(dataclasses.replace(launch, argv=argv)).start()


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[SentinelSetup]:
    """A master, its replica, and three Sentinels."""
    servers = [
        Server(redis_launch(tmp_path / name, free_port(), appendonly="no")).start()
        for name in ("first", "second")
    ]
    made = SentinelSetup(servers, [])
    try:
        made.admin(servers[1]).replicaof(HOST, servers[0].port)
        made.sentinels += [start_sentinel(tmp_path, servers[0]) for _ in range(3)]
        yield made
    finally:
        for server in (*servers, *made.sentinels):
            server.kill()


async def is_ready(setup: SentinelSetup) -> bool:
    """Return whether every Sentinel has found the replica and the other two Sentinels."""
    for sentinel in setup.sentinels:
        client = setup.admin(sentinel)
        client.response_callbacks.clear()
        (words,) = client.execute_command("SENTINEL", "MASTERS")
        known = dict(zip(words[::2], words[1::2], strict=True))
        if (known[b"num-slaves"], known[b"num-other-sentinels"]) != (b"1", b"2"):
            return False
    link = setup.admin(setup.servers[1]).info("replication")["master_link_status"]
    return bool(link == "up")


async def write(hot: HotClient) -> bool:
    """Write with the client; return False while it is unavailable."""
    try:
        await hot.call("SET", "{p0}:limit:x", "1")
    except Unavailable:
        return False
    return True


async def test_client_uses_the_master_that_the_sentinels_promote(setup: SentinelSetup) -> None:
    """Calls are unavailable during the failover. The epoch is new, because data may be lost."""
    await eventually(lambda: is_ready(setup), FAILOVER_S)
    first, second = setup.servers
    async with open_hot(setup.settings) as hot:
        before = hot.get_epoch(0)
        assert hot.name.endswith(f":{first.port}")
        assert await write(hot)
        first.kill()
        setup.enable_failover()

        await eventually(lambda: write(hot), FAILOVER_S)

        assert hot.name.endswith(f":{second.port}")
        assert hot.get_epoch(0) != before


async def test_client_leaves_a_master_that_became_a_replica(setup: SentinelSetup) -> None:
    """The old master still responds but refuses writes (READONLY). No restart is needed."""
    first, second = setup.servers
    async with open_hot(setup.settings) as hot:
        assert await write(hot)
        for sentinel in setup.sentinels:
            sentinel.kill()  # the Sentinels would promote it again

        setup.admin(second).replicaof("NO", "ONE")
        setup.admin(first).replicaof(HOST, second.port)

        await eventually(lambda: not hot.is_up, FAILOVER_S)


async def test_client_whose_sentinels_are_down_names_their_address() -> None:
    """The error at the start names the Sentinels that do not respond."""
    url = f"redis://{HOST}:{free_port()}"

    with pytest.raises(Unavailable, match=url.removeprefix("redis://")):
        async with open_hot(config.Redis(sentinels=[url])):
            pass
