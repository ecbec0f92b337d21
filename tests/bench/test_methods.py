"""What methods cost, by their definitions."""

import pytest

from clop.bench import methods
from clop.bench.iteration import Times
from clop.bench.methods import PASSES, Passes, Settings, bare_pass, row
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.envs.backends import installed_backends
from clop.rl.methods import METHODS
from clop.rl.settings import PPOConfig


def test_the_cost_of_passes_counts_a_backward_pass_as_two_forward_ones():
    """PPO has 3 epochs of forward and backward, 9 units; DrAC has twice that; Rand+FM 3 forward passes more."""
    assert Passes().cost == 1
    assert PASSES["drac"].cost == 2
    assert PASSES["rand_fm"].cost == pytest.approx(12 / 9)
    assert PASSES["daac"].cost == pytest.approx(30 / 9)
    assert PASSES.keys() <= METHODS.keys()


def test_what_goes_beyond_the_passes_is_reported():
    drac = row("drac", [2.0, 2.2, 2.4])
    assert drac.excess == pytest.approx(1.1)
    assert drac.quartiles == pytest.approx((2.1, 2.3))
    assert drac.asdict()["explained"] == 2
    assert row("rad", [1.0, 1.1, 1.2]).excess == pytest.approx(1.1)


def test_layers_all_over_the_network_make_its_passes_longer():
    """As much as bare passes take, and no more: what is lost around them is reported."""
    layered = row("batch_norm", [1.3, 1.32, 1.4], [1.1, 1.2, 1.3])
    assert layered.explained == pytest.approx(1.2)
    assert layered.excess == pytest.approx(1.1)


@pytest.mark.skipif(not installed_backends(), reason="needs games")
def test_a_bare_pass_goes_through_the_network_and_leaves_no_gradient():
    """Fails for a pass in evaluation mode, which is cheaper with batch norm, or one without its gradient."""
    config = TrainConfig.preset("procgen-easy", "starpilot", ppo=PPOConfig(num_steps=1, num_minibatches=1))
    learner = build_learner(config)
    learner.model.eval()
    gradients = []
    for parameter in learner.model.parameters():
        parameter.register_hook(lambda gradient: gradients.append(learner.model.training))
    assert bare_pass(learner) > 0
    assert gradients == [True] * len(list(learner.model.parameters()))
    assert all(parameter.grad is None for parameter in learner.model.parameters())


def test_ppo_has_a_turn_before_and_after_each_method(monkeypatch):
    """A machine that slows down steadily: with one turn of PPO for a whole round the last methods would look slow."""
    clock = iter(range(100, 1000))
    passes = iter([1.0, 1.5, 1.4] * 2)

    class Untimed:
        def iterate(self):
            pass

    monkeypatch.setattr(methods, "build_learner", lambda config: Untimed())
    monkeypatch.setattr(methods, "iteration_times", lambda learner: Times(0.0, 0.0, float(next(clock))))
    monkeypatch.setattr(methods, "bare_pass", lambda learner: next(passes))
    rows = methods.measure(Settings(rounds=2))
    assert [row.method for row in rows] == list(METHODS)
    assert all(row.ratio == pytest.approx(1) for row in rows)
    assert {row.method: row.layers for row in rows if row.layers != 1} == {"batch_norm": pytest.approx(1.25)}
