"""The processes under test: started on free ports in a temporary folder, each on its core.

The gateway and Redis share the server core; the DynamoDB API server and the workers stay on the
load core, so that what they do is not taken from the server's time. Every child dies with us.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
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
_CLI = "tests.support.cli"
BACKLOG_MAX = 20_000_000  # nothing empties the backlog while the persist worker is off


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a stack depends on."""

    server_core: int
    load_core: int
    appendfsync: Appendfsync
    has_aof_rewrite: bool


@dataclasses.dataclass(slots=True)
class Stack:
    """A running gateway (or the stub in its place) with what it needs."""

    gateway: Server
    redis: Server | None
    env: dict[str, str]
    secret: str

    def pids(self) -> dict[str, int]:
        """Return role → process, of those on the server core and of this one."""
        pids = {"gateway": _pid(self.gateway), "load": os.getpid()}
        if self.redis is not None:
            pids["redis"] = _pid(self.redis)
        return pids


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Start children on a core: a child inherits where its parent may run."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def running(launch: Launch, core: int) -> Iterator[Server]:
    """Run a server on a core until the block ends."""
    server = Server(launch)
    try:
        with on_core(core):
            server.start()
        yield server
    finally:
        server.stop()


def module_launch(
    name: str, arguments: list[str], port: int, folder: Path, env: dict[str, str] | None = None
) -> Launch:
    """Run a Python module as a server; it is ready when it accepts connections."""
    argv = [sys.executable, "-m", *arguments]
    return Launch(name, argv, port, folder, lambda: accepts(port), env or {})


@contextlib.contextmanager
def stub_stack(options: Options, folder: Path, plant: str | None) -> Iterator[Stack]:
    """Run the stub alone: what the load generator itself carries."""
    port = free_port()
    arguments = ["tests.load.servers.stub_server", "--port", str(port)]
    if plant is not None:
        arguments += ["--plant", plant]
    launch = module_launch("gateway", arguments, port, folder)
    with running(launch, options.server_core) as server:
        yield Stack(server, None, {}, secrets.token_hex(32))


@contextlib.contextmanager
def chat_stack(options: Options, folder: Path) -> Iterator[Stack]:
    """Run Redis, the DynamoDB API server with its tables, the `rpc` worker and one gateway."""
    with contextlib.ExitStack() as exits:
        redis = exits.enter_context(running(_redis(options, folder), options.server_core))
        dynamodb = exits.enter_context(
            running(dynamodb_launch(folder / "dynamodb", free_port()), options.load_core)
        )
        port, secret = free_port(), secrets.token_hex(32)
        env = {
            "CHAT_REDIS_URL": f"redis://{redis.launch.address}/0",
            "CHAT_REDIS_BACKLOG_MAX": str(BACKLOG_MAX),
            "CHAT_GATEWAY_HOST": HOST,
            "CHAT_GATEWAY_PORT": str(port),
            "CHAT_AUTH_SECRET": secret,
            "CHAT_WARM_ENDPOINT": dynamodb.endpoint,
            "CHAT_WARM_REGION": REGION,
            "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
            "CHAT_WARM_SECRET_KEY": SECRET_KEY,
            "CHAT_TELEMETRY_LEVEL": "warning",
            # The limits work as ever, and are never reached.
            **{
                f"CHAT_LIMITS_{kind}_{what}": "1000000"
                for kind in ("SENDS", "REQUESTS", "CONNECTIONS", "FAILURES")
                for what in ("BURST", "PER_S")
            },
            "CHAT_LIMITS_MEMORY": "1000000000/s burst 1000000000",
        }
        command = [sys.executable, "-m", _CLI, "tables", "apply", "--no-bucket"]
        subprocess.run(command, env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL)
        exits.enter_context(worker("rpc", options, folder, env))
        launch = module_launch(
            "gateway", ["chatserver.cli.main", "gateway"], port, folder / "gateway", env
        )
        gateway = exits.enter_context(running(launch, options.server_core))
        yield Stack(gateway, redis, env, secret)


def worker(
    role: str, options: Options, folder: Path, env: dict[str, str]
) -> contextlib.AbstractContextManager[Server]:
    """Run a worker on the load core. It listens nowhere: it counts as ready at once."""
    argv = [sys.executable, "-m", _CLI, "worker", role]
    launch = Launch(role, argv, free_port(), folder / role, lambda: True, env)
    return running(launch, options.load_core)


def _redis(options: Options, folder: Path) -> Launch:
    fsync: Fsync = "no" if options.appendfsync == "off" else options.appendfsync
    launch = redis_launch(folder / "redis", free_port(), appendonly=fsync)
    if options.appendfsync == "no":
        launch.argv.extend(["--appendonly", "yes"])
    if not options.has_aof_rewrite:
        # A rewrite forks Redis, and the child would take its time from the same core.
        launch.argv.extend(["--auto-aof-rewrite-percentage", "0"])
    return launch


def _pid(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Return whether something accepts connections there."""
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True
