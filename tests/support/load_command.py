"""Runs `chatserver load` as a user does, and stub servers for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.deadlines import EXIT_S, wait_for_exit

DEADLINE_S = 100
STUB = [sys.executable, "-m", "chatserver.loadtest.stub_server"]
CLI = [sys.executable, "-m", "chatserver.cli.main", "load"]
SECRET = "0123456789abcdef0123456789abcdef"


class Run:
    """A run of the command. `output` is its output so far."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path, report: Path) -> None:
        self.process, self.out, self.report = process, out, report
        self.output = b""

    async def wait_for_output(self, text: bytes) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.output:
                line = await self.process.stderr.readline()
                assert line, f"the command ended: {self.output!r}"
                self.output += line

    async def end(self) -> tuple[int, dict[str, Any]]:
        """Wait until the command ends; return its exit code and its results, or none."""
        async with asyncio.timeout(DEADLINE_S):
            out, err = await self.process.communicate()
        self.output += out + err
        code = self.process.returncode
        assert code is not None
        return code, json.loads(self.out.read_text()) if self.out.exists() else {}


@contextlib.asynccontextmanager
async def run_load(
    tmp_path: Path, url: str, *args: str, secret: str = SECRET
) -> AsyncIterator[Run]:
    """Run the command until the block ends."""
    out, report = tmp_path / "result.json", tmp_path / "report.html"
    files = ["--out", str(out), "--report", str(report), "--no-ceiling"]
    process = await asyncio.create_subprocess_exec(
        *CLI,
        *args,
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
            await wait_for_exit(process)


@contextlib.asynccontextmanager
async def run_stub(*args: str) -> AsyncIterator[str]:
    """Run a stub server with these arguments; yield its address."""
    pipe = asyncio.subprocess.PIPE
    stub = await asyncio.create_subprocess_exec(*STUB, *args, stdin=pipe, stdout=pipe)
    assert stub.stdout is not None
    try:
        line = await asyncio.wait_for(stub.stdout.readline(), EXIT_S)
        yield f"ws://127.0.0.1:{int(line)}/"
    finally:
        stub.kill()
        await wait_for_exit(stub)
