"""What methods cost, by their definitions."""

import pytest

from clop.bench.methods import PASSES, Passes, Row
from clop.rl.methods import METHODS


def test_the_cost_of_passes_counts_a_backward_pass_as_two_forward_ones():
    """PPO has 3 epochs of forward and backward, 9 units; DrAC has twice that; Rand+FM 3 forward passes more."""
    assert Passes().cost == 1
    assert PASSES["drac"].cost == 2
    assert PASSES["rand_fm"].cost == pytest.approx(12 / 9)
    assert PASSES["daac"].cost == pytest.approx(30 / 9)
    assert PASSES.keys() <= METHODS.keys()


def test_what_goes_beyond_the_passes_is_told():
    assert Row("drac", ratio=2.2, explained=2.0).excess == pytest.approx(1.1)
