"""Chat servers on fixed cores.

The gateway and Redis share the server core. DynamoDB, the workers and the load generator run on the
load core, so that they take no time from the gateway.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from chatserver.dev.servers import Fsync, Launch, Server, is_http_ready
from tests.benchmarks.support import harness
from tests.benchmarks.support.harness import Bench
from tests.benchmarks.support.measurements import LOAD_CORE, SERVER_CORE, CpuMeter, get_pid, pin
from tests.support.fork_server import CLI
from tests.support.servers.processes import free_port
from tests.support.stack import Stack

# Without a persist worker, the backlog grows; this limit is too high to be reached.
BACKLOG_MAX = 20_000_000
# A rewrite would fork Redis, and the child would compete for the same core.
NO_REWRITE = ("--auto-aof-rewrite-percentage", "0")


class PinnedStack:
    """Redis, DynamoDB and the processes that a benchmark starts, with the settings of a `Stack`."""

    def __init__(
        self,
        bench: Bench,
        *,
        fsync: Fsync = "everysec",
        stub: Sequence[str] | None = None,
        redis_args: Sequence[str] = NO_REWRITE,
    ) -> None:
        """`stub`: arguments of the DynamoDB stub that replaces DynamoDB and needs no tables."""
        self.bench = bench
        bench.use_load_core()
        env = {"CHAT_REDIS_BACKLOG_MAX": str(BACKLOG_MAX), "CHAT_TELEMETRY_LEVEL": "warning"}
        env |= harness.SETTINGS
        self.stack = stack = Stack(bench.folder, fsync, env)
        bench.on_exit(stack.stop)
        stack.redis.launch.argv.extend(redis_args)
        if stub is None:
            stack.start_servers()
        else:
            stack.redis.start()
            stack.dynamodb = bench.start(build_stub_launch(bench, stub))
        self.servers = {"redis": stack.redis}

    @property
    def redis(self) -> Server:
        return self.stack.redis

    def start_gateway(self, **env: str) -> Server:
        """Start a gateway, on the core of Redis, and the `rpc` worker."""
        pin(get_pid(self.redis), SERVER_CORE)
        self.start_worker("rpc")
        self.servers["gateway"] = self.bench.start(
            self.stack.add_gateway(**env).launch, SERVER_CORE
        )
        return self.servers["gateway"]

    def start_worker(self, role: str, core: int = LOAD_CORE, **env: str) -> Server:
        """Start a worker. It has no port, so it counts as ready immediately."""
        argv, folder = [*CLI, "worker", role], self.bench.folder
        env = self.stack.environment(**env)
        launch = Launch(f"worker-{role}", argv, free_port(), folder, lambda: True, env)
        self.servers[role] = self.bench.start(launch, core)
        return self.servers[role]

    def create_meter(self) -> CpuMeter:
        return CpuMeter(self.servers)


def build_stub_launch(bench: Bench, arguments: Sequence[str]) -> Launch:
    """Return how to launch the DynamoDB stub."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.benchmarks.support.dynamodb_stub", "--port", str(port)]
    return Launch("stub", [*argv, *arguments], port, bench.folder, lambda: is_http_ready(port, "/"))
