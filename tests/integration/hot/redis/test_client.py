"""The Redis client of the hot tier: connections, reconnects, epochs, and refused servers."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatserver import config
from chatserver.dev.binaries import find_binary, has_binary
from chatserver.dev.servers import redis_launch
from chatserver.domain.ids import UserId
from chatserver.errors import ConfigError, CorruptData, Overloaded, Unavailable
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.scripts import Value, load_script
from chatserver.hot.users.inbox import Inboxes
from tests.integration.hot.support import Notifications, redis_settings
from tests.support.servers.processes import (
    Server,
    StartRedis,
    eventually,
    free_port,
    redis_client,
    redis_url_of,
)
from tests.support.servers.tcp_proxy import TcpProxy


def settings_of(server: Server, **changes: Any) -> config.Redis:
    """Return the settings of a Redis that only this test uses."""
    return redis_settings(redis_url_of(server), **changes)


def through(proxy: TcpProxy, **changes: Any) -> config.Redis:
    """Return the settings of a Redis behind a proxy."""
    return redis_settings(f"redis://127.0.0.1:{proxy.port}/0", **changes)


@pytest.fixture
def own(start_redis: StartRedis) -> Server:
    """A Redis that only this test uses; it keeps its data."""
    return start_redis("always")


@pytest.fixture
def admin(own: Server) -> Iterator[Any]:
    """A second client of this Redis."""
    with redis_client(redis_url_of(own)) as client:
        yield client


# starting


async def test_client_without_redis_names_its_address_and_how_to_start_it() -> None:
    """The error also names the setting."""
    port = free_port()

    with pytest.raises(Unavailable) as caught:
        async with open_hot(config.Redis(url=f"redis://127.0.0.1:{port}/0")):
            pass

    assert f"127.0.0.1:{port}" in caught.value.message
    assert "redis-server" in caught.value.message
    assert "CHAT_REDIS_URL" in caught.value.message


async def test_client_of_a_silent_server_fails_at_the_deadline() -> None:
    """The server accepts the connection and sends nothing."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = config.Redis(url=f"redis://127.0.0.1:{port}/0", call_timeout_s=0.1)
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
            async with open_hot(settings):
                pass


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_client_refuses_a_redis_that_evicts_keys(
    own: Server, admin: Any, policy: str
) -> None:
    """A Redis that evicts keys loses messages."""
    admin.config_set("maxmemory-policy", policy)

    with pytest.raises(ConfigError, match=f"maxmemory-policy is {policy}; set it to noeviction"):
        async with open_hot(settings_of(own)):
            pass


async def test_client_with_another_partition_count_is_refused(own: Server) -> None:
    """Keys would be in other partitions. The first count remains."""
    async with open_hot(settings_of(own, partitions=4)):
        pass

    with pytest.raises(ConfigError, match=r"redis\.partitions: is 8, .* initialized with 4"):
        async with open_hot(settings_of(own, partitions=8)):
            pass
    async with open_hot(settings_of(own, partitions=4)) as hot:
        assert hot.is_up


async def test_client_uses_password_and_database_of_the_url(own: Server, admin: Any) -> None:
    """The password is percent-decoded."""
    admin.config_set("requirepass", "se:cret")
    url = f"redis://:se%3Acret@127.0.0.1:{own.port}/3"

    async with open_hot(redis_settings(url)) as hot:
        await hot.call("SET", "k", "v")

    with redis_client(url) as other:
        assert other.get("k") == b"v"


@pytest.mark.parametrize("user", ["", ":wrong@"])
async def test_client_with_wrong_password_is_a_configuration_error(
    own: Server, admin: Any, user: str
) -> None:
    """The error names the setting and does not show the password."""
    admin.config_set("requirepass", "secret")

    with pytest.raises(ConfigError, match=r"redis\.url") as caught:
        async with open_hot(redis_settings(f"redis://{user}127.0.0.1:{own.port}/0")):
            pass

    assert "wrong@" not in str(caught.value)


