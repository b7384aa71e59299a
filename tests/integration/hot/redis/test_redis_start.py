"""Redis killed while it wrote down a transaction: what it acknowledges after that stays.

The file of such a Redis is made here: the append-only file of a real one, with the beginning of a
transaction behind it. What is then acknowledged has to be there after the next kill.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chatserver.dev.binaries import find_binary
from chatserver.dev.servers import Server
from chatserver.errors import ConfigError
from tests.support.servers.processes import StartRedis, redis_client, redis_url_of

LOG = "a chat's log"


def command(*words: str) -> bytes:
    """Return a command as Redis writes it down."""
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
    return b"*%d\r\n%s" % (len(words), parts)


BEGINNING = command("MULTI") + command("XADD", LOG, "0-2", "body", "never answered")
SECOND = command("SET", "head", "2")
OPEN_TRANSACTIONS = {
    "whole commands": BEGINNING + SECOND,
    "a cut value": BEGINNING + SECOND[:-3],
    "a cut length": BEGINNING + SECOND[: len("*3\r\n$")],
    "a cut EXEC": BEGINNING + SECOND + command("EXEC")[:-4],
    "an EXEC without its end": BEGINNING + SECOND + command("EXEC")[:-1],
    "a cut MULTI": BEGINNING[: len(command("MULTI")) - 3],
    "MULTI alone": command("MULTI"),
    "an EXEC that somebody wrote": BEGINNING + command("SET", "x", "\r\n*1\r\n$4\r\nEXE")[:-2],
    "a large one": BEGINNING + command("SET", "x", "x" * 300_000) + SECOND[:-1],
}


@pytest.fixture
def server(start_redis: StartRedis, tmp_path: Path) -> Server:
    """A Redis that has acknowledged an entry and was killed."""
    server = start_redis("always", tmp_path / "data of redis")
    with redis_client(redis_url_of(server)) as client:
        client.xadd(LOG, {"body": "first"}, id="0-1")
    server.kill()
    return server


def tail_of(server: Server) -> Path:
    """Return the file that Redis goes on writing."""
    folder = server.launch.folder
    return next(iter(folder.glob("appendonlydir/*.incr.aof")), folder / "appendonly.aof")


def add_to(path: Path, data: bytes) -> bytes:
    """Write behind what is there; return all."""
    path.write_bytes(path.read_bytes() + data)
    return path.read_bytes()


@pytest.mark.parametrize("ending", OPEN_TRANSACTIONS.values(), ids=OPEN_TRANSACTIONS)
def test_entry_acknowledged_after_an_open_transaction_is_there_after_the_next_kill(
    server: Server, ending: bytes
) -> None:
    """It would have been read as a part of the open one, and refused: its place was taken."""
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


def test_file_that_is_damaged_otherwise_is_left_as_it_is(server: Server) -> None:
    """Nothing that may have been acknowledged is taken off: Redis refuses it, as it always did."""
    whole = command("MULTI") + SECOND + command("EXEC")
    damaged = add_to(tail_of(server), command("MULTI") + b"?" + SECOND + whole)

    with pytest.raises(ConfigError, match="append only file"):
        server.start()

    assert tail_of(server).read_bytes() == damaged


def test_file_that_is_whole_is_left_as_it_is(server: Server) -> None:
    """Transactions that were finished stay."""
    whole = add_to(tail_of(server), command("MULTI") + SECOND + command("EXEC"))
    server.start()
    with redis_client(redis_url_of(server)) as client:
        assert client.get("head") == b"2"

    assert tail_of(server).read_bytes().startswith(whole)


def test_redis_without_its_checker_starts_and_says_so(server: Server, tmp_path: Path) -> None:
    """Elsewhere `redis-check-aof` may be missing: that is reported, and nothing is done."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("dirname", "sed", "tail"):
        (programs / name).symlink_to(str(shutil.which(name)))
    lonely = programs / "redis-server"
    lonely.symlink_to(find_binary("redis-server"))
    script, options = server.launch.argv[1], ["--version", "--dir", str(server.launch.folder)]

    done = subprocess.run(
        ["/bin/sh", script, lonely, *options],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "redis-check-aof is missing" in done.stderr
    assert "Redis server v=" in done.stdout
