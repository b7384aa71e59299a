"""Redis killed during a transaction in its append-only file: later writes must be durable.

The tests append the beginning of a transaction to the append-only file of a real Redis. Writes
acknowledged after its next start must survive the next kill.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chatserver.dev.binaries import find_binary
from chatserver.dev.servers import Server
from chatserver.errors import ConfigError
from tests.support.deadlines import EXIT_S
from tests.support.servers.processes import StartRedis, redis_client, redis_url_of

LOG = "a chat's log"


def command(*words: str) -> bytes:
    """Return a command in the format of the append-only file."""
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
    return b"*%d\r\n%s" % (len(words), parts)


BEGINNING = command("MULTI") + command("XADD", LOG, "0-2", "body", "never answered")
SECOND = command("SET", "head", "2")
OPEN_TRANSACTIONS = {
    "complete commands": BEGINNING + SECOND,
    "a truncated value": BEGINNING + SECOND[:-3],
    "a truncated length": BEGINNING + SECOND[: len("*3\r\n$")],
    "a truncated EXEC": BEGINNING + SECOND + command("EXEC")[:-4],
    "an EXEC without its end": BEGINNING + SECOND + command("EXEC")[:-1],
    "a truncated MULTI": BEGINNING[: len(command("MULTI")) - 3],
    "MULTI alone": command("MULTI"),
    "an EXEC in a value": BEGINNING + command("SET", "x", "\r\n*1\r\n$4\r\nEXE")[:-2],
    "a large transaction": BEGINNING + command("SET", "x", "x" * 300_000) + SECOND[:-1],
}


@pytest.fixture
def server(start_redis: StartRedis, tmp_path: Path) -> Server:
    """A Redis that acknowledged an entry and was then killed."""
    server = start_redis("always", tmp_path / "data of redis")
    with redis_client(redis_url_of(server)) as client:
        client.xadd(LOG, {"body": "first"}, id="0-1")
    server.kill()
    return server


def tail_of(server: Server) -> Path:
    """Return the path of the file to which Redis appends."""
    folder = server.launch.folder
    return next(iter(folder.glob("appendonlydir/*.incr.aof")), folder / "appendonly.aof")


def add_to(path: Path, data: bytes) -> bytes:
    """Append data to a file; return its new content."""
    path.write_bytes(path.read_bytes() + data)
    return path.read_bytes()


@pytest.mark.parametrize("ending", OPEN_TRANSACTIONS.values(), ids=OPEN_TRANSACTIONS)
def test_entry_acknowledged_after_an_open_transaction_survives_the_next_kill(
    server: Server, ending: bytes
) -> None:
    """Otherwise it would become part of the open transaction and fail, because its id is used."""
    add_to(tail_of(server), ending)
    server.start()
    with redis_client(redis_url_of(server)) as client:
        assert client.xrange(LOG) == [(b"0-1", {b"body": b"first"})]
        with client.pipeline(transaction=True) as both:
            both.xadd(LOG, {"body": "acknowledged"}, id="0-2").set("head", "ours").execute()
        client.xadd(LOG, {"body": "alone"}, id="0-3")
    server.kill()
    server.start()

    with redis_client(redis_url_of(server)) as client:
        bodies = [fields[b"body"] for _, fields in client.xrange(LOG)]
        assert bodies == [b"first", b"acknowledged", b"alone"]
        assert client.get("head") == b"ours"


def test_file_with_other_damage_is_not_changed(server: Server) -> None:
    """Redis refuses to start, so that no acknowledged write is removed."""
    complete = command("MULTI") + SECOND + command("EXEC")
    damaged = add_to(tail_of(server), command("MULTI") + b"?" + SECOND + complete)

    with pytest.raises(ConfigError, match="append only file"):
        server.start()

    assert tail_of(server).read_bytes() == damaged


def test_complete_file_is_not_changed(server: Server) -> None:
    """Complete transactions are kept."""
    complete = add_to(tail_of(server), command("MULTI") + SECOND + command("EXEC"))
    server.start()
    with redis_client(redis_url_of(server)) as client:
        assert client.get("head") == b"2"

    assert tail_of(server).read_bytes().startswith(complete)


def test_redis_without_redis_check_aof_starts_with_a_warning(
    server: Server, tmp_path: Path
) -> None:
    """Without `redis-check-aof`, the file is not repaired."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("dirname", "sed", "tail"):
        (programs / name).symlink_to(str(shutil.which(name)))
    redis_server = programs / "redis-server"
    redis_server.symlink_to(find_binary("redis-server"))
    script, options = server.launch.argv[1], ["--version", "--dir", str(server.launch.folder)]

    done = subprocess.run(
        ["/bin/sh", script, redis_server, *options],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=True,
        timeout=EXIT_S,
    )

    assert "redis-check-aof is missing" in done.stderr
    assert "Redis server v=" in done.stdout
