"""The simulated Redis answers like the real one: random calls, compared one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import hiredis
import pytest

from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.redis.encoding import encode
from tests.simulation.redis.server import RedisServer
from tests.simulation.redis_calls import Calls
from tests.simulation.trace import Trace
from tests.support.servers.processes import redis_client

CALLS = 400
UNORDERED = (b"SMEMBERS", b"HGETALL", b"HKEYS", b"HVALS")
NOW_S = 1_800_000_000.0
READS = {b"hash": b"HGETALL", b"string": b"GET", b"zset": b"ZCARD", b"stream": b"XLEN"}


class Simulated:
    """The simulated server without a network."""

    def __init__(self) -> None:
        loop = SimulatedLoop(1, Trace())
        self.now_s = NOW_S
        self._server = RedisServer(loop, 0, lambda: self.now_s, is_always_synced=False)
        self._reader = hiredis.Reader()

    def call(self, words: list[bytes]) -> Any:
        out = bytearray()
        connection: Any = None
        encode(self._server.execute(words, connection), out)
        self._reader.feed(bytes(out))
        return self._reader.gets()

    def crash(self, kept: int) -> None:
        """Lose the writes after the first `kept` ones."""
        self._server.crash(kept)

    def sync(self) -> None:
        self._server.sync()

    def fail_over(self, lag_ms: int) -> int:
        return self._server.fail_over(lag_ms)

    def read_all(self) -> dict[bytes, Any]:
        """Return the contents of all keys of the types in `READS`."""
        kinds = {key: self.call([b"TYPE", key]) for key in sorted(self.call([b"KEYS", b"*"]))}
        return {key: self.call([READS[k], key]) for key, k in kinds.items() if k in READS}

    def count_unsynced(self) -> int:
        return len(self._server.since_sync)


def normalize(words: list[bytes], reply: Any) -> Any:
    """Return a reply in a form that is equal for equal replies."""
    if isinstance(reply, Exception):
        return ("error", str(reply).removeprefix("ERR ").split()[0])
    if isinstance(reply, list) and words[0] in UNORDERED:
        if words[0] == b"HGETALL":
            return sorted(zip(reply[::2], reply[1::2], strict=True))
        return sorted(reply)
    return reply


@pytest.fixture
def real(redis_url: str) -> Any:
    """Return a function that sends a call to the real server and returns its raw reply."""
    with redis_client(redis_url, protocol=2) as client:
        pool = client.connection_pool
        connection = pool.get_connection()

        def call(words: list[bytes]) -> Any:
            connection.send_command(*words)
            try:
                return connection.read_response(disable_decoding=True)
            except Exception as exc:
                return exc

        yield call
        pool.release(connection)


@pytest.mark.parametrize("seed", range(12))
def test_random_calls_have_the_replies_of_redis(real: Any, seed: int) -> None:
    """Each call has the same reply as in Redis, also after errors and wrong types."""
    simulated = Simulated()

    for number, words in enumerate(Calls(seed).iter(CALLS)):
        wanted, got = normalize(words, real(words)), normalize(words, simulated.call(words))
        assert got == wanted, f"call {number}: {words}"


def test_crash_keeps_exactly_the_first_writes() -> None:
    """After a crash, the data are those of the writes that survived."""
    calls = list(Calls(99).iter(CALLS))
    crashed, whole = Simulated(), Simulated()
    for words in calls:
        crashed.call(words)
    kept = crashed.count_unsynced() // 2

    crashed.crash(kept)

    for words in calls:
        if whole.count_unsynced() < kept:
            whole.call(words)
    assert crashed.read_all() == whole.read_all()


@pytest.mark.parametrize("lag_ms", [0, 50, 150, 250, 1_000])
def test_failover_keeps_exactly_the_writes_that_the_replica_has(lag_ms: int) -> None:
    """The replica has all writes but the latest, also if these are on the primary's disk."""
    calls = list(Calls(98).iter(CALLS))
    primary, whole = Simulated(), Simulated()
    for number, words in enumerate(calls):
        primary.now_s = NOW_S + number / 1_000
        if number in (100, 200, 300):  # the oldest state that a failover can restore is that of 200
            primary.sync()
        primary.call(words)

    lost = primary.fail_over(lag_ms)

    for number, words in enumerate(calls):
        if number < max(200, CALLS - lag_ms):
            whole.now_s = NOW_S + number / 1_000
            whole.call(words)
    assert primary.read_all() == whole.read_all()
    assert bool(lost) == bool(lag_ms)


def test_blocked_read_gets_the_entry_that_arrives() -> None:
    """XREAD BLOCK waits for an entry, and ends without one when its time is over."""
    loop = SimulatedLoop(1, Trace())
    Network(loop)
    server = RedisServer(loop, 6379, lambda: NOW_S + loop.now, is_always_synced=False)
    server.start()

    async def run() -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("10.0.0.1", 6379)
        _, other = await asyncio.open_connection("10.0.0.1", 6379)
        read = [b"XREAD", b"BLOCK", b"500", b"STREAMS", b"s", b"$"]
        writer.write(hiredis.pack_command(tuple(read)))
        await asyncio.sleep(0.1)
        other.write(hiredis.pack_command((b"XADD", b"s", b"1-1", b"f", b"v")))
        first = await reader.readline()
        await reader.read(1000)
        writer.write(hiredis.pack_command(tuple(read)))
        return first, await reader.readline()

    first, second = loop.run_until_complete(run())
    assert first == b"*1\r\n"
    assert second == b"*-1\r\n"
