"""Commands against servers that are running, down, or of another kind."""

from __future__ import annotations

import dataclasses
import os
import pty
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatserver.cli.process_setup import require_redis
from chatserver.config import Redis
from chatserver.dev.data_folder import DataFolder
from chatserver.dev.servers import ACCESS_KEY, SECRET_KEY, Server, redis_launch
from chatserver.errors import Unavailable
from chatserver.hot.redis.factory import open_hot
from tests.support.servers.processes import free_port

SECRET = "0123456789abcdef0123456789abcdef"


def run(*command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAT_")}
    return subprocess.run(
        [sys.executable, "-m", "chatserver.cli.main", *command],
        env=kept | {"CHAT_AUTH_SECRET": SECRET} | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def http_server() -> Iterator[int]:
    """Start an HTTP server on a port where Redis is expected; return the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(100)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.parametrize("command", [("gateway",), ("worker", "all")])
def test_process_without_redis_names_its_address_and_how_to_start_it(
    command: tuple[str, ...],
) -> None:
    """The error is one line without the password, and the exit code is 1."""
    port = free_port()

    done = run(*command, CHAT_REDIS_URL=f"redis://user:canary@127.0.0.1:{port}/0")

    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "redis-server" in done.stderr and "chatserver dev" in done.stderr
    assert "canary" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_process_with_another_server_on_the_redis_port_reports_it(http_server: int) -> None:
    """The error says that the server is not Redis."""
    done = run("gateway", CHAT_REDIS_URL=f"redis://127.0.0.1:{http_server}/0")

    assert done.returncode == 1
    assert "is not Redis" in done.stderr


async def test_redis_on_a_unix_socket_is_used(tmp_path: Path) -> None:
    """Commands and processes connect to it. A missing socket is reported with its path."""
    path = tmp_path / "redis.sock"
    settings = Redis(url=f"unix://{path}")
    with pytest.raises(Unavailable, match=str(path)):
        require_redis(settings)
    launch = redis_launch(tmp_path, free_port(), appendonly="no")
    server = Server(dataclasses.replace(launch, argv=[*launch.argv, "--unixsocket", str(path)]))
    server.start()
    try:
        require_redis(settings)
        async with open_hot(settings) as hot:
            assert await hot.call("PING") == b"PONG"
            async with hot.create_blocking_client("any") as blocking:
                assert await blocking.ping()
    finally:
        server.stop()


def test_tables_without_dynamodb_names_its_address_and_how_to_start_it() -> None:
    """The error has no traceback, and the exit code is 1."""
    endpoint = f"http://127.0.0.1:{free_port()}"

    done = run(
        "tables",
        "apply",
        CHAT_WARM_ENDPOINT=endpoint,
        CHAT_WARM_ACCESS_KEY=ACCESS_KEY,
        CHAT_WARM_SECRET_KEY=SECRET_KEY,
    )

    assert done.returncode == 1
    assert endpoint in done.stderr and "chatserver dev" in done.stderr
    assert "Traceback" not in done.stderr


def test_tables_applied_twice_creates_them_once(dynamodb: str, s3: str) -> None:
    """The second call creates nothing; `--no-bucket` does not change the bucket."""
    settings = {
        "CHAT_WARM_ENDPOINT": dynamodb,
        "CHAT_WARM_ACCESS_KEY": ACCESS_KEY,
        "CHAT_WARM_SECRET_KEY": SECRET_KEY,
        "CHAT_WARM_TABLE_PREFIX": "commands_",
        "CHAT_COLD_ENDPOINT": s3,
        "CHAT_COLD_ACCESS_KEY": ACCESS_KEY,
        "CHAT_COLD_SECRET_KEY": SECRET_KEY,
        "CHAT_COLD_BUCKET": "commands-bucket",
    }

    first = run("tables", "apply", **settings)
    second = run("tables", "apply", "--no-bucket", **settings)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "created  commands_messages: table" in first.stdout
    assert "created  commands-bucket: bucket" in first.stdout
    assert "commands-bucket" not in second.stdout
    assert "created" not in second.stdout


def test_chat_without_api_names_its_address_and_how_to_start_it() -> None:
    """The exit code of the terminal client is 1."""
    api = f"http://127.0.0.1:{free_port()}"

    done = run("chat", "--as", "alice", "--with", "bob", "--api", api)

    assert done.returncode == 1
    assert api in done.stderr and "chatserver dev" in done.stderr


def test_chat_without_gateway_names_its_address_and_how_to_start_it() -> None:
    """With `--token` the client connects to the gateway without the API."""
    url = f"ws://127.0.0.1:{free_port()}/"

    done = run("chat", "--with", "bob", "--token", "x.y.z", "--url", url)

    assert done.returncode == 1
    assert url in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "options",
    [("--with", "bob"), ("--as", "a b", "--with", "bob"), ("--as", "alice", "--with", "../x")],
)
def test_chat_with_invalid_user_names_exits_with_2(options: tuple[str, ...]) -> None:
    """Names are checked before any request is sent."""
    assert run("chat", *options).returncode == 2


def test_chat_that_fails_to_start_restores_the_terminal() -> None:
    """The terminal does not stay in raw mode: it echoes input again."""
    main, other = pty.openpty()
    url = f"ws://127.0.0.1:{free_port()}/"
    command = ["chat", "--with", "bob", "--token", "x.y.z", "--url", url]
    process = subprocess.Popen(
        [sys.executable, "-m", "chatserver.cli.main", *command],
        stdin=other,
        stdout=other,
        stderr=subprocess.PIPE,
        text=True,
    )
    reader = threading.Thread(target=_drain, args=(main,), daemon=True)
    reader.start()

    _, errors = process.communicate(timeout=120)

    assert process.returncode == 1
    assert "cannot connect to a gateway" in errors
    assert termios.tcgetattr(other)[3] & termios.ECHO
    os.close(other)
    reader.join(5)
    os.close(main)


def _drain(descriptor: int) -> None:
    while True:
        try:
            if not os.read(descriptor, 4096):
                return
        except OSError:
            return


def test_dev_that_cannot_start_deletes_nothing(tmp_path: Path) -> None:
    """`--fresh` deletes the data only after all checks have passed."""
    folder = DataFolder.open(tmp_path / "data")
    (folder.path / "mine").write_text("kept")
    folder.close()
    ports = [f"--{name}={free_port()}" for name in ("port", "gateway-port", "redis-port")]
    ports += [f"--{name}={free_port()}" for name in ("dynamodb-port", "s3-port")]

    done = run("dev", "--fresh", "--data", str(folder.path), *ports, CHAT_PERSIST_LEASE_S="soon")

    assert done.returncode == 2
    assert "CHAT_PERSIST_LEASE_S" in done.stderr
    assert (folder.path / "mine").read_text() == "kept"
