"""A complete chatserver of real processes, for end-to-end and fault tests.

Redis (AOF), the DynamoDB API server, workers and gateways, each a separate process started through
the command line with ``CHAT_*`` variables, on free loopback ports. All processes end with the test.
The output of a process is in ``<folder>/<name>.log``.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import secrets
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from chatserver.auth.access_tokens import Tokens
from chatserver.config import Auth, Warm
from chatserver.dev.servers import (
    ACCESS_KEY,
    HOST,
    REGION,
    SECRET_KEY,
    START_S,
    Fsync,
    Launch,
    Server,
    aws_limits_launch,
    dynamodb_launch,
    is_http_ready,
    redis_launch,
)
from chatserver.domain.clock import SystemClock
from chatserver.domain.ids import UserId
from chatserver.errors import ConfigError
from chatserver.warm.chats.directory import Directory
from chatserver.warm.dynamo.connections import open_dynamodb
from tests.support.fork_server import CLI, ForkedServer
from tests.support.history.events import LogEntry
from tests.support.rawchat import RawChat
from tests.support.recorder import Recorder, entry_of_item
from tests.support.servers.processes import eventually, free_port, redis_client
from tests.support.stored_items import read_partitions
from tests.support.wire import RawSocket

NewName = Callable[[str], str]
WORKERS = ("persist", "repair", "rpc")
PING_S = 150
# All tests use one address and send faster than real users.
UNLIMITED = {
    f"CHAT_LIMITS_{kind}": "1000000/s burst 1000000"
    for kind in ("SENDS", "REQUESTS", "CONNECTIONS", "FAILURES", "CALLS")
} | {
    "CHAT_LIMITS_MEMORY": "1000000000/s burst 1000000000",
}
# For tests that do not cover server deadlines: timeouts that a process stalled by a busy machine
# does not exceed. All are shorter than the deadlines of the tests.
PATIENT = {
    "CHAT_REDIS_CALL_TIMEOUT_S": "15",
    "CHAT_WARM_CALL_TIMEOUT_S": "15",
    "CHAT_GATEWAY_RPC_TIMEOUT_S": "10",
    "chatserver.service.messaging.stored_waits.STORED_TIMEOUT_S": "15",
    "chatserver.gateway.session.session_limits.HELD_TIMEOUT_S": "15",
    "chatserver.gateway.transport.handshake.HANDSHAKE_TIMEOUT_S": "30",
    "chatserver.gateway.session.session_opening.HELLO_TIMEOUT_S": "30",
}


class _Logged(ForkedServer):
    """A process whose log shows when it is ready, because it has no port."""

    ready_line = b"workers.ready"

    def start(self, deadline_s: float = START_S) -> Server:
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        return super().start(deadline_s)

    @property
    def is_ready(self) -> bool:
        """True once this start has completed."""
        return self.ready_line in self.output()

    def output(self) -> bytes:
        """Return the output since the last start."""
        return self.log_path.read_bytes()[self._log_start :]


class Fleet(_Logged):
    """A supervisor with its gateway processes."""

    ready_line = b"gateways.ready"

    @property
    def children(self) -> list[psutil.Process]:
        """The gateway processes."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children()


