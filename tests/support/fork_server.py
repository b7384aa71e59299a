"""Processes of the command line, forked from a process that has already imported the product.

The imports are most of the 0.5 to 1.5 s of CPU time that a start of `chatserver` takes, and the
tests start hundreds of processes. A forked process has its own settings, log file, session and exit
code, and is killed like any other. Each test runner has one fork server, which ends with it, and
`open_fork_server` starts one for a copy of the sources.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing.connection
import os
import pkgutil
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

import chatserver.features
from chatserver.dev.servers import Server
from chatserver.process_runtime import make_parent_death_hook
from tests.support.deadlines import EXIT_S

ROOT = Path(__file__).parents[2]
CLI = [sys.executable, "-m", "tests.support.cli"]
CORE_TESTS = [sys.executable, "-m", "tests.support.core_tests"]
# Modules that commands import late, except those that start threads when they are imported.
_PRELOADED = (
    "chatserver.api.app",
    "chatserver.cli.api",
    "chatserver.cli.gateway",
    "chatserver.cli.tables",
    "chatserver.cli.worker",
    "chatserver.gateway.process.main",
    "litestar.plugins.pydantic",
    "uvloop",
    "workers.runner",
)
_WITH_THREADS = ("chatserver.features.analytics", "chatserver.features.search.engines")
# Variables with these prefixes may differ from those of the fork server.
_PREFIXES = ("CHAT_", "HYPOTHESIS_", "PYTEST_", "chatserver.", "workers.")
_PATH = "PYTHONPATH"  # the root of a copy, in the environment of its processes
_POLL_S = 0.05


class ForkedProcess:
    """A process of the fork server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, args: Sequence[str], pid: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._lock = threading.Lock()
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self._wait(_POLL_S)) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout_s: float) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._pidfd], [], [], timeout_s)[0]:
                self.returncode = self._server.reap(self.pid)
                os.close(self._pidfd)
            return self.returncode


class ForkServer:
    """The connection to the process that forks. All methods may be called from any thread."""

    def __init__(self, root: Path = ROOT, env: Mapping[str, str] = os.environ) -> None:
        self._lock = threading.Lock()
        self._pipe, theirs = multiprocessing.connection.Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
            cwd=root,
            env=env,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # ends when the connection is closed; a death hook would end it with the calling thread
        theirs.close()

    def start(
        self, args: Sequence[str], env: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
    ) -> ForkedProcess:
        """Start a module with arguments; its output is appended to the files."""
        outputs = [Path(f"/proc/self/fd/{f.fileno()}").readlink() for f in (stdout, stderr)]
        with self._lock:
            return ForkedProcess(self, args, self._request((list(args), dict(env), outputs)))

    def reap(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        with self._lock:
            if self._pipe.closed:  # all processes have been killed
                return -signal.SIGKILL
            return self._request(pid)

    def _request(self, request: object) -> int:
        """Send a request, and return the reply. Raises TimeoutError."""
        self._pipe.send(request)
        pipe = self._pipe
        if not pipe.poll(EXIT_S):
            raise TimeoutError("the fork server does not reply")
        reply: int = pipe.recv()
        return reply

    def close(self) -> None:
        """End the fork server and its processes."""
        with self._lock:
            self._pipe.close()
            self._process.wait(EXIT_S)


_servers: dict[str | None, ForkServer] = {}  # by PYTHONPATH


def get_fork_server(env: Mapping[str, str]) -> ForkServer:
    """Return the fork server for processes with this environment; start it on first use."""
    path = env.get(_PATH)
    if path not in _servers:
        _servers[path] = ForkServer()
    return _servers[path]


@contextlib.contextmanager
def open_fork_server(root: Path) -> Iterator[None]:
    """Fork the processes whose PYTHONPATH is `root`, a copy of the sources, from that copy.

    All of them run the Python sources, because the core tests replace parts of modules that are
    compiled otherwise.
    """
    path = str(root)
    env = {**os.environ, _PATH: path, "CHATSERVER_PURE_PYTHON": "1"}
    _servers[path] = ForkServer(root, env)
    try:
        yield
    finally:
        _servers.pop(path).close()


def can_fork(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a forked process behaves like a new one with this command and environment."""
    names = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)}
    if env.get(_PATH) in _servers:
        names.discard(_PATH)
    is_known = list(argv[:3]) in (CLI, CORE_TESTS)
    return is_known and all(name.startswith(_PREFIXES) for name in names)


def start_process(
    argv: Sequence[str], env: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command. Its output is written to `stdout`, or its errors to `stderr` if given.

    It is forked, if its command and environment allow it, and ends with this process.
    """
    stderr = stderr or stdout
    if can_fork(argv, env):
        forked = get_fork_server(env).start(argv[2:], env, stdout, stderr)
        return cast("subprocess.Popen[bytes]", forked)
    path = env.get(_PATH)
    assert path == os.environ.get(_PATH) or path not in _servers, "it would run the wrong sources"
    return subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=make_parent_death_hook(),
    )


def run_process(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its exit code and output.

    Raises:
        subprocess.TimeoutExpired: it did not end in time; it is killed.
    """
    with tempfile.NamedTemporaryFile() as stdout, tempfile.NamedTemporaryFile() as stderr:
        process = start_process(argv, env, stdout, stderr)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        texts = (Path(output.name).read_text("utf-8") for output in (stdout, stderr))
        return subprocess.CompletedProcess(argv, code, *texts)


class ForkedServer(Server):
    """A server that `start_process` starts."""

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_process(self.launch.argv, self.launch.environment(), log)


def _serve(pipe: multiprocessing.connection.Connection) -> None:
    """Fork processes until the test runner closes the connection."""
    die_with_parent = make_parent_death_hook() or (lambda: None)
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        if isinstance(request, int):
            pipe.send(os.waitstatus_to_exitcode(os.waitpid(request, os.WNOHANG)[1]))
            continue
        if pid := os.fork():
            pipe.send(pid)
            continue
        pipe.close()
        die_with_parent()
        _run(*request)
        return


def _run(args: list[str], env: dict[str, str], outputs: list[Path]) -> None:
    """Run a module in a forked process. Raises SystemExit."""
    os.setsid()
    for number, path in enumerate(outputs, start=1):
        output = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = args[1:]
    runpy.run_module(args[0], run_name="__main__", alter_sys=True)


def _preload() -> None:
    """Import the product, and exempt its objects from garbage collection in all processes."""
    features = pkgutil.walk_packages(chatserver.features.__path__, "chatserver.features.")
    late = [each.name for each in features if not each.name.startswith(_WITH_THREADS)]
    for name in (*_PRELOADED, *late):
        importlib.import_module(name)
    threads = list(Path("/proc/self/task").iterdir())
    assert len(threads) == 1, "a forked process would lack the other threads"
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _preload()
    _serve(multiprocessing.connection.Connection(int(sys.argv[1])))
