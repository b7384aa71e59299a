"""Gateway child process: start, readiness and exit.

The child inherits the supervisor's output streams, reports readiness through a pipe, and is killed
by the kernel if the supervisor dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Self

from chatserver.process_runtime import make_parent_death_hook

EXIT_TIMEOUT_S = 5.0  # a process that is exiting is killed after this time
EXIT_WRONG_SETTING = 2  # exit code after a ConfigError; see `chatserver.cli.main`


class StartFailed(Exception):
    """A process exited before it was ready, or was not ready in time."""

    def __init__(self, reason: str, *, is_wrong_setting: bool = False) -> None:
        super().__init__(reason)
        self.is_wrong_setting = is_wrong_setting  # a retry would fail again


class GatewayChild:
    """A running child process, created by `start`. `ended` completes when the process exits."""

    def __init__(self, process: asyncio.subprocess.Process, ready_fd: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid = process.pid
        self.started_at = loop.time()
        self.ended: asyncio.Task[int] = loop.create_task(process.wait(), name=f"wait-{self.pid}")
        self._process = process
        self._ready: asyncio.Future[bool] = loop.create_future()
        self._ready_fd = ready_fd
        loop.add_reader(ready_fd, self._read_ready_pipe)

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str]) -> Self:
        """Start a process; ``--ready-fd`` and a pipe's file descriptor are appended to `argv`."""
        reader, writer = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                "--ready-fd",
                str(writer),
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(writer,),
                start_new_session=True,  # Ctrl-C reaches only the supervisor
                preexec_fn=make_parent_death_hook(),
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        return cls(process, reader)

    @property
    def is_serving(self) -> bool:
        """True from readiness until exit."""
        return self._ready.done() and self._ready.result() and not self.ended.done()

    def _read_ready_pipe(self) -> None:
        is_ready = bool(os.read(self._ready_fd, 1))  # False if the child closed the pipe
        asyncio.get_running_loop().remove_reader(self._ready_fd)
        os.close(self._ready_fd)
        self._ready.set_result(is_ready)

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait until the process is ready.

        Cancellation: safe; the process keeps running.

        Raises:
            StartFailed: the process exited first, or was not ready in time and was killed.
        """
        events: set[asyncio.Future[Any]] = {self._ready, self.ended}
        await asyncio.wait(events, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if self.is_serving:
            return
        is_ending = self._ready.done() or self.ended.done()
        if not await self.wait_ended(EXIT_TIMEOUT_S if is_ending else 0) and not is_ending:
            raise StartFailed(f"was not ready within {deadline_s:g} s")
        code = self.ended.result()
        raise StartFailed(
            f"exited with code {code} during startup", is_wrong_setting=code == EXIT_WRONG_SETTING
        )

    def send(self, number: signal.Signals) -> None:
        """Send a Unix signal to the process if it is running."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait_ended(self, deadline_s: float) -> bool:
        """Wait for exit. Return False if the process was killed after `deadline_s`."""
        done, _ = await asyncio.wait({self.ended}, timeout=deadline_s)
        if not done:
            self.send(signal.SIGKILL)
            await asyncio.wait({self.ended})
        return bool(done)
