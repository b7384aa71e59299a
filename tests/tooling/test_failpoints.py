"""Failpoints kill or stop the process at a named place if a test sets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.deadlines import EXIT_S, open_process

PROGRAM = """
from chatserver.telemetry.failpoints import arm_failpoint, failpoint
arm_failpoint()
for number in range(1, 5):
    print(number, flush=True)
    failpoint("here")
    failpoint("there")
print("end")
"""


def run(failpoint_setting: str) -> tuple[int, list[str]]:
    """Run a program that passes two failpoints four times; return exit code and output."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "CHAT_FAILPOINT": failpoint_setting},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout.split()


@pytest.mark.parametrize(
    ("failpoint_setting", "end", "printed"),
    [
        ("here:kill", -signal.SIGKILL, ["1"]),
        ("there:kill:3", -signal.SIGKILL, ["1", "2", "3"]),
        ("here:kill:5", 0, ["1", "2", "3", "4", "end"]),
        ("elsewhere:kill", 0, ["1", "2", "3", "4", "end"]),
    ],
)
def test_failpoint_kills_at_its_place_and_count_only(
    failpoint_setting: str, end: int, printed: list[str]
) -> None:
    """The process is killed at the first or the given pass; other failpoints do nothing."""
    assert run(failpoint_setting) == (end, printed)


def test_failpoint_stops_the_process_until_sigcont() -> None:
    """The process continues normally afterwards."""
    with open_process(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "CHAT_FAILPOINT": "here:stop:2"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        give_up, stopped = time.monotonic() + EXIT_S, 0
        while not stopped:
            assert time.monotonic() < give_up, "the process has not stopped"
            stopped, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
            time.sleep(0.01)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        printed, _ = process.communicate(timeout=30)

    assert printed.split() == ["1", "2", "3", "4", "end"]
    assert process.returncode == 0
