"""A child process of `chatserver dev`: start, output and stop."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

from chatserver.dev.servers import Launch
from chatserver.process_runtime import make_parent_death_hook

TAIL_LINES = 20
LINE_BYTES_MAX = 16_384
READY_POLL_S = 0.05
LAST_LINES_S = 0.5
OnLine = Callable[[str, str], None]


class ChildFailed(Exception):
    """A child process ended, or was not ready in time; `child.tail` has its last output lines."""

    def __init__(self, child: Child, reason: str) -> None:
        super().__init__(f"{child.name} {reason}")
        self.child = child
        self.why = reason


class _OutputReceiver(asyncio.SubprocessProtocol):
    """Receives the output lines of one process, its exit and the end of its output.

    asyncio's `Process.wait` also waits for the end of output, which a grandchild can delay.
    """

    def __init__(self, handle_line: Callable[[str], None]) -> None:
        self.has_ended = asyncio.Event()
        self.is_pipe_closed = asyncio.Event()
        self._handle_line = handle_line
        self._rest = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit(line)
        if len(self._rest) > LINE_BYTES_MAX:
            self._emit(self._rest)
            self._rest = b""

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._emit(self._rest)
        self.is_pipe_closed.set()

    def process_exited(self) -> None:
        self.has_ended.set()

    def _emit(self, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip()
        if text:
            self._handle_line(text)


class Child:
    """A supervised process with its output. It may be started again after it has ended."""

    def __init__(self, launch: Launch, on_line: OnLine) -> None:
        self.launch = launch
        self.name = launch.name
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self.started_at = 0.0
        self._has_ready_line = False
        self._on_line = on_line
        self._receiver = _OutputReceiver(self._handle_line)
        self._transport: asyncio.SubprocessTransport | None = None

    @property
    def pid(self) -> int:
        assert self._transport is not None
        return self._transport.get_pid()

    async def start(self) -> None:
        """Start the process; it may not be ready yet on return."""
        self.launch.folder.mkdir(parents=True, exist_ok=True)
        self.tail.clear()
        self._has_ready_line = not self.launch.ready_line
        self.started_at = time.monotonic()
        self._receiver = _OutputReceiver(self._handle_line)
        self._transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self._receiver,
            *self.launch.argv,
            env=self.launch.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C is sent only to the supervisor
            preexec_fn=make_parent_death_hook(),
        )

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait until the process is ready.

        Raises:
            Failed: the process ended first, or was not ready in time.
        """
        deadline = time.monotonic() + deadline_s
        # The readiness check can block, so it runs in a thread.
        while not (self._has_ready_line and await asyncio.to_thread(self.launch.is_ready)):
            if self._receiver.has_ended.is_set():
                raise ChildFailed(self, f"ended with {await self.wait_ended()} while starting")
            if time.monotonic() > deadline:
                raise ChildFailed(self, f"was not ready within {deadline_s:g} s")
            await asyncio.sleep(READY_POLL_S)

    async def wait_ended(self) -> int:
        """Wait until the process has ended and its output is read; return the exit code.

        Descendants of the process that still hold its output pipe open are killed.
        """
        assert self._transport is not None
        await self._receiver.has_ended.wait()
        if not await _is_set_within(self._receiver.is_pipe_closed, LAST_LINES_S):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._transport.get_pid(), signal.SIGKILL)
            await _is_set_within(self._receiver.is_pipe_closed, LAST_LINES_S)
        self._transport.close()
        code = self._transport.get_returncode()
        assert code is not None
        return code

    async def stop(self) -> None:
        """Terminate the process; kill it if it does not end in time."""
        if self._transport is None:
            return
        if not self._receiver.has_ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._transport.terminate()
        if not await _is_set_within(self._receiver.has_ended, self.launch.stop_s):
            self._on_line(
                "dev", f"{self.name} did not stop within {self.launch.stop_s:g} s; killed"
            )
            self.kill()
        await self.wait_ended()

    def kill(self) -> None:
        if self._transport is not None and not self._receiver.has_ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()

    def _handle_line(self, text: str) -> None:
        self._has_ready_line = self._has_ready_line or self.launch.ready_line in text
        self.tail.append(text)
        self._on_line(self.name, text)


async def _is_set_within(event: asyncio.Event, deadline_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), deadline_s)
    return event.is_set()
