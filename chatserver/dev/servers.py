"""Local replacements for AWS and ElastiCache servers.

A `Launch` defines a command and a readiness check; it starts nothing. `Server` runs one launch as a
child process, for tests; `chatserver dev` runs the same launches under its supervisor. All servers
listen on loopback only, and end when this process dies.
"""

from __future__ import annotations

import dataclasses
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

from chatserver.dev.binaries import find_binary, has_binary
from chatserver.dev.ports import is_port_free
from chatserver.errors import ConfigError
from chatserver.process_runtime import make_parent_death_hook

HOST = "127.0.0.1"
# Credentials for the local AWS servers. Not secret: the servers listen on loopback only.
ACCESS_KEY = "local"
SECRET_KEY = "local-secret"  # noqa: S105  of servers on loopback, for development
REGION = "us-east-1"
PROBE_TIMEOUT_S = 1.0
REDIS_START = Path(__file__).with_name("redis-start.sh")
START_S = 60.0  # startup timeout; enough when a dozen servers start at the same time

Fsync = Literal["always", "everysec", "no"]


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Command and readiness check of a server."""

    name: str
    argv: list[str]
    port: int
    folder: Path
    is_ready: Callable[[], bool]
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    # Time to end between SIGTERM and SIGKILL; some servers lose data if killed.
    stop_s: float = 20.0
    keeps_data_in_a_crash: bool = True
    ready_line: str = ""  # if set, the server is ready only after it logs a line with this text

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the complete environment of the child."""
        return {**os.environ, **self.env}


def redis_launch(folder: Path, port: int, *, appendonly: Fsync = "everysec") -> Launch:
    """Return the `Launch` for Redis in `folder`. ``appendonly="no"`` disables persistence."""
    options = {
        "port": str(port),
        "bind": HOST,
        "dir": str(folder),
        "protected-mode": "yes",
        "daemonize": "no",
        "save": "",
        "appendonly": "no" if appendonly == "no" else "yes",
        "appendfsync": appendonly,
        # At the default of 64 MB, a busy server rewrites the file every few seconds, which costs a
        # fifth of its throughput. A restart replays 1 GB in about 12 s.
        "auto-aof-rewrite-min-size": "1gb",
        "maxmemory-policy": "noeviction",
        # Hashes with more entries are hash tables, in which lookups are faster. 32 instead of the
        # default 512 reduces the cost of a direct message by 15% and of a group message by 40%.
        # Redis 7 renamed ziplist to listpack, but still accepts the old name of the option.
        "hash-max-ziplist-entries": "32",
        "always-show-logo": "no",
    }
    argv = ["sh", str(REDIS_START), str(find_binary("redis-server"))]
    for name, value in options.items():
        argv += [f"--{name}", value]
    return Launch("redis", argv, port, folder, lambda: _is_redis_ready(port))


def dynoxide_launch(folder: Path, port: int) -> Launch:
    """Return the `Launch` for dynoxide, a DynamoDB API server with one data file in `folder`."""
    path = folder / "dynamodb.sqlite"
    argv = [str(find_binary("dynoxide")), "--host", HOST, "--port", str(port)]
    argv += ["--db-path", str(path)]
    return Launch("dynamodb", argv, port, folder, lambda: is_http_ready(port, "/"))


def ministack_launch(
    folder: Path, port: int, *, service: Literal["s3", "dynamodb", "kms"]
) -> Launch:
    """Return the `Launch` for a ministack service. Its DynamoDB saves data only on a clean stop."""
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
        "TMPDIR": str(folder),  # folder of its pid file
        "LOG_LEVEL": "WARNING",
    }
    return Launch(
        name=service,
        argv=[str(find_binary("ministack"))],
        port=port,
        folder=folder,
        is_ready=lambda: is_http_ready(port, "/_ministack/ready"),
        env=env,
        keeps_data_in_a_crash=service == "s3",
    )


def dynamodb_launch(folder: Path, port: int) -> Launch:
    """Return the `Launch` for dynoxide; if it is not installed, for ministack.

    ministack is slower, and loses data if killed.
    """
    if has_binary("dynoxide"):
        return dynoxide_launch(folder, port)
    return ministack_launch(folder, port, service="dynamodb")


def aws_limits_launch(folder: Path, port: int, target_port: int, *options: str) -> Launch:
    """Return the `Launch` for the proxy that refuses and delays requests as AWS does."""
    argv = [sys.executable, "-m", "chatserver.dev.aws_limits"]
    argv += ["--port", str(port), "--target", str(target_port), *options]
    return Launch("limits", argv, port, folder, lambda: is_http_ready(port, "/"))


class Server:
    """A server process that writes its output to a log file in its folder.

    Invariant: after `stop` or `kill` returns, the process has ended and its port is free; `start`
    may be called again and finds the same data.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self.launch.port

    @property
    def endpoint(self) -> str:
        return f"http://{self.launch.address}"

    @property
    def log_path(self) -> Path:
        return self.launch.folder / f"{self.launch.name}.log"

    def start(self, deadline_s: float = START_S) -> Server:
        """Start the server and wait until it is ready.

        Raises:
            ConfigError: the port is in use, or the server ended or was not ready in time; the error
                includes its last log lines.
        """
        launch = self.launch
        if not is_port_free(launch.port):
            raise ConfigError(f"{launch.name}: port {launch.port} is in use")
        launch.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = self._spawn(log)
        deadline = time.monotonic() + deadline_s
        while not launch.is_ready():
            # The process may have become ready and ended since the check above, so check again.
            if self.process.poll() is not None and not launch.is_ready():
                raise ConfigError(f"{launch.name} ended while starting:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ConfigError(
                    f"{launch.name} was not ready within {deadline_s:g} s:\n{self.tail()}"
                )
            time.sleep(0.01)
        return self

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.launch.argv,
            env=self.launch.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C must not reach it
            preexec_fn=make_parent_death_hook(),
        )

    def stop(self, deadline_s: float = 30.0) -> None:
        """Terminate the server; kill it if it has not ended in time."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """Kill the server, as in a crash (``kill -9``)."""
        self.send_signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
            self.process = None

    def send_signal(self, number: int) -> None:
        """Send a signal, for tests that pause the server (SIGSTOP, SIGCONT)."""
        if self.process is not None:
            self.process.send_signal(number)

    def tail(self, lines_max: int = 20) -> str:
        if not self.log_path.exists():
            return "(no output)"
        text = self.log_path.read_text("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines_max:])


def _is_redis_ready(port: int) -> bool:
    """Return whether Redis is ready. While it loads its data, it replies ``-LOADING``."""
    try:
        with socket.create_connection((HOST, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def is_http_ready(port: int, path: str) -> bool:
    """Return whether an HTTP server responds with status 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
