"""Read-only monitoring of the server under load: its processes, Redis and metrics.

Each source is optional. Processes are monitored only on this machine: the `chatserver` process tree
that listens on the gateway's port. A value that cannot be read is None, never 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import os
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import msgspec

from chatserver.config import Redis
from chatserver.errors import ChatError
from chatserver.hot.chats.persist_backlog import Backlog
from chatserver.hot.redis.client import HotClient
from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.memory_usage import list_memory
from chatserver.loadtest import machine
from chatserver.loadtest.wire import Address
from chatserver.operations.cost.hot import UsageTotals

METRICS_S: Final = 3.0
METRICS_BYTES_MAX: Final = 4_000_000
_BACKLOG = "chatserver_backlog_entries"


class ServerSample(msgspec.Struct, frozen=True):
    """A sample of server statistics. `cpu_s` and `rss` (bytes) are by role."""

    cpu_s: dict[str, float] = {}
    rss: dict[str, int] = {}
    backlog: int | None = None
    redis_bytes: int | None = None
    write_units: float | None = None  # DynamoDB write units that the persist workers used today
    read_units: float | None = None  # DynamoDB read units used for history today
    stored: int | None = None  # messages stored in DynamoDB today


@attrs.define(eq=False, repr=False)
class ServerMonitor:
    pids: Mapping[str, list[int]]
    _hot: HotClient | None
    _metrics: Sequence[str]

    @property
    def has_redis(self) -> bool:
        return self._hot is not None

    async def sample(self, *, is_whole: bool = False) -> ServerSample:
        """Return a sample; with `is_whole`, it includes Redis's memory, and the DynamoDB units."""
        cpu_s, rss = {}, {}
        for role, pids in self.pids.items():
            with contextlib.suppress(OSError, ValueError):  # a process has ended
                cpu_s[role] = round(sum(map(machine.read_cpu_s, pids)), 3)
                rss[role] = sum(map(machine.read_rss_bytes, pids))
        server_sample = ServerSample(cpu_s, rss, await self._read_backlog())
        if is_whole and self._hot is not None:
            with contextlib.suppress(ChatError, TimeoutError):
                day = datetime.datetime.now(datetime.UTC).date().isoformat()
                spent = await UsageTotals(self._hot).get_day(day)
                return msgspec.structs.replace(
                    server_sample,
                    redis_bytes=sum(server.bytes for server in await list_memory(self._hot)),
                    write_units=_sum_units(spent.units, "persist", "write"),
                    read_units=_sum_units(spent.units, "history", "read"),
                    stored=spent.messages,
                )
        return server_sample

    async def _read_backlog(self) -> int | None:
        hot = self._hot
        if hot is not None:
            with contextlib.suppress(ChatError, TimeoutError):
                partitions = range(hot.keys.partitions)
                return sum(
                    [await Backlog(hot, partition).count_waiting() for partition in partitions]
                )
        reads = [await asyncio.to_thread(_read_metrics, url) for url in self._metrics]
        backlogs = [read[_BACKLOG] for read in reads if _BACKLOG in read]
        return round(sum(backlogs)) if backlogs else None


def _sum_units(units: Mapping[tuple[str, str, str], float], feature: str, kind: str) -> float:
    return sum(amount for key, amount in units.items() if (key[0], key[2]) == (feature, kind))


@contextlib.asynccontextmanager
async def open_monitor(
    address: Address, redis: Redis | None, metrics: Sequence[str]
) -> AsyncIterator[ServerMonitor]:
    """Open a monitor with the sources that are available. An unreachable Redis is ignored."""
    async with contextlib.AsyncExitStack() as exits:
        hot = None
        if redis is not None:
            with contextlib.suppress(ChatError, OSError, TimeoutError):
                hot = await exits.enter_async_context(open_hot(redis))
        yield ServerMonitor(find_processes(address), hot, metrics)


def find_processes(address: Address) -> dict[str, list[int]]:
    """Return the server's processes by role; empty if the server runs on another machine.

    They are the descendants of the topmost `chatserver` ancestor of the listening process.
    """
    if not is_loopback(address.host):
        return {}
    roles: dict[str, list[int]] = {}
    roots = {_find_root(pid) for pid in machine.list_listeners(address.port)}
    own = os.getpid()
    for pid in machine.list_pids():
        with contextlib.suppress(OSError, ValueError):
            if pid != own and roots & set(_build_line(pid)):
                role = find_role(machine.read_command(pid))
                if role:
                    roles.setdefault(role, []).append(pid)
    return roles


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _build_line(pid: int) -> list[int]:
    line = [pid]
    while line[-1] > 1:
        line.append(machine.read_parent(line[-1]))
    return line


def _find_root(pid: int) -> int:
    try:
        ours = [
            process for process in _build_line(pid) if _is_chatserver(machine.read_command(process))
        ]
    except (OSError, ValueError):
        ours = []
    return ours[-1] if ours else pid


def _is_chatserver(command: Sequence[str]) -> bool:
    return any(
        word == "chatserver.cli.main" or Path(word).name == "chatserver" for word in command[:4]
    )


def find_role(command: Sequence[str]) -> str | None:
    """Return the role of a process from its command line; None for other processes."""
    if _is_chatserver(command):
        words = [word for word in command if word in {"gateway", "worker", "api"}]
        return words[0] if words else None
    program = Path(command[0].split(" ")[0]).name if command else ""
    if program.startswith("redis-server"):
        return "redis"
    return "dynamodb" if "dynoxide" in program else None


def _read_metrics(url: str) -> dict[str, float]:
    """Return the metrics of a process; empty if it does not respond."""
    try:
        with urllib.request.urlopen(url, timeout=METRICS_S) as response:  # noqa: S310  trusted URL
            return parse_metrics(response.read(METRICS_BYTES_MAX).decode(errors="replace"))
    except (OSError, ValueError):
        return {}


def parse_metrics(text: str) -> dict[str, float]:
    """Return Prometheus metrics by name, summed over all labels. Raises ValueError."""
    metrics: dict[str, float] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            labelled, _, value = line.rpartition(" ")
            name = labelled.partition("{")[0]
            metrics[name] = metrics.get(name, 0.0) + float(value)
    return metrics
