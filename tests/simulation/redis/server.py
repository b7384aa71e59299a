"""Simulated Redis server: the protocol over the simulated network, durability and faults.

Writes are on disk after the next fsync, once a second (AOF `everysec`) or immediately (`always`).
`crash` loses writes since the last fsync: those after a position that the caller chooses. A replica
receives all writes after a delay. `fail_over` promotes it, and loses the writes that it has not
received, whether they are on the primary's disk or not.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import functools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import hiredis

from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import Process
from tests.simulation.redis import (  # noqa: F401  # they register their commands
    simple_commands,
    sorted_set_commands,
    stream_commands,
)
from tests.simulation.redis.encoding import NO_ENTRIES, Encoded, encode
from tests.simulation.redis.keyspace import Keyspace
from tests.simulation.redis.scripting import Scripting
from tests.simulation.redis.stream_commands import get_last_id, read_after, read_group
from tests.simulation.redis.table import COMMANDS
from tests.simulation.redis.values import RedisError, Status, parse_id, parse_int

FSYNC_S = 1.0
_INCOMPLETE = object()
_SCRIPT_WORDS = (b"EVALSHA", b"EVAL", b"EVALSHA_RO", b"EVAL_RO")


class Call(NamedTuple):
    """A write, with its time, and whether the memory was full."""

    at_us: int
    words: list[bytes]
    is_full: bool


class Waiting:
    """A blocked XREAD or XREADGROUP."""

    def __init__(self, connection: Connection, keys: list[bytes], read: Callable[[], Any]) -> None:
        self.connection = connection
        self.keys = keys
        self.read = read
        self.timer: asyncio.TimerHandle | None = None


class RedisServer:
    """A server's data and state, which outlive its process (`start`)."""

    def __init__(
        self, loop: SimulatedLoop, port: int, wall: Callable[[], float], *, is_always_synced: bool
    ) -> None:
        self.loop = loop
        self.port = port
        self.keyspace = Keyspace()
        self.scripting = Scripting(self.keyspace)
        self.scripting.info = self._info
        self.process = Process("redis-0", "redis")
        self.starts = 0
        self.calls = 0
        self.since_sync: list[Call] = []
        self._earlier: list[Call] = []  # between the last two fsyncs
        self._wall = wall
        self._is_always_synced = is_always_synced
        self._waiting: dict[Waiting, None] = {}
        self._replication_id = ""

    # life cycle

    def start(self) -> None:
        """Start the server's process."""
        self.process = Process(f"redis-{self.starts}", "redis")
        self.starts += 1
        self._waiting.clear()
        self._replication_id = f"{self.loop.rng.getrandbits(160):040x}"
        self.scripting.forget()
        self.process.run(self._listen)

    def _listen(self) -> None:
        self.loop.network.listen(lambda: Connection(self), "", self.port)
        self.loop.call_later(FSYNC_S, self._sync_periodically)

    def _sync_periodically(self) -> None:
        self.sync()
        self.loop.call_later(FSYNC_S, self._sync_periodically)

    def sync(self) -> None:
        """Write everything to disk."""
        self.keyspace.sync()
        self._earlier, self.since_sync = self.since_sync, []

    def crash(self, kept: int | None = None) -> int:
        """Kill the process; return the number of lost writes.

        `kept`: how many of the writes since the last fsync survive; by default all, because the
        operating system has them.
        """
        self.loop.kill(self.process)
        if self._is_always_synced or kept is None or kept >= len(self.since_sync):
            self._forget_earlier()
            return 0
        return self._rewind(1, self.since_sync, kept)

    def fail_over(self, lag_ms: int) -> int:
        """Kill the process, and continue with the data of a replica that is behind by `lag_ms`.

        At most the writes since the fsync before the last one are lost. Returns their number.
        """
        self.loop.kill(self.process)
        calls = [*self._earlier, *self.since_sync]
        first_us = int(self._wall() * 1_000_000) - lag_ms * 1000
        kept = bisect.bisect_right(calls, first_us, key=lambda call: call.at_us)
        if kept == len(calls):
            self._forget_earlier()
            return 0
        return self._rewind(2, calls, kept)

    def _rewind(self, syncs: int, calls: list[Call], kept: int) -> int:
        """Restore an earlier state, and repeat the first `kept` calls that followed it."""
        is_full = self.scripting.is_full
        self.keyspace.rewind(syncs)
        for call in calls[:kept]:
            self.keyspace.now_us, self.scripting.is_full = call.at_us, call.is_full
            with contextlib.suppress(RedisError):  # the call failed then, too
                self._repeat(call.words)
        self.scripting.is_full = is_full
        self.keyspace.touched.clear()
        self._forget_earlier()
        return len(calls) - kept

    def _forget_earlier(self) -> None:
        """The current data are on disk and on the replica."""
        self.keyspace.forget()
        self._earlier, self.since_sync = [], []

    def _repeat(self, words: list[bytes]) -> None:
        name = words[0].upper()
        if name == b"XREADGROUP":
            read, _ = self._parse_read(name, words)
            read()
        else:
            self._execute(name, words)

    def flush(self) -> None:
        """Delete all data."""
        self.keyspace.flush()
        self._forget_earlier()

    # calls

    def execute(self, words: list[bytes], connection: Connection) -> Any:
        """Run a call; return its reply, an exception, or None if it blocks."""
        keyspace = self.keyspace
        keyspace.now_us = int(self._wall() * 1_000_000)
        keyspace.has_written = False
        self.calls += 1
        name = words[0].upper()
        try:
            if name in (b"XREAD", b"XREADGROUP"):
                reply = self._read_stream(name, words, connection)
            else:
                reply = self._execute(name, words)
        except RedisError as exc:
            reply = exc
        if keyspace.has_written:
            self.since_sync.append(Call(keyspace.now_us, words, self.scripting.is_full))
        if keyspace.touched:
            touched, keyspace.touched = keyspace.touched, {}
            self._wake(touched)
        return reply

    def _execute(self, name: bytes, words: list[bytes]) -> Any:
        if name in _SCRIPT_WORDS:
            return self._run_script(name, words)
        entry = COMMANDS.get(name)
        if entry is None:
            return self._execute_admin(name, words[1:])
        if self.scripting.is_full and entry.needs_memory:
            raise RedisError("OOM command not allowed when used memory > 'maxmemory'.")
        if len(words) - 1 < entry.args_min:
            raise RedisError(f"ERR wrong number of arguments for '{name.decode().lower()}' command")
        return entry.run(self.keyspace, words[1:])

    def _run_script(self, name: bytes, words: list[bytes]) -> Encoded:
        script = words[1].lower()
        if name.startswith(b"EVALSHA"):
            if script not in self.scripting.sources:
                raise RedisError("NOSCRIPT No matching script. Please use EVAL.")
        else:
            script = self.scripting.load(words[1])
        return Encoded(self.scripting.run(script, parse_int(words[2]), words[3:]))

    def _execute_admin(self, name: bytes, args: list[bytes]) -> Any:
        sub = args[0].upper() if args else b""
        match name, sub:
            case b"PING", _:
                return Status("PONG")
            case b"TIME", _:
                return [b"%d" % part for part in divmod(self.keyspace.now_us, 1_000_000)]
            case b"INFO", _:
                return self._info(args)
            case b"SCRIPT", b"EXISTS":
                return [int(each.lower() in self.scripting.sources) for each in args[1:]]
            case b"SCRIPT", b"LOAD":
                return self.scripting.load(args[1])
            case b"SCRIPT", b"FLUSH":
                self.scripting.forget()
                return Status("OK")
            case b"DBSIZE", _:
                return len(self.keyspace.values)
            case b"FLUSHALL", _:
                self.keyspace.flush()
                return Status("OK")
            case ((b"CLIENT" | b"SELECT" | b"AUTH" | b"CONFIG"), _):
                return Status("OK")
            case b"WAIT", _:
                return 0
        raise RedisError(f"ERR unknown command '{name.decode()}'")

    def _info(self, args: list[bytes]) -> bytes:
        used = 2_000_000 if self.scripting.is_full else 1_000_000
        lines = (
            "redis_version:7.2.4",
            f"used_memory:{used}",
            f"maxmemory:{2_000_000 if self.scripting.is_full else 10_000_000}",
            "maxmemory_policy:noeviction",
            "role:master",
            "connected_slaves:0",
            f"master_replid:{self._replication_id}",
            "cluster_enabled:0",
        )
        return "\r\n".join(lines).encode()

    # blocking reads

    def _parse_read(
        self, name: bytes, words: list[bytes]
    ) -> tuple[Callable[[], list[Any]], list[bytes]]:
        """Return the function of an XREAD or XREADGROUP, and its streams."""
        upper = [word.upper() for word in words]
        at = upper.index(b"STREAMS") + 1
        count = parse_int(words[upper.index(b"COUNT") + 1]) if b"COUNT" in upper[:at] else 0
        keys = words[at : at + (len(words) - at) // 2]
        if name == b"XREADGROUP":
            group, consumer, is_acked = words[2], words[3], b"NOACK" in upper[:at]
            read = functools.partial(
                read_group, self.keyspace, group, consumer, keys, count, is_acked=is_acked
            )
            return read, keys
        after = [
            (key, get_last_id(self.keyspace, key) if text == b"$" else parse_id(text))
            for key, text in zip(keys, words[at + len(keys) :], strict=True)
        ]
        return functools.partial(read_after, self.keyspace, after, count), keys

    def _read_stream(self, name: bytes, words: list[bytes], connection: Connection) -> Any:
        read, keys = self._parse_read(name, words)
        options = [word.upper() for word in words[: -2 * len(keys)]]
        reply = read()
        if reply or b"BLOCK" not in options:
            return reply or NO_ENTRIES
        waiting = Waiting(connection, keys, read)
        block_ms = parse_int(words[options.index(b"BLOCK") + 1])
        if block_ms:
            waiting.timer = self.loop.call_later(block_ms / 1000, self._expire, waiting)
        self._waiting[waiting] = None
        connection.is_blocked = True
        return None

    def _expire(self, waiting: Waiting) -> None:
        if self._waiting.pop(waiting, self) is None:
            waiting.connection.unblock(NO_ENTRIES)

    def _wake(self, touched: dict[bytes, None]) -> None:
        for waiting in [each for each in self._waiting if any(k in touched for k in each.keys)]:
            try:
                reply = waiting.read()
            except RedisError as exc:
                reply = exc
            if reply:
                del self._waiting[waiting]
                if waiting.timer is not None:
                    waiting.timer.cancel()
                waiting.connection.unblock(reply)

    def forget(self, connection: Connection) -> None:
        """Drop the blocked reads of a closed connection."""
        for waiting in [each for each in self._waiting if each.connection is connection]:
            del self._waiting[waiting]
            if waiting.timer is not None:
                waiting.timer.cancel()


class Connection(asyncio.Protocol):
    """A client's connection: calls run in order; a blocked call delays later ones."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._transport: Any = None
        self._later: deque[list[bytes]] = deque()
        self.is_blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (words := self._reader.gets()) is not _INCOMPLETE:
            self._later.append(words)
        if not self.is_blocked:
            self._run()

    def _run(self) -> None:
        out, later, execute = bytearray(), self._later, self._server.execute
        while later:
            reply = execute(later.popleft(), self)
            if self.is_blocked:
                break
            encode(reply, out)
        if out:
            self._transport.write(bytes(out))

    def unblock(self, reply: Any) -> None:
        """Send the reply of a blocked read, and continue."""
        self.is_blocked = False
        out = bytearray()
        encode(reply, out)
        self._transport.write(bytes(out))
        if self._later:
            self._run()
