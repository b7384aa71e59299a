"""Benchmarked processes, started on free ports in a temporary folder, each on a fixed core.

The gateway and Redis share the server core. The DynamoDB API server and the workers run on the load
core, so that they take no time from the gateway. All children end with this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from chatserver.dev.servers import (
    ACCESS_KEY,
    HOST,
    REGION,
    SECRET_KEY,
    Fsync,
    Launch,
    Server,
    dynamodb_launch,
    redis_launch,
)

Appendfsync = Literal["off", "no", "everysec", "always"]
_CLI = "chatserver.cli.main"
# Without a persist worker, the backlog grows; this limit is too high to be reached.
BACKLOG_MAX = 20_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """CPU cores of the processes, and the persistence setting of Redis."""

    server_core: int
    load_core: int
    appendfsync: Appendfsync = "everysec"
    has_aof_rewrite: bool = False
    gateways: int = 1

    def get_core(self, gateway: int) -> int:
        """Return a gateway's CPU core: `server_core` for even numbers, `load_core` for odd ones."""
        return self.load_core if gateway % 2 else self.server_core


@dataclasses.dataclass(slots=True)
class Stack:
    """Running gateways and their Redis, or the stub server alone."""

    gateways: list[Server]
    redis: Server | None
    env: dict[str, str]
    secret: str
    rpc: Server | None = None

    def get_pids(self) -> dict[str, int]:
        first, *others = map(get_pid, self.gateways)
        pids = {"gateway": first, "load": os.getpid()}
        pids |= {f"gateway_{number}": pid for number, pid in enumerate(others, 2)}
        if self.redis is not None:
            pids["redis"] = get_pid(self.redis)
        return pids


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Bind this process to a core while the block runs; new child processes inherit this."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def run_server(launch: Launch, core: int) -> Iterator[Server]:
    server = Server(launch)
    try:
        with on_core(core):
            server.start()
        yield server
    finally:
        server.stop()


def build_launch(
    name: str, arguments: list[str], port: int, folder: Path, env: dict[str, str] | None = None
) -> Launch:
    """Return how to launch a Python module as a server. It is ready when it accepts connections."""
    argv = [sys.executable, "-m", *arguments]
    return Launch(name, argv, port, folder, lambda: is_accepting(port), env or {})


@contextlib.contextmanager
def run_stub_stack(placement: Placement, folder: Path, fault: str | None) -> Iterator[Stack]:
    """Run the stub server alone, to measure the load generator itself."""
    port = find_free_port()
    arguments = ["chatserver.loadtest.stub_server", "--port", str(port)]
    if fault is not None:
        arguments += ["--fault", fault]
    launch = build_launch("gateway", arguments, port, folder)
    with run_server(launch, placement.server_core) as server:
        yield Stack([server], None, {}, secrets.token_hex(32))


def build_dynamodb_stub(folder: Path, arguments: Sequence[str] = ()) -> Launch:
    """Return how to launch the DynamoDB stub, which needs no tables; see `dynamodb_stub`."""
    port = find_free_port()
    module = ["chatserver.loadtest.bench.dynamodb_stub", "--port", str(port), *arguments]
    return build_launch("stub", module, port, folder)


@contextlib.contextmanager
def run_chat_stack(
    placement: Placement, folder: Path, stub: Launch | None = None
) -> Iterator[Stack]:
    """Run Redis, the DynamoDB API server with its tables, the `rpc` worker and the gateways.

    `stub` runs in place of the DynamoDB API server.
    """
    with contextlib.ExitStack() as exits:
        redis = exits.enter_context(
            run_server(_build_redis_launch(placement, folder), placement.server_core)
        )
        dynamodb = exits.enter_context(
            run_server(
                stub or dynamodb_launch(folder / "dynamodb", find_free_port()), placement.load_core
            )
        )
        secret = secrets.token_hex(32)
        env = {
            "CHAT_REDIS_URL": f"redis://{redis.launch.address}/0",
            "CHAT_REDIS_BACKLOG_MAX": str(BACKLOG_MAX),
            "CHAT_GATEWAY_HOST": HOST,
            "CHAT_AUTH_SECRET": secret,
            "CHAT_WARM_ENDPOINT": f"http://{dynamodb.launch.address}",
            "CHAT_WARM_REGION": REGION,
            "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
            "CHAT_WARM_SECRET_KEY": SECRET_KEY,
            "CHAT_TELEMETRY_LEVEL": "warning",
            # Rate limits are checked as usual, but never reached.
            **{
                f"CHAT_LIMITS_{kind}": "1000000/s burst 1000000"
                for kind in ("SENDS", "REQUESTS", "CONNECTIONS", "FAILURES")
            },
            "CHAT_LIMITS_MEMORY": "1000000000/s burst 1000000000",
        }
        command = [sys.executable, "-m", _CLI, "tables", "apply", "--no-bucket"]
        whole_env = {**os.environ, **env}
        if stub is None:
            subprocess.run(command, env=whole_env, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  fixed
        rpc = exits.enter_context(run_worker("rpc", placement, folder, env))
        gateways = []
        for number in range(placement.gateways):
            port, place = find_free_port(), folder / f"gateway{number}"
            own_env = {**env, "CHAT_GATEWAY_PORT": str(port)}
            launch = build_launch("gateway", [_CLI, "gateway"], port, place, own_env)
            gateways.append(exits.enter_context(run_server(launch, placement.get_core(number))))
        yield Stack(gateways, redis, env, secret, rpc)


def run_worker(
    role: str, placement: Placement, folder: Path, env: dict[str, str]
) -> contextlib.AbstractContextManager[Server]:
    """Run a worker on `load_core`. It has no port, so it counts as ready immediately."""
    argv = [sys.executable, "-m", _CLI, "worker", role]
    launch = Launch(role, argv, find_free_port(), folder / role, lambda: True, env)
    return run_server(launch, placement.load_core)


def _build_redis_launch(placement: Placement, folder: Path) -> Launch:
    fsync: Fsync = "no" if placement.appendfsync == "off" else placement.appendfsync
    launch = redis_launch(folder / "redis", find_free_port(), appendonly=fsync)
    if placement.appendfsync == "no":
        launch.argv.extend(["--appendonly", "yes"])
    if not placement.has_aof_rewrite:
        # An AOF rewrite would fork Redis, and the child would compete for the same core.
        launch.argv.extend(["--auto-aof-rewrite-percentage", "0"])
    return launch


def get_pid(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def is_accepting(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True
