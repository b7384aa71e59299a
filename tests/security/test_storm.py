"""A short run of `tests.benchmarks.attack_storm`: seven concurrent attacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.attack_storm import Size, run_storm
from tests.support.stack import PATIENT


@pytest.mark.timeout(600)
async def test_bystander_during_concurrent_attacks_gets_correct_responses(tmp_path: Path) -> None:
    """Whatever others do, a user's requests may only become slower."""
    size = Size(calm_s=2, storm_s=6, half_open=300, images=3, flooders=20)

    result = await run_storm(tmp_path, size, **PATIENT)

    assert result.wrong == []
    assert all(result.latencies["storm"].values())
    assert result.attacks["half-open"] >= size.half_open
    attacks = ("guess sent", "create_chat sent", "image sent", "file sent", "search sent")
    for attack in (*attacks, "flood ack"):
        assert result.attacks[attack] > 0, attack
    assert not [name for name in result.attacks if name.startswith("attacker failed")]