async def test_clients_of_one_redis_share_its_epochs(own: Server) -> None:
    """The first client that connects creates the epochs."""
    settings = settings_of(own, partitions=3)

    async with open_hot(settings) as one, open_hot(settings) as two:
        assert one.epochs == two.epochs
        assert all(one.epochs)


# reconnects


async def test_client_reconnects_after_a_reset_in_the_same_epoch(own: Server) -> None:
    """A broken connection is not a data loss, so only a reload is reported."""
    async with TcpProxy(own.port) as proxy, open_hot(through(proxy)) as hot:
        notifications, epochs = Notifications(hot), list(hot.epochs)

        proxy.reset()
        await eventually(lambda: notifications.reloads == 1)

        assert await hot.call("PING") == b"PONG"
        assert (hot.epochs, notifications.epochs) == (epochs, 0)


async def test_client_of_killed_redis_fails_calls_and_reconnects_in_a_new_epoch(
    own: Server,
) -> None:
    """A restarted Redis may have lost data (guarantees P1, P5)."""
    async with open_hot(settings_of(own, partitions=2)) as hot:
        notifications, before = Notifications(hot), list(hot.epochs)
        calls = [asyncio.ensure_future(hot.call("BLPOP", f"q{n}", 0)) for n in range(3)]

        own.kill()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, Unavailable)
        await eventually(lambda: not hot.is_up)
        with pytest.raises(Unavailable):
            await hot.call("PING")
        own.start()
        await eventually(lambda: hot.is_up and notifications.reloads == 1)

        assert notifications.epochs == 1
        assert all(old != new for old, new in zip(before, hot.epochs, strict=True))
        assert await hot.call("PING") == b"PONG"


async def test_client_reports_a_new_epoch_before_it_accepts_calls(own: Server) -> None:
    """No caller uses state of the previous epoch."""
    async with open_hot(settings_of(own)) as hot:
        seen: list[tuple[bool, str]] = []
        hot.on_epoch.append(lambda: seen.append((hot.is_up, hot.epochs[0])))
        before = hot.epochs[0]

        own.kill()
        own.start()
        await eventually(lambda: hot.is_up and hot.epochs[0] != before)

        assert seen == [(False, hot.epochs[0])]


async def test_client_of_a_blackholed_connection_times_out_and_reconnects(own: Server) -> None:
    """A connection that drops all data is detected at the deadline."""
    async with TcpProxy(own.port) as proxy, open_hot(through(proxy)) as hot:
        notifications = Notifications(hot)
        # It applies from the next connection on, which may need several attempts.
        hot.settings = through(proxy, call_timeout_s=1.0)
        proxy.reset()
        await eventually(lambda: notifications.reloads > 0 and hot.is_up)

        proxy.blackhole("down")
        with pytest.raises(Unavailable, match="no response within 1 s"):
            await hot.call("PING")

        proxy.end_faults()

        await eventually(lambda: hot.is_up)
        assert await hot.call("PING") == b"PONG"


async def test_client_that_redis_refuses_temporarily_keeps_reconnecting(
    own: Server, admin: Any
) -> None:
    """A temporary error of Redis does not end the process."""
    async with open_hot(settings_of(own)) as hot:
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: not hot.is_up)

        admin.config_set("maxmemory-policy", "noeviction")

        await eventually(lambda: hot.is_up)


# calls


async def test_client_loads_a_flushed_script_again(hot: HotClient) -> None:
    """SCRIPT FLUSH and failover cost only one round trip."""
    await hot.call("SCRIPT", "FLUSH")

    args: dict[str, Value] = {"owner": "me", "ttl_ms": 60_000}
    tokens = [
        await hot.run(load_script("acquire_lease"), {"lease": "{p0}:lease:w"}, args) for _ in "ab"
    ]

    assert tokens == [1, 1]
    assert await hot.call("SCRIPT", "EXISTS", load_script("acquire_lease").sha) == [1]


async def test_client_snapshot_is_atomic(hot: HotClient) -> None:
    """No other command runs between the reads."""
    await hot.call("SET", "{p0}:n", 1)

    async def bump() -> None:
        for _ in range(50):
            await hot.call("INCR", "{p0}:n")

    bumping = asyncio.create_task(bump())
    for _ in range(50):
        first, second = await hot.snapshot(("GET", "{p0}:n"), ("GET", "{p0}:n"))
        assert first == second
    await bumping


