"""Development servers: ready when `start` returns, stopped when their parent ends."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chatserver.dev.servers import Launch, Server, redis_launch
from chatserver.errors import ConfigError
from tests.support.deadlines import EXIT_S
from tests.support.servers.processes import (
    StartDynamodb,
    StartRedis,
    eventually,
    free_port,
    is_running,
    redis_client,
    redis_url_of,
)


def test_redis_killed_and_restarted_keeps_acknowledged_writes(
    start_redis: StartRedis, tmp_path: Path
) -> None:
    """With AOF `always`, SIGKILL loses no write."""
    server = start_redis("always", tmp_path / "data")
    with redis_client(redis_url_of(server)) as client:
        client.set("name", "alice")

    server.kill()
    server.start()

    with redis_client(redis_url_of(server)) as client:
        assert client.get("name") == b"alice"


def test_redis_has_the_settings_that_measurements_and_guarantees_need(redis_url: str) -> None:
    """Redis never evicts keys, stores small hashes as listpacks, and listens on loopback only."""
    with redis_client(redis_url) as client:
        config = client.config_get("*")

    assert config["maxmemory-policy"] == "noeviction"
    assert config.get("hash-max-listpack-entries", config["hash-max-ziplist-entries"]) == "32"
    assert config["bind"] == "127.0.0.1"
    assert config["save"] == ""


def test_redis_url_is_an_empty_redis(redis_url: str) -> None:
    """Each test starts with an empty Redis, whatever the previous test stored."""
    with redis_client(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


async def test_dynamodb_killed_and_restarted_on_the_same_folder_serves_again(
    start_dynamodb: StartDynamodb, tmp_path: Path
) -> None:
    """It restarts on the same port and database file."""
    server = start_dynamodb(tmp_path / "data")

    server.kill()
    server.start()

    await eventually(server.launch.is_ready)  # a probe has a short timeout


def test_server_on_a_port_in_use_fails_with_its_name(tmp_path: Path) -> None:
    """`start` fails and does not use the other server."""
    port = free_port()
    first = Server(redis_launch(tmp_path / "a", port)).start()

    with pytest.raises(ConfigError, match=f"redis: port {port} is in use"):
        Server(redis_launch(tmp_path / "b", port)).start()

    first.stop()


def test_server_that_exits_while_starting_shows_its_last_lines(tmp_path: Path) -> None:
    """The error contains the last output of the server."""
    launch = redis_launch(tmp_path, free_port())
    launch.argv.extend(["--no-such-option", "1"])

    with pytest.raises(ConfigError, match="no-such-option"):
        Server(launch).start()


def test_server_that_exits_right_after_it_is_ready_has_started(tmp_path: Path) -> None:
    """On a slow machine, both may happen between two probes."""
    probes = itertools.chain([False], itertools.repeat(True))

    def is_ready() -> bool:
        assert server.process is not None
        server.process.wait(EXIT_S)
        return next(probes)

    server = Server(Launch("brief", [sys.executable, "-c", ""], 0, tmp_path, is_ready))

    assert server.start() is server


async def test_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """After SIGKILL of the parent, no orphan remains."""
    program = (
        "import pathlib, signal, sys\n"
        "from chatserver.dev.servers import Server, redis_launch\n"
        "server = Server(redis_launch(pathlib.Path(sys.argv[1]), int(sys.argv[2]))).start()\n"
        "print(server.process.pid, flush=True)\n"
        "signal.pause()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), str(free_port())], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert select.select([parent.stdout], [], [], EXIT_S)[0], "the parent started no server"
    child = int(os.read(parent.stdout.fileno(), 32))

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(EXIT_S)

    await eventually(lambda: not is_running(child), what="the server has exited")
    parent.stdout.close()
