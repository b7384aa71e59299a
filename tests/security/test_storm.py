"""A short run of `tests.benchmarks.attack_storm`: seven concurrent attacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.benchmark_runs import run_benchmark

REQUESTS = ("send", "history", "open_direct", "login", "block", "delete")
HALF_OPEN = 300


@pytest.mark.timeout(600)
def test_bystander_during_concurrent_attacks_gets_correct_responses(tmp_path: Path) -> None:
    """Whatever others do, a user's requests may only become slower."""
    size = f"--calm 2 --storm 6 --half-open {HALF_OPEN} --images 3 --flooders 20"

    result, report = run_benchmark("attack_storm", size, tmp_path / "figures.json")

    assert result.exit_code == 0 and report["violations"] == {}, result.output
    assert all(report[name]["storm"]["count"] for name in REQUESTS)
    attacks = report["attacks"]
    assert attacks["half-open"] >= HALF_OPEN
    sent = ("guess sent", "create_chat sent", "image sent", "file sent", "search sent")
    for attack in (*sent, "flood ack"):
        assert attacks[attack] > 0, attack
    assert not [name for name in attacks if name.startswith("attacker failed")]