async def test_client_of_full_redis_is_overloaded_and_still_reads(own: Server, admin: Any) -> None:
    """New data is refused; reads, leases and transactions continue."""
    async with open_hot(settings_of(own)) as hot:
        await hot.call("SET", "{p0}:k", "v")
        admin.config_set("maxmemory", 1)

        with pytest.raises(Overloaded):
            await hot.call("SET", "{p0}:k", "w")
        why = await eventually(lambda: hot.health.refusal)
        assert "is full" in why
        assert await hot.run(
            load_script("acquire_lease"), {"lease": "{p0}:l"}, {"owner": "me", "ttl_ms": 1}
        )
        assert await hot.snapshot(("GET", "{p0}:k"), ("GET", "{p0}:none")) == [b"v", None]
        assert await hot.transaction(("SET", "{p0}:k", "x"), ("GET", "{p0}:k")) == [b"OK", b"x"]
        assert await hot.call("GET", "{p0}:k") == b"x"

        admin.config_set("maxmemory", 0)
        await hot.call("SET", "{p0}:k", "w")
        await eventually(lambda: not hot.health.refusal)


async def test_client_knows_how_full_redis_is(own: Server, admin: Any) -> None:
    """The share of `maxmemory` in use decides what is trimmed and what is refused."""
    async with open_hot(settings_of(own)) as hot:
        assert hot.health.memory_share == 0  # `maxmemory` is not set
        used = admin.info("memory")["used_memory"]

        admin.config_set("maxmemory", int(used / 0.77))
        health = hot.health
        await eventually(lambda: health.is_under_memory_pressure and not health.is_low_on_memory)
        admin.config_set("maxmemory", int(used / 0.95))
        await eventually(lambda: hot.health.is_low_on_memory)
        admin.config_set("maxmemory", 10 * used)
        await eventually(lambda: not hot.health.is_under_memory_pressure)


async def count_script_calls(hot: HotClient) -> int:
    """Return how many scripts Redis has run."""
    info = (await hot.call("INFO", "commandstats")).decode()
    match = re.search(r"cmdstat_evalsha:calls=(\d+)", info)
    return int(match[1]) if match else 0


BACKLOG, CHECKPOINT = "{p0}:backlog", "{p0}:checkpoint"
ADD = ("XADD", BACKLOG, "*", "g", "gw1")  # a commit, as far as its durability matters


async def test_client_that_waits_for_replicas_fails_commits_without_them(own: Server) -> None:
    """Data on a single server may be lost with it, so the sender must retry (P1)."""
    async with (
        open_hot(settings_of(own, wait_replicas=1)) as careful,
        open_hot(settings_of(own)) as plain,
    ):
        replies: list[Any] = []
        careful.commit(replies.append, *ADD)
        plain.commit(replies.append, *ADD)
        await eventually(lambda: len(replies) == 2)

        refusal = next(reply for reply in replies if isinstance(reply, Unavailable))
        assert "0 of 1 replicas" in refusal.message
        assert any(isinstance(reply, bytes) for reply in replies)  # the other client's
        assert await careful.call("XLEN", BACKLOG) == 2


async def test_commits_without_replicas_succeed_once_dynamodb_has_them(own: Server) -> None:
    """After a failover, the new master has no replica until its predecessor is back."""
    settings = settings_of(own, wait_replicas=1, call_timeout_s=60.0)
    async with open_hot(settings) as hot:
        replies: list[Any] = []
        for _ in range(3):
            hot.commit(replies.append, *ADD)
        # A WAIT for each commit would delay this call by 45 seconds.
        async with asyncio.timeout(30):
            entries = await hot.call("XRANGE", BACKLOG, "-", "+")
        first, _, last = [name for name, _ in entries]
        await hot.call("HSET", CHECKPOINT, "id", first)
        polls = await count_script_calls(hot)

        async def have_polled() -> bool:
            return await count_script_calls(hot) > polls + 6

        await eventually(have_polled)
        assert replies == []

        await hot.call("HSET", CHECKPOINT, "id", last)
        await eventually(lambda: len(replies) == 3)

        assert sorted(replies) == [name for name, _ in entries]


