"""Scripts of failing seeds are shortened, saved, and replayed with the story of the failure."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.chaos.simulation import Action
from tests.simulation.run import Result
from tests.simulation.shrinker import get_rules, remove
from tests.simulation.test_simulation import START_S, run_simulation

MUTANT = ("--seed", "1", "--mutant", "hidden_not_in_backlog")
SCRIPT = [
    Action("send", (0, 0, 2, 1)),
    Action("send", (1, 0, 2, 1)),
    Action("wait", (500,)),
    Action("type", (0, 2)),
    Action("hide", (0, 0, 2, 0)),
    Action("mark", (1, 2)),
    Action("quiesce"),
]


def test_rules_are_read_from_the_report() -> None:
    problem = "P4 x 1, ITEM_IDS x 1\nP4: u1-0 of u1\nITEM_IDS: g-1 has m1 2 times\nstory of g-1"

    assert get_rules(Result(1, problem=problem)) == {"P4", "ITEM_IDS"}
    assert get_rules(Result(1, problem="RuntimeError: no")) == {"failed"}
    assert get_rules(Result(1)) == set()


def test_end_of_a_script_is_not_removed() -> None:
    assert [action.name for action in remove(SCRIPT, 3, 9)] == ["send", "send", "wait", "quiesce"]


@pytest.mark.timeout(2 * START_S + 60)
def test_script_is_shortened_and_fails_again(tmp_path: Path) -> None:
    whole, short = tmp_path / "whole.json", tmp_path / "short.json"
    whole.write_bytes(msgspec.json.encode(SCRIPT))

    shrunk = run_simulation(*MUTANT, "--script", str(whole), "--shrink", str(short))
    again = run_simulation(*MUTANT, "--script", str(short))

    script = msgspec.json.decode(short.read_bytes(), type=list[Action])
    assert shrunk.returncode == again.returncode == 1, shrunk.stdout + shrunk.stderr
    assert {action.name for action in script} == {"send", "hide", "quiesce"}
    assert f"--mutant hidden_not_in_backlog --script {short}" in shrunk.stdout
    assert "HIDDEN: " in again.stdout
    assert "u0 requests hide" in again.stdout
