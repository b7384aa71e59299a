"""`chatserver dev` as a separate process, for end-to-end tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from chatserver.dev.ports import is_port_free
from tests.support.deadlines import EXIT_S
from tests.support.servers.processes import free_port, is_running

READY_S = 180.0  # seven processes start one after another
DEADLINE_S = 60.0  # deadline of expected events; only a failure takes this long
CLI = [sys.executable, "-m", "chatserver.cli.main"]
_PORT_FLAGS = ("--port", "--gateway-port", "--redis-port", "--dynamodb-port", "--s3-port")


class DevRun:
    """One run on separate ports. `output` is the file with its output so far."""

    def __init__(self, folder: Path, ports: list[int] | None = None) -> None:
        self.folder = folder
        self.ports = ports or [free_port() for _ in _PORT_FLAGS]
        self.output = folder.parent / f"{folder.name}.out"
        self.sources: Path | None = None  # folder of a copy of the product to run
        self.process: subprocess.Popen[bytes] | None = None
        self.children: list[psutil.Process] = []

    @property
    def page_url(self) -> str:
        """The URL of the start page."""
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def gateway_url(self) -> str:
        """The URL for clients."""
        return f"ws://127.0.0.1:{self.ports[1]}/"

    @property
    def pid(self) -> int:
        """The process id of `chatserver dev` itself."""
        assert self.process is not None
        return self.process.pid

    def text(self) -> str:
        """Return all output so far."""
        return self.output.read_text("utf-8", "replace") if self.output.exists() else ""

    @property
    def flags(self) -> list[str]:
        """The options that select the ports and the folder of the run."""
        pairs = zip(_PORT_FLAGS, map(str, self.ports), strict=True)
        return [*(word for pair in pairs for word in pair), "--data", str(self.folder)]

    def command(self, *options: str) -> list[str]:
        """Return the command line."""
        return [*CLI, "dev", *self.flags, *options]

    def spawn(self, *options: str, env: Mapping[str, str] | None = None) -> DevRun:
        """Start the process with `env` added to its environment; do not wait until it is ready."""
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                self.command(*options),
                cwd=self.sources,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    k: v
                    for k, v in os.environ.items()
                    if not k.startswith(("CHAT_", "MAKE", "MFLAGS"))
                }
                | dict(env or {}),
            )
        return self

    def start(self, *options: str, env: Mapping[str, str] | None = None) -> DevRun:
        """Start the process and wait until it prints the start page URL."""
        self.spawn(*options, env=env)
        assert self.process is not None
        give_up = time.monotonic() + READY_S
        while "chatserver is running" not in self.text():
            assert self.process.poll() is None, f"chatserver dev ended:\n{self.text()}"
            assert time.monotonic() < give_up, f"not ready in {READY_S:g} s:\n{self.text()}"
            time.sleep(0.05)
        self.children = psutil.Process(self.pid).children(recursive=True)
        return self

    def end(self, number: int = signal.SIGINT, deadline_s: float = DEADLINE_S) -> int:
        """Send a signal, by default a Ctrl-C, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(deadline_s)

    def leftovers(self, deadline_s: float = DEADLINE_S) -> list[str]:
        """Return the child processes and used ports that remain after a grace period."""
        give_up = time.monotonic() + deadline_s
        while True:
            alive = [one for one in self.children if is_running(one.pid)]
            ports = [f"port {port}" for port in self.ports if not is_port_free(port)]
            if not (alive or ports) or time.monotonic() > give_up:
                return [" ".join(one.cmdline()) for one in alive] + ports
            time.sleep(0.02)

    def child(self, name: str) -> psutil.Process:
        """Return the child process with this program or argument."""
        for one in psutil.Process(self.pid).children():
            program, *arguments = one.cmdline()
            if name in arguments or Path(program).name.split()[0] == name:
                return one
        raise AssertionError(f"there is no child process {name}")

    def get(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Call the API; return the status and the body, decoded if it is JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.page_url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            content = answer.read()
            is_json = "json" in answer.headers["Content-Type"]
            return answer.status, json.loads(content) if is_json else content


@contextlib.contextmanager
def dev_run(folder: Path, ports: list[int] | None = None) -> Iterator[DevRun]:
    """Create a run that ends with the block, killed if necessary."""
    run = DevRun(folder, ports)
    try:
        yield run
    finally:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait(EXIT_S)
        run.leftovers()


class TerminalChat:
    """`chatserver chat` with standard input and output connected to pipes."""

    def __init__(self, run: DevRun, user: str, peer: str, *options: str) -> None:
        self._argv = [*CLI, "chat", "--as", user, "--with", peer, "--api", run.page_url, *options]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> TerminalChat:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.communicate(), 30)
        except TimeoutError:
            self._process.kill()
            await asyncio.wait_for(self._process.communicate(), EXIT_S)

    async def finish(self) -> list[str]:
        """End the input; return the rest of the output once the command has ended."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        output, _ = await asyncio.wait_for(self._process.communicate(), DEADLINE_S)
        return output.decode().splitlines()

    def send_line(self, text: str) -> None:
        """Write a message to standard input."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())

    async def wait_for_line(self, line: str, deadline_s: float = DEADLINE_S) -> list[str]:
        """Return the lines printed up to and including `line`."""
        assert self._process is not None and self._process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(deadline_s):
                while line not in lines:
                    data = await self._process.stdout.readline()
                    assert data, f"the command ended before {line!r}: {lines}"
                    lines.append(data.decode().rstrip("\n"))
        except TimeoutError:
            raise AssertionError(f"{line!r} was not printed in time, but {lines}") from None
        return lines
