"""Processes of the fork server behave like new ones."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.support.fork_server import CLI, CORE_TESTS, can_fork, run_process, start_process

TIMEOUT_S = 60.0
ENV = dict(os.environ)


def test_exit_code_and_both_outputs_are_returned() -> None:
    """Settings in the environment are used."""
    unknown = run_process([*CLI, "unknown"], ENV, TIMEOUT_S)
    invalid = run_process([*CLI, "gateway"], {**ENV, "CHAT_REDIS_PARTITIONS": "x"}, TIMEOUT_S)
    version = run_process([*CLI, "version"], ENV, TIMEOUT_S)

    assert unknown.returncode == 2
    assert "No such command 'unknown'" in unknown.stderr
    assert invalid.returncode == 2
    assert "redis.partitions" in invalid.stderr
    assert version.returncode == 0
    assert version.stdout.startswith("chatserver ")


def test_killed_process_has_its_own_session_and_exit_code(tmp_path: Path) -> None:
    """The gateway waits for a Redis that does not respond."""
    with socket.create_server(("127.0.0.1", 0)) as silent, (tmp_path / "log").open("wb") as log:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        settings = {"CHAT_REDIS_URL": url, "CHAT_AUTH_SECRET": "s" * 32}
        process = start_process([*CLI, "gateway"], {**ENV, **settings}, log)
        silent.settimeout(TIMEOUT_S)
        connection, _ = silent.accept()
        with connection:
            session = os.getsid(process.pid)
            assert process.poll() is None
            process.send_signal(signal.SIGKILL)
            code = process.wait(TIMEOUT_S)

    assert session == process.pid
    assert code == process.poll() == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(
    ("argv", "more", "expected"),
    [
        ([*CLI, "api"], {"CHAT_API_PORT": "1"}, True),
        ([*CLI, "api"], {"chatserver.errors.NAME": "1"}, True),
        ([*CLI, "api"], {"LD_PRELOAD": "libfaketime.so"}, False),
        ([*CLI, "api"], {"PYTHONPATH": "/elsewhere"}, False),
        ([*CORE_TESTS, "tests/unit/domain"], {"HYPOTHESIS_PROFILE": "few"}, True),
        (["redis-server"], {}, False),
    ],
)
def test_only_known_modules_with_other_settings_are_forked(
    argv: list[str], more: dict[str, str], expected: bool
) -> None:
    """Other variables take effect only in a new interpreter."""
    assert can_fork(argv, {**ENV, **more}) is expected
