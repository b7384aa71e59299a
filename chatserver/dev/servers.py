"""The servers that stand in for AWS and ElastiCache on one machine: how each is started.

A `Launch` says what to run and how to see that it serves; it starts nothing. `Server` runs one
launch as a child process, for tests; `chatserver dev` runs the same launches under its supervisor.
Everything listens on loopback only, and every child dies with us.
"""

from __future__ import annotations

import dataclasses
import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from chatserver.dev.binaries import find_binary, has_binary
from chatserver.dev.ports import is_port_free
from chatserver.errors import ConfigError
from chatserver.processes import die_with_parent

HOST = "127.0.0.1"
# What the local AWS servers are told and checked with. They are no secret: loopback only.
ACCESS_KEY = "local"
SECRET_KEY = "local-secret"  # noqa: S105  # of servers on loopback, for development
REGION = "us-east-1"
PROBE_TIMEOUT_S = 1.0
REDIS_START = Path(__file__).with_name("redis-start.sh")
START_S = 60.0  # where a dozen of them start at once, each takes its time

Fsync = Literal["always", "everysec", "no"]


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """How to run a server, and how to see that it is ready."""

    name: str
    argv: list[str]
    port: int
    folder: Path
    is_ready: Callable[[], bool]
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    stop_s: float = 20.0  # how long it may take to end after SIGTERM; killed, some lose their data
    ready_line: str = ""  # it is ready, besides, only once it has logged a line with this

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the whole environment of the child."""
        return {**os.environ, **self.env}


def redis_launch(folder: Path, port: int, *, appendonly: Fsync = "everysec") -> Launch:
    """Run Redis with its data in `folder`. ``appendonly="no"`` keeps nothing on disk."""
    options = {
        "port": str(port),
        "bind": HOST,
        "dir": str(folder),
        "protected-mode": "yes",
        "daemonize": "no",
        "save": "",
        "appendonly": "no" if appendonly == "no" else "yes",
        "appendfsync": appendonly,
        "maxmemory-policy": "noeviction",
        # 32 instead of 512 takes 15 % off a direct message's cost, 40 % off a group's. Redis 7
        # calls it listpack and still knows this name.
        "hash-max-ziplist-entries": "32",
        "always-show-logo": "no",
    }
    argv = ["sh", str(REDIS_START), str(find_binary("redis-server"))]
    for name, value in options.items():
        argv += [f"--{name}", value]
    return Launch("redis", argv, port, folder, lambda: _answers_ping(port))


def dynoxide_launch(folder: Path, port: int) -> Launch:
    """Run the DynamoDB API server, its tables in one file of `folder`."""
    path = folder / "dynamodb.sqlite"
    argv = [str(find_binary("dynoxide")), "--host", HOST, "--port", str(port)]
    argv += ["--db-path", str(path)]
    return Launch("dynamodb", argv, port, folder, lambda: answers_http(port, "/"))


def ministack_launch(folder: Path, port: int, *, service: Literal["s3", "dynamodb"]) -> Launch:
    """Run one service of ministack. S3 keeps its data at once, DynamoDB on a clean stop only."""
    env = {
        "SERVICES": service,
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "MINISTACK_REGION": REGION,
        "BIND_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(folder / "s3"),
        "PERSIST_STATE": "1",
        "STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder),  # it leaves a pid file there
        "LOG_LEVEL": "WARNING",
    }
    argv = [str(find_binary("ministack"))]
    return Launch(service, argv, port, folder, lambda: answers_http(port, "/_ministack/ready"), env)


def dynamodb_launch(folder: Path, port: int) -> Launch:
    """Run the DynamoDB API server there is: dynoxide, else ministack (slower, see there)."""
    if has_binary("dynoxide"):
        return dynoxide_launch(folder, port)
    return ministack_launch(folder, port, service="dynamodb")


class Server:
    """One launch as a child process of ours, its output in a file of its folder.

    Invariant: after `stop` or `kill` returns, the process is gone and its port is free; `start`
    may be called again and finds the same data.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.launch.port

    @property
    def endpoint(self) -> str:
        """Its address as an HTTP URL."""
        return f"http://{self.launch.address}"

    @property
    def log_path(self) -> Path:
        """The file that its output goes to."""
        return self.launch.folder / f"{self.launch.name}.log"

    def start(self, deadline_s: float = START_S) -> Server:
        """Start it and return when it serves.

        Raises:
            ConfigError: the port is taken, or it ended or was not ready in time; with its last
                log lines.
        """
        launch = self.launch
        if not is_port_free(launch.port):
            raise ConfigError([f"{launch.name}: port {launch.port} is in use"])
        launch.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                launch.argv,
                env=launch.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for us, not for it
                preexec_fn=die_with_parent(),
            )
        give_up = time.monotonic() + deadline_s
        while not launch.is_ready():
            # Asked again once it is known to have ended: what ends soon after it was ready, as one
            # does that a test kills at its first job, may do both between two looks.
            if self.process.poll() is not None and not launch.is_ready():
                raise ConfigError([f"{launch.name} ended while starting:\n{self.tail()}"])
            if time.monotonic() > give_up:
                self.kill()
                raise ConfigError(
                    [f"{launch.name} was not ready after {deadline_s:g} s:\n{self.tail()}"]
                )
            time.sleep(0.01)
        return self

    def stop(self, deadline_s: float = 30.0) -> None:
        """End it in order; kill it if it has not ended in time."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """End it at once, as a crash would (``kill -9``)."""
        self.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self.process = None

    def send_signal(self, number: int) -> None:
        """Send a signal, for tests that pause it (SIGSTOP, SIGCONT)."""
        if self.process is not None:
            self.process.send_signal(number)

    def tail(self, lines_max: int = 20) -> str:
        """Return the end of its output."""
        if not self.log_path.exists():
            return "(no output)"
        text = self.log_path.read_text("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines_max:])


def _answers_ping(port: int) -> bool:
    """Ask Redis; one that is still reading its file says ``-LOADING`` and is not ready."""
    try:
        with socket.create_connection((HOST, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def answers_http(port: int, path: str) -> bool:
    """Ask an HTTP server; only a 200 counts."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