async def test_commit_without_replicas_fails_if_redis_loses_its_data_meanwhile(
    own: Server,
) -> None:
    """The checkpoint of a later epoch proves nothing about an entry of an earlier one."""
    async with open_hot(settings_of(own, wait_replicas=1, call_timeout_s=60.0)) as hot:
        replies: list[Any] = []
        hot.commit(replies.append, *ADD)
        await eventually(lambda: hot.call("EXISTS", BACKLOG))

        await hot.call("FLUSHALL")
        await eventually(lambda: replies)

        assert isinstance(replies[0], Unavailable)


async def test_client_that_waits_for_the_disk_refuses_a_redis_that_cannot(own: Server) -> None:
    """Redis 7.0 has no WAITAOF, and a Redis without an append-only file writes nothing to disk."""
    with redis_client(redis_url_of(own)) as admin:
        admin.config_set("appendonly", "no")
    with pytest.raises(ConfigError, match=r"CHAT_REDIS_WAIT_FSYNC\): needs Redis 7\.2 or Valkey"):
        async with open_hot(settings_of(own, wait_fsync=True)):
            pass


@pytest.mark.skipif(not has_binary("valkey-server"), reason="run `make tools`")
async def test_client_that_waits_for_the_disk_fails_commits_that_are_not_on_disk(
    tmp_path: Path,
) -> None:
    """An acked message survives a crash of Redis and of its machine (P1)."""
    launch = redis_launch(tmp_path, free_port(), appendonly="no")
    argv = [*launch.argv[:2], str(find_binary("valkey-server")), *launch.argv[3:]]
    server = Server(dataclasses.replace(launch, argv=argv)).start()
    replies = list[Any]()
    try:
        with redis_client(redis_url_of(server)) as admin:
            # The file is written but not synced, which is left to the kernel.
            admin.config_set("appendfsync", "no")
            admin.config_set("appendonly", "yes")
            await eventually(lambda: not admin.info("persistence")["aof_rewrite_in_progress"])
            changes = {"wait_fsync": True, "call_timeout_s": 8.0}
            async with open_hot(settings_of(server, **changes)) as hot:
                hot.commit(replies.append, *ADD)
                await eventually(lambda: replies)
                assert isinstance(replies[0], Unavailable)
                assert "not on disk yet" in replies[0].message

                admin.config_set("appendfsync", "always")
                hot.commit(replies.append, *ADD)
                await eventually(lambda: len(replies) == 2)
                assert isinstance(replies[1], bytes)
    finally:
        server.kill()


async def test_client_of_a_redis_that_refuses_writes_reports_the_reason(
    own: Server, admin: Any
) -> None:
    """Such a Redis still serves reads, but readiness must fail."""
    async with open_hot(settings_of(own)) as hot:
        admin.execute_command("CONFIG", "SET", "min-replicas-to-write", "1")
        why = await eventually(lambda: hot.health.refusal)
        assert "Redis does not accept writes" in why
        assert "NOREPLICAS" in "".join(hot.health.refusals.values())
        admin.execute_command("CONFIG", "SET", "min-replicas-to-write", "0")
        await eventually(lambda: not hot.health.refusal)


async def test_client_call_that_breaks_an_invariant_is_corrupt_data(hot: HotClient) -> None:
    """The error alerts an operator and is not retried."""
    await hot.call("SET", "{p0}:box:alice", "not a hash")

    with pytest.raises(CorruptData, match="WRONGTYPE"):
        await Inboxes(hot).open_user_state(UserId("alice"), [], hot.get_epoch(0))


async def test_client_that_is_closed_leaves_no_connection(own: Server, admin: Any) -> None:
    """The connection is closed at once and not when Redis detects it."""
    async with open_hot(settings_of(own)):
        pass

    await eventually(lambda: len(admin.client_list(_type="normal")) == 1)
