"""Scripts use keys of one slot and declare all of them, as Redis Cluster requires.

Everything that runs scripts is used once with 64 partitions, while a second connection records
(MONITOR) the commands that Redis receives and those that scripts call.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from redis.crc import key_slot

from chatserver.hot.redis.factory import open_hot
from chatserver.hot.redis.scripts import all_scripts, allow_oom
from tests.integration.hot.every_key import PARTITIONS, use_everything
from tests.integration.hot.support import redis_settings
from tests.support.servers.processes import Server

_TAG = re.compile(rb"\{([^{}]+)\}:")
_ARG = re.compile(rb'"((?:\\.|[^"\\])*)"')


class Run(NamedTuple):
    """A run of a script: its name, its KEYS, and the keys that it used."""

    script: str
    keys: list[bytes]
    used: set[bytes]


class Monitor:
    """A second connection that receives every command."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), 60)
        self._socket.sendall(b"MONITOR\r\n")
        assert self._socket.recv(5) == b"+OK\r\n"

    def runs(self, end: bytes) -> list[Run]:
        """Return all scripts that ran before a command that contains `end`."""
        seen = b""
        while end not in seen:
            seen += self._socket.recv(1 << 20)
        self._socket.close()
        return self._parse(seen.split(b"\r\n"))

    def _parse(self, lines: Sequence[bytes]) -> list[Run]:
        scripts = [*all_scripts(), *map(allow_oom, all_scripts())]
        names = {script.sha.encode(): script.name for script in scripts}
        by_source = {_escaped(script.source): script.name for script in scripts}
        runs: list[Run] = []
        for line in lines:
            args = _ARG.findall(line)
            if not args:
                continue
            if args[0] in (b"EVALSHA", b"EVAL"):
                name = names.get(args[1]) or by_source[args[1]]
                runs.append(Run(name, args[3 : 3 + int(args[2])], set()))
            elif b" lua] " in line[:60] and len(args) > 1 and args[0] != b"INFO":
                runs[-1].used.add(args[2 if args[0] in (b"XGROUP", b"XINFO") else 1])
        return runs


def _escaped(text: str) -> bytes:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").encode()


@pytest.fixture
async def runs(redis_url: str, redis_server: Server) -> list[Run]:
    """All script runs of `use_everything`."""
    monitor = Monitor(redis_server)
    async with open_hot(redis_settings(redis_url, partitions=PARTITIONS)) as hot:
        await use_everything(hot)
        await hot.call("ECHO", "end-of-test")
    return await asyncio.to_thread(monitor.runs, b"end-of-test")


async def test_scripts_use_only_declared_keys_of_one_slot(runs: list[Run]) -> None:
    """A script never crosses slots, and declares its keys."""
    assert {run.script for run in runs} == {script.name for script in all_scripts()}
    for run in runs:
        # The hash tags must be equal, not only the slots.
        assert len({_TAG.match(key)[1] for key in run.keys}) == 1, run  # type: ignore[index]  # it has one
        assert len({key_slot(key) for key in run.keys}) == 1, run
        assert run.used <= set(run.keys), run
    assert len({key_slot(run.keys[0]) for run in runs}) > 20
