"""Fixtures that start real servers, and polling helpers with deadlines.

One Redis and one DynamoDB API server serve the whole test run; `redis_url` empties Redis before
each test that uses it, and DynamoDB tests choose their own table prefix. Tests that kill a server
start their own with `start_redis` or `start_dynamodb`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import psutil
import pytest
import redis

from chatserver.dev.servers import (
    HOST,
    Fsync,
    Launch,
    Server,
    aws_limits_launch,
    dynamodb_launch,
    ministack_launch,
    redis_launch,
)
from tests.support.servers.ports import free_port

T = TypeVar("T")


def is_running(pid: int) -> bool:
    """Return whether a process is running. A zombie process is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]], deadline_s: float = 60.0, what: str = ""
) -> T: ...
@overload
async def eventually(condition: Callable[[], T], deadline_s: float = 60.0, what: str = "") -> T: ...
async def eventually(condition: Callable[[], Any], deadline_s: float = 60.0, what: str = "") -> Any:
    """Poll `condition` (plain or async) until it is true, and return its value.

    An AssertionError that it raises counts as false; the last one is shown at the deadline.
    """
    give_up = time.monotonic() + deadline_s
    last: AssertionError | None = None
    while True:
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
        except AssertionError as exc:
            last = exc
        if time.monotonic() > give_up:
            name = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{name} did not become true in {deadline_s:g} s") from last
        await asyncio.sleep(0.01)


async def eventually_equal(
    read: Callable[[], Awaitable[T]],
    wanted: object,
    *,
    of: Callable[[T], object] = lambda value: value,
    deadline_s: float = 60.0,
) -> None:
    """Poll until `of` the value that `read` returns is the wanted one; show the last one if not."""

    async def check() -> bool:
        assert of(await read()) == wanted
        return True

    await eventually(check, deadline_s)


class StartRedis(Protocol):
    """Starts a separate Redis. The same folder and port preserve its data."""

    def __call__(
        self, appendonly: Fsync = "no", folder: Path | None = None, port: int | None = None
    ) -> Server: ...


class StartDynamodb(Protocol):
    """Starts a separate DynamoDB API server."""

    def __call__(self, folder: Path | None = None, port: int | None = None) -> Server: ...


def redis_client(url: str, **options: Any) -> redis.Redis:
    """Return a client with a longer timeout than redis-py's five seconds."""
    return redis.Redis.from_url(url, **{"socket_timeout": 60.0, **options})


def redis_url_of(server: Server, database: int = 0) -> str:
    """Return the URL of a Redis server."""
    return f"redis://{server.launch.address}/{database}"


@contextlib.contextmanager
def open_redis(folder: Path) -> Iterator[str]:
    """Start a Redis that writes nothing to disk; return its URL."""
    server = Server(redis_launch(folder, free_port(), appendonly="no")).start()
    try:
        yield redis_url_of(server)
    finally:
        server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The Redis of the test run, which writes nothing to disk."""
    launch = redis_launch(tmp_path_factory.mktemp("redis"), free_port(), appendonly="no")
    server = Server(launch).start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: Server) -> str:
    """The URL of an empty Redis."""
    url = redis_url_of(redis_server)
    with redis_client(url) as client:
        client.flushall()
    return url


@pytest.fixture(scope="session")
def dynamodb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The test run's DynamoDB API server."""
    server = Server(dynamodb_launch(tmp_path_factory.mktemp("dynamodb"), free_port())).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def dynamodb(dynamodb_server: Server) -> str:
    """The endpoint of the test run's DynamoDB API server."""
    return dynamodb_server.endpoint


@pytest.fixture(scope="session")
def limited_dynamodb(
    dynamodb_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The endpoint of the same server behind AWS limits; see `servers.limits`."""
    yield from _serve_limits(dynamodb_server, tmp_path_factory.mktemp("limits"), 0.0)


@pytest.fixture(scope="session")
def partial_dynamodb(
    dynamodb_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Like `limited_dynamodb`, but a tenth of the items in batches is unprocessed."""
    yield from _serve_limits(dynamodb_server, tmp_path_factory.mktemp("limits"), 0.1)


def _serve_limits(target: Server, folder: Path, unprocessed_share: float) -> Iterator[str]:
    options = ("--index-lag-ms", "0", "0", "--unprocessed-share", str(unprocessed_share))
    server = Server(aws_limits_launch(folder, free_port(), target.port, *options)).start()
    yield server.endpoint
    server.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of the test run's S3 API server."""
    folder = tmp_path_factory.mktemp("s3")
    server = Server(ministack_launch(folder, free_port(), service="s3")).start()
    yield server.endpoint
    server.stop()


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[StartRedis]:
    """A function that starts Redis servers; remaining ones are killed at the end of the test."""
    started: list[Server] = []

    def start(
        appendonly: Fsync = "no", folder: Path | None = None, port: int | None = None
    ) -> Server:
        port = port or free_port()
        folder = folder or tmp_path / f"redis-{port}"
        return _start(redis_launch(folder, port, appendonly=appendonly), started)

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def start_dynamodb(tmp_path: Path) -> Iterator[StartDynamodb]:
    """A function that starts DynamoDB servers; remaining ones are killed at the end of the test."""
    started: list[Server] = []

    def start(folder: Path | None = None, port: int | None = None) -> Server:
        port = port or free_port()
        return _start(dynamodb_launch(folder or tmp_path / f"dynamodb-{port}", port), started)

    yield start
    for server in started:
        server.kill()


def _start(launch: Launch, started: list[Server]) -> Server:
    server = Server(launch)
    started.append(server)
    return server.start()


__all__ = [
    "HOST",
    "Server",
    "StartDynamodb",
    "StartRedis",
    "dynamodb",
    "dynamodb_server",
    "eventually",
    "eventually_equal",
    "free_port",
    "is_running",
    "limited_dynamodb",
    "open_redis",
    "partial_dynamodb",
    "redis_client",
    "redis_server",
    "redis_url",
    "redis_url_of",
    "s3",
    "start_dynamodb",
    "start_redis",
]
