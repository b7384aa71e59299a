"""Worker processes of a load test, on this machine or on others: lines of JSON in both ways."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
import signal
import sys
from typing import Final

import msgspec

from chatserver.loadtest.plan import LoadPlan
from chatserver.process_runtime import make_parent_death_hook

# maximum bytes of a line from a worker: its histograms for one second, or its final result
LINE_BYTES_MAX: Final = 16_000_000
END_S: Final = 5.0


class WorkerProcess(abc.ABC):
    """A process that runs `chatserver.loadtest.worker`."""

    @abc.abstractmethod
    def send_plan(self, plan: LoadPlan) -> None: ...

    @abc.abstractmethod
    def write(self, line: bytes) -> None:
        """Send a line; a process that has ended does not get it."""

    @abc.abstractmethod
    async def read(self) -> bytes:
        """Return the next line, or b"" if the process has ended."""

    @abc.abstractmethod
    async def describe_end(self) -> str:
        """Return why the process has ended. Call after `read` has returned b""."""

    @abc.abstractmethod
    def kill(self) -> None: ...

    @abc.abstractmethod
    async def end(self) -> None:
        """Close the process's input, and wait for its end; after `END_S`, kill it."""


class LocalWorker(WorkerProcess):
    """A child of this process, connected by pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def send_plan(self, plan: LoadPlan) -> None:
        self.write(msgspec.json.encode(plan))

    def write(self, line: bytes) -> None:
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(line + b"\n")

    async def read(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.readline()

    async def describe_end(self) -> str:
        # A worker closes its output only when it exits.
        return _describe_exit(await self.process.wait())

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def end(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()


async def start_process(module: str) -> LocalWorker:
    """Start a load tool process, connected by pipes.

    It runs in its own session, so Ctrl-C in the terminal reaches only the coordinator.
    """
    return LocalWorker(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"chatserver.loadtest.{module}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
            preexec_fn=make_parent_death_hook(),
            env={k: v for k, v in os.environ.items() if not k.startswith("CHAT_")},
        )
    )


def _describe_exit(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed, probably because the machine ran out of memory"
    if code < 0:
        return f"{signal.strsignal(-code)} (signal {-code})"
    return f"exit code {code}; see its output above"
