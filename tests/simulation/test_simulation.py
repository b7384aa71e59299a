"""The simulation itself: replay, guarantees, and planted faults that it must find."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.deadlines import EXIT_S

SHORT = ("--seeds", "50", "--steps", "15", "--faults", "2", "--jobs", "2")
LONG = ("--seeds", "3")
START_S = 600  # a busy machine


def run_simulation(*args: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, because it replaces the clock."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *args],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=START_S + EXIT_S,
        check=False,
    )


def read_digests(result: subprocess.CompletedProcess[str]) -> dict[int, str]:
    """Return the digest of each seed's trace."""
    pairs = [line.split() for line in result.stdout.splitlines()]
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}


@pytest.mark.timeout(2 * START_S + 60)
@pytest.mark.parametrize("size", [SHORT, LONG])
def test_seeds_keep_all_guarantees_and_repeat_to_the_byte(size: tuple[str, ...]) -> None:
    """Every seed has the same trace when it runs again, in another process with other hashes."""
    first = run_simulation(*size, "--digests")
    second = run_simulation(*size, "--digests", hash_seed="77")

    assert first.returncode == 0, first.stdout + first.stderr
    assert len(read_digests(first)) == int(size[1])
    assert read_digests(first) == read_digests(second)


@pytest.mark.timeout(START_S + 60)
@pytest.mark.parametrize("mutant", ["commit_without_dedupe", "checkpoint_before_write"])
def test_planted_fault_is_found(mutant: str) -> None:
    """A fault of the product breaks a guarantee within a few seeds."""
    result = run_simulation("--mutant", mutant, "--seeds", "40", "--stop")

    assert result.returncode == 1, result.stdout + result.stderr
