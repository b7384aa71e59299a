"""Mutants: their texts occur in the product."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, prepare


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_can_be_planted(mutant: Mutant) -> None:
    """Otherwise, a change of the product would disable the mutant unnoticed."""
    prepare(mutant)