class Stack:
    """The processes and their addresses. `open_stack` creates one."""

    def __init__(
        self, folder: Path, fsync: Fsync, env: dict[str, str], *, is_limited: bool = False
    ) -> None:
        self.folder = folder
        self.secret = secrets.token_hex(32)
        self.redis = Server(redis_launch(folder / "redis", free_port(), appendonly=fsync))
        self.dynamodb = Server(dynamodb_launch(folder / "dynamodb", free_port()))
        target = self.dynamodb.port
        options = ("--index-lag-ms", "0", "0")
        self.limits = Server(aws_limits_launch(folder / "limits", free_port(), target, *options))
        self.is_limited = is_limited  # processes reach DynamoDB through AWS limits
        self.is_broken = False  # broken permanently by a test, so the next test needs a new stack
        self.gateways: list[Server] = []
        self.apis: list[Server] = []
        self.workers: dict[str, Server] = {}
        self._env = env
        self._names = itertools.count(1)
        self._tokens = Tokens(
            Auth.model_validate({"secret": self.secret, "lifetime_s_max": 3600}), SystemClock()
        )

    @property
    def warm(self) -> Warm:
        """The settings of the warm tier, for tests that read it."""
        return Warm.model_validate(
            {
                "endpoint": self.dynamodb.endpoint,
                "region": REGION,
                "access_key": ACCESS_KEY,
                "secret_key": SECRET_KEY,
                "call_timeout_s": START_S,  # long, because the tests have their own deadlines
            }
        )

    @property
    def port(self) -> int:
        """The port of the first gateway."""
        return self.gateways[0].port

    def ports(self) -> list[int]:
        """Return the ports of the running gateways."""
        return [gateway.port for gateway in self.gateways if gateway.process is not None]

    @property
    def redis_url(self) -> str:
        """The direct address of Redis."""
        return f"redis://{self.redis.launch.address}/0"

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment variables of every process."""
        return {
            "CHAT_REDIS_URL": self.redis_url,
            "CHAT_WARM_ENDPOINT": (self.limits if self.is_limited else self.dynamodb).endpoint,
            "CHAT_WARM_REGION": REGION,
            "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
            "CHAT_WARM_SECRET_KEY": SECRET_KEY,
            "CHAT_AUTH_SECRET": self.secret,
            "CHAT_GATEWAY_DRAIN_S": "3",
            # While a test starts another process, its devices do not answer pings.
            "CHAT_GATEWAY_PING_INTERVAL_S": str(PING_S),
            "CHAT_GATEWAY_PONG_TIMEOUT_S": str(PING_S * 2 // 3),
            # Most tests do not cover consent: every user can add every other.
            "CHAT_CHATS_INVITATIONS": "never",
            **UNLIMITED,
            **self._env,
            **more,
        }

    # starting

    def start_servers(self) -> None:
        """Start Redis and DynamoDB, and create the tables."""
        self.redis.start()
        self.dynamodb.start()
        if self.is_limited:
            self.limits.start()
        tables = Launch(
            "tables", [*CLI, "tables", "apply", "--no-bucket"], 0, self.folder, lambda: True
        )
        self._run_to_end(tables, CHAT_WARM_CALL_TIMEOUT_S=str(START_S))

    def _run_to_end(self, launch: Launch, **env: str) -> None:
        server = ForkedServer(_with_env(launch, self.environment(**env))).start()
        assert server.process is not None
        code = server.process.wait(START_S)
        assert code == 0, f"{launch.name} ended with {code}:\n{server.tail()}"

    def start_gateway(self, port: int | None = None, **env: str) -> Server:
        """Start another gateway and wait until it is ready."""
        return start(self.add_gateway(port, **env))

    def add_gateway(self, port: int | None = None, **env: str) -> Server:
        """Prepare another gateway that `start_async` starts."""
        port = port or free_port()
        launch = Launch(
            f"gateway-{next(self._names)}",
            [*CLI, "gateway"],
            port,
            self.folder,
            lambda: is_http_ready(port, "/readyz"),
            self.environment(CHAT_GATEWAY_HOST=HOST, CHAT_GATEWAY_PORT=str(port), **env),
        )
        self.gateways.append(server := ForkedServer(launch))
        return server

    def add_fleet(self, processes: int, **env: str) -> Fleet:
        """Prepare gateway processes on one port that `start_async` starts."""
        port = free_port()
        launch = Launch(
            f"gateways-{next(self._names)}",
            [*CLI, "gateway", "--processes", str(processes)],
            port,
            self.folder,
            lambda: fleet.is_ready,
            {
                **self.environment(CHAT_GATEWAY_HOST=HOST, CHAT_GATEWAY_PORT=str(port)),
                **env,
            },
        )
        self.gateways.append(fleet := Fleet(launch))
        return fleet

    def start_api(self, **env: str) -> Server:
        """Start an API process and wait until it is ready."""
        return start(self.add_api(**env))

    def add_api(self, **env: str) -> Server:
        """Prepare an API process that `start_async` starts."""
        port = free_port()
        launch = Launch(
            f"api-{next(self._names)}",
            [*CLI, "api"],
            port,
            self.folder,
            lambda: is_http_ready(port, "/readyz"),
            self.environment(CHAT_API_HOST=HOST, CHAT_API_PORT=str(port), **env),
        )
        self.apis.append(server := ForkedServer(launch))
        return server

    def start_worker(self, *names: str, **env: str) -> Server:
        """Start a process with these workers and wait until they are ready."""
        return start(self.add_worker(*names, **env))

    async def start_worker_async(self, *names: str, **env: str) -> Server:
        """Like `start_worker`, without blocking the event loop."""
        server = self.add_worker(*names, **env)
        await start_async(server)
        return server

    def add_worker(self, *names: str, **env: str) -> Server:
        """Prepare a process with these workers that `start_async` starts."""
        name = "-".join(names)
        launch = Launch(
            f"worker-{name}-{next(self._names)}",
            [*CLI, "worker", *names],
            0,
            self.folder,
            lambda: server.is_ready,
            self.environment(**env),
        )
        server = self.workers[name] = _Logged(launch)
        return server

    def stop(self) -> None:
        """Kill all processes."""
        for server in (
            *self.gateways,
            *self.apis,
            *self.workers.values(),
            self.redis,
            self.limits,
            self.dynamodb,
        ):
            with contextlib.suppress(ProcessLookupError):
                server.kill()

    # using

    def token(self, user: str, lifetime_s: int = 3600) -> str:
        """Return a token of a user."""
        return self._tokens.issue(UserId(user), lifetime_s)

    def token_of_new_account(self, user: str) -> str:
        """Return a token as issued in the first days after a registration."""
        return self._tokens.issue(UserId(user), 600, is_new_account=True)

    def token_of_login(self, user: str, login: str) -> str:
        """Return a token as issued for a password login."""
        return self._tokens.issue(UserId(user), 600, login)

    def delete_user_state(self, user: str) -> None:
        """Delete all data of a user from Redis, like a data loss."""
        with redis_client(self.redis_url) as client:
            for key in client.scan_iter(f"*:{user}"):
                client.delete(key)

    def chat_of(
        self,
        user: str,
        *,
        port: int | None = None,
        device: str | None = None,
        recorder: Recorder | None = None,
    ) -> RawChat:
        """Return a device of a user that is not connected yet."""
        return RawChat(user, port or self.port, self.token, device=device, recorder=recorder)

    async def open_live(self, port: int, user: str) -> RawSocket:
        """Open a raw socket and send hello as a user."""
        ws = await RawSocket.open(port)
        hello = {"type": "hello", "v": 1, "token": self.token(user), "device": "raw"}
        await ws.send_json(hello)
        welcome = await ws.recv_json()
        assert welcome["type"] == "welcome", welcome
        return ws

    async def add_users(self, users: Iterable[str]) -> None:
        """Create accounts."""
        async with open_dynamodb(self.warm) as client:
            directory = Directory(client)
            for user in users:
                await directory.put_user_if_absent(user, user, SystemClock().time())

    async def read_warm(self, chat: str) -> tuple[LogEntry, ...]:
        """Return all rows of a chat from the database itself, by timestamp."""
        return tuple(entry_of_item(item) for item in await self.read_items(chat))

    async def read_items(self, chat: str) -> list[dict[str, Any]]:
        """Like `read_warm`, in the DynamoDB format; reads all shards of the chat."""
        place = (self.dynamodb.endpoint, "chat_messages", "chatid")
        shards = (f"{chat}#{number}" for number in range(self.warm.shards_max))
        items = await asyncio.to_thread(read_partitions, *place, chat, *shards)
        return sorted(items, key=lambda item: int(item["ts"]["N"]))

    async def read_marks(self, chat: str) -> dict[str, tuple[int, int]]:
        """Return the stored (read, received) of each member of a chat."""
        place = (self.dynamodb.endpoint, "chat_directory", "PK", f"c#{chat}")
        items = await asyncio.to_thread(read_partitions, *place)
        return {
            item["SK"]["S"].removeprefix("m#"): (int(item["read"]["N"]), int(item["received"]["N"]))
            for item in items
            if item["SK"]["S"].startswith("m#")
        }

    def logs(self, lines_max: int = 12) -> str:
        """Return the last output of each process, for a failure message."""
        return "\n".join(
            f"── {path.stem}\n"
            + "\n".join(path.read_text(errors="replace").splitlines()[-lines_max:])
            for path in sorted(self.folder.glob("*.log"))
        )


def start(server: Server) -> Server:
    """Start a process and return it when it is ready.

    A process exits without Redis, and its supervisor restarts it. This function does the same if
    Redis was only stalled by the machine.
    """
    give_up = time.monotonic() + START_S
    while True:
        try:
            return server.start()
        except ConfigError:
            if time.monotonic() > give_up or not _has_timed_out(server):
                raise


def _has_timed_out(server: Server) -> bool:
    output = server.tail(lines_max=3)
    return "no response" in output or "timed out" in output


async def start_async(server: Server) -> None:
    """Like `start`, without blocking the event loop.

    Not in a thread: a child process ends with the thread that started it.

    Raises:
        AssertionError: it ended, or was not ready in time.
    """
    launch = server.launch

    def begin() -> None:
        server.launch = dataclasses.replace(launch, is_ready=lambda: True)
        server.start()
        server.launch = launch

    has_ended = False

    async def is_ready_or_ended() -> bool:
        nonlocal has_ended
        # Check this first: a process that was ready may have ended since, if a test intends that.
        if await asyncio.to_thread(launch.is_ready):
            return True
        process = server.process
        if process is None or process.poll() is not None:
            has_ended = not _has_timed_out(server)
            if not has_ended:
                begin()
        return has_ended

    begin()
    await eventually(is_ready_or_ended, deadline_s=START_S, what=f"{launch.name} is ready")
    assert not has_ended, f"{launch.name} ended:\n{server.tail()}"


async def read_metric(port: int, name: str) -> float:
    """Return a sample of a process's metrics by name and labels; 0 if there is none."""

    def read() -> str:
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=20) as answer:
            return str(answer.read().decode())

    for line in (await asyncio.to_thread(read)).splitlines():
        if line.startswith(f"chatserver_{name} "):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def _with_env(launch: Launch, env: dict[str, str]) -> Launch:
    return dataclasses.replace(launch, env=env)


@contextlib.contextmanager
def open_stack(
    folder: Path,
    *,
    gateways: int = 1,
    workers: Iterable[tuple[str, ...]] = (WORKERS,),
    fsync: Fsync = "always",
    env: dict[str, str] | None = None,
    is_limited: bool = False,
) -> Iterator[Stack]:
    """Start a stack and end it; `workers` lists the workers of each process.

    `is_limited`: DynamoDB refuses as AWS does (`chatserver.dev.aws_limits`).
    """
    leaked = [name for name in os.environ if name.startswith("CHAT_")]
    assert not leaked, f"the environment has settings: {leaked}"
    stack = Stack(folder, fsync, env or {}, is_limited=is_limited)
    try:
        stack.start_servers()
        for names in workers:
            stack.start_worker(*names)
        for _ in range(gateways):
            stack.start_gateway()
        yield stack
    finally:
        stack.stop()
