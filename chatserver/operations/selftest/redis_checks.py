"""Self-test checks of Redis that do not change existing data."""

from __future__ import annotations

import time
from typing import Any, Final

from chatserver.hot.redis.client import HotClient
from chatserver.operations.selftest.model import SelftestCheck, require
from chatserver.operations.selftest.resources import Names

STORE: Final = "redis"
PINGS: Final = 50


class RedisChecks:
    def __init__(self, hot: HotClient, names: Names) -> None:
        self._hot = hot
        self._key = names.prefix

    def list_checks(self) -> list[SelftestCheck]:
        return [
            SelftestCheck(STORE, "version, cluster and persistence", self._describe),
            SelftestCheck(STORE, "stream with given ids", self._check_stream),
            SelftestCheck(STORE, "round trip", self._check_round_trip),
        ]

    async def _describe(self) -> str:
        servers = self._hot.get_keys_by_server()
        require(servers, "no server responds")
        lines = []
        for name, key in sorted(servers.items()):
            client = self._hot.create_blocking_client(key)
            try:
                info: dict[str, Any] = await self._hot.with_deadline(client.info())
            finally:
                await client.aclose()
            engine = info.get("server_name") or "redis"
            mode = "cluster" if int(info.get("cluster_enabled", 0)) else info.get("redis_mode")
            log = "on" if int(info.get("aof_enabled", 0)) else "off"
            lines.append(
                f"{name}: {engine} {info.get('redis_version')}, mode {mode}, append-only file "
                f"{log}, {info.get('connected_slaves', 0)} replicas, policy "
                f"{info.get('maxmemory_policy')}"
            )
        return "; ".join(lines)

    async def _check_stream(self) -> str:
        for number in (1, 2, 3):
            await self._hot.call("XADD", self._key, f"{number}-0", "n", str(number))
        await self._hot.call("EXPIRE", self._key, "600")
        entries = await self._hot.call("XRANGE", self._key, "2-0", "+")
        await self._hot.call("UNLINK", self._key)
        require([entry[0] for entry in entries] == [b"2-0", b"3-0"], f"it returned {entries}")
        return "ranges by seq"

    async def _check_round_trip(self) -> str:
        times_ms: list[float] = []
        for _ in range(PINGS):
            began = time.perf_counter()
            await self._hot.call("GET", self._key)
            times_ms.append((time.perf_counter() - began) * 1000)
        return f"median {sorted(times_ms)[PINGS // 2]:.2f} ms, longest {max(times_ms):.2f} ms"
