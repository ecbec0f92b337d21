"""What methods cost, by their definitions."""

import pytest

from clop.bench import methods
from clop.bench.methods import PASSES, Passes, row
from clop.rl.methods import METHODS


def test_the_cost_of_passes_counts_a_backward_pass_as_two_forward_ones():
    """PPO has 3 epochs of forward and backward, 9 units; DrAC has twice that; Rand+FM 3 forward passes more."""
    assert Passes().cost == 1
    assert PASSES["drac"].cost == 2
    assert PASSES["rand_fm"].cost == pytest.approx(12 / 9)
    assert PASSES["daac"].cost == pytest.approx(30 / 9)
    assert PASSES.keys() <= METHODS.keys()


def test_what_goes_beyond_the_passes_is_told():
    drac = row("drac", [2.0, 2.2, 2.4])
    assert drac.excess == pytest.approx(1.1)
    assert drac.quartiles == pytest.approx((2.1, 2.3))
    assert drac.asdict()["explained"] == 2
    assert row("rad", [1.0, 1.1, 1.2]).excess == pytest.approx(1.1)


def test_ppo_has_a_turn_before_and_after_each_method(monkeypatch):
    """A machine that slows down steadily: with one turn of PPO for a whole round the last methods would look slow."""
    clock = iter(range(100, 1000))

    class Untimed:
        def iterate(self):
            pass

    monkeypatch.setattr(methods, "build_learner", lambda config: Untimed())
    monkeypatch.setattr(methods, "iteration_times", lambda learner: (0.0, 0.0, float(next(clock))))
    rows = methods.run("starpilot", rounds=2)
    assert [row.method for row in rows] == list(METHODS)
    assert all(row.ratio == pytest.approx(1) for row in rows)
