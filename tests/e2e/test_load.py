"""`chatserver load` as an operator runs it: against a server, one that breaks, one that is slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chatserver.cli import load
from chatserver.dev import command, data_folder
from tests.support.stack import Stack, bring_up

pytest_plugins = ["tests.support.stack_fixtures"]

DEADLINE_S = 100
STUB = [sys.executable, "-m", "chatserver.loadtest.stub_server"]
CLI = [sys.executable, "-m", "chatserver.cli.main", "load"]
SECRET = "0123456789abcdef0123456789abcdef"


class Run:
    """A run of the command. Its output so far is in `said`."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path, report: Path) -> None:
        self.process, self.out, self.report = process, out, report
        self.said = b""

    async def see(self, text: bytes) -> None:
        """Wait until it has printed something."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.said:
                line = await self.process.stderr.readline()
                assert line, f"it ended: {self.said!r}"
                self.said += line

    async def end(self) -> tuple[int, dict[str, Any]]:
        """Wait for its end; return its exit code and its result, empty if there is none."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self.process.communicate()
        self.said += out + err
        code = self.process.returncode
        assert code is not None
        return code, json.loads(self.out.read_text()) if self.out.exists() else {}


@contextlib.asynccontextmanager
async def loading(
    tmp_path: Path, url: str, *words: str, secret: str = SECRET
) -> AsyncIterator[Run]:
    """Run the command, and end it with the test."""
    out, report = tmp_path / "result.json", tmp_path / "report.html"
    files = ["--out", str(out), "--report", str(report), "--no-ceiling"]
    process = await asyncio.create_subprocess_exec(
        *CLI,
        *words,
        *("--url", url, *files),
        env={**os.environ, "CHAT_AUTH_SECRET": secret},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Run(process, out, report)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def stub_url() -> AsyncIterator[str]:
    """The address of a server that only pretends."""
    pipe = asyncio.subprocess.PIPE
    stub = await asyncio.create_subprocess_exec(*STUB, stdin=pipe, stdout=pipe)
    assert stub.stdout is not None
    yield f"ws://127.0.0.1:{int(await stub.stdout.readline())}/"
    stub.kill()
    await stub.wait()


async def test_load_while_a_gateway_is_killed_loses_nothing_and_reports(
    stack: Stack, tmp_path: Path
) -> None:
    """A mixed load from two processes; a gateway dies, its users reconnect, all is verified."""
    fleet = stack.add_fleet(2)
    await bring_up(fleet)
    # Long, so that the kill is in the middle even if we hear late that it has begun.
    words = ["mixed", "--processes", "2", "--users", "32", "--rate", "40", "--duration", "12"]
    words += ["--large-members", "16", "--settle", "60"]
    try:
        async with loading(
            tmp_path, f"ws://127.0.0.1:{fleet.port}/", *words, secret=stack.secret
        ) as run:
            await run.see(b"   1 s  offered")
            fleet.children[0].kill()
            code, result = await run.end()
    finally:
        fleet.kill()
        stack.gateways.remove(fleet)

    counts = result["counts"]
    assert code == 0, run.said
    assert result["verdict"] == {"is_ok": True, "broken": []} and result["ended"] == "done"
    assert (counts["lost"], counts["unacked"], counts["unsent"]) == (0, 0, 0)
    assert counts["delivered"] >= counts["expected"] > 0
    assert counts["reconnects"] > 0
    assert result["schema"] == 1 and result["tool"]["processes"] == 2
    assert result["target"]["processes"]["gateway"]
    assert run.report.read_text().startswith("<!doctype html>")


async def test_load_that_is_interrupted_and_slow_exits_with_1_and_reports(
    stub_url: str, tmp_path: Path
) -> None:
    """Ctrl-C ends the load; what was under way is waited for, judged and reported."""
    words = ["direct", "--users", "4", "--duration", "600", "--max-p99-ms", "0.000001"]

    async with loading(tmp_path, stub_url, *words) as run:
        await run.see(b"   1 s  offered")
        run.process.send_signal(signal.SIGINT)
        code, result = await run.end()

    assert code == 1, run.said
    assert result["ended"] == "interrupted"
    assert result["counts"]["acked"] == result["counts"]["sent"]
    assert b"BROKEN  " in run.said and not result["verdict"]["is_ok"]
    assert run.report.read_text().startswith("<!doctype html>")


async def test_load_of_nobody_exits_with_2(tmp_path: Path) -> None:
    """Where no server is, nothing was measured, and there is nothing to report."""
    async with loading(tmp_path, "ws://127.0.0.1:9/", "direct", "--users", "4") as run:
        code, result = await run.end()

    assert code == 2
    assert b"no gateway at ws://127.0.0.1:9/" in run.said and b"Traceback" not in run.said
    assert b"ceiling" not in run.said, "it looks for the gateway before it measures anything"
    assert result == {}


def test_load_finds_what_dev_writes(tmp_path: Path) -> None:
    """Beside `make run` no option is needed: both name the same folder, file, form and port."""
    defaults = {one.name: one.default for one in command.dev.params}
    written = {"CHAT_AUTH_SECRET": SECRET, "CHAT_COLD_ORIGINS": """["it's # = one"]"""}
    data = data_folder.DataFolder.open(tmp_path / "data")
    data.write_settings(written)
    data.close()

    read = load.read_exports((data.path / load.DEV_SETTINGS).read_text())

    assert read == written
    assert defaults["data"] == load.DEV_DATA
    assert data_folder.SETTINGS == load.DEV_SETTINGS
    assert f":{defaults['gateway_port']}/" in load.URL
