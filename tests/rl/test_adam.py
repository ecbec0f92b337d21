"""Adam as TensorFlow has it."""

import math

import pytest
import torch
from torch import nn

from clop.errors import UsageError
from clop.rl.adam import ADAMS, TensorFlowAdam
from clop.rl.settings import PPOConfig

EPSILON = 1e-5


def gradients(count):
    """Some so small that epsilon decides the step."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1e-7, 1e-5, 1e-4, 1e-2, 1.0], dtype=torch.float64)
    return [scales * torch.randn(5, dtype=torch.float64, generator=generator) for _ in range(count)]


def rate(step):
    return 5e-4 if step < 10 else 2e-4


def moved(make, count=30):
    weights = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimiser = make([weights], rate(0), eps=EPSILON)
    for step, gradient in enumerate(gradients(count)):
        weights.grad = gradient.clone()
        optimiser.param_groups[0]["lr"] = rate(step)
        optimiser.step()
    return weights.detach()


def by_hand(count=30):
    """The rule as TensorFlow's documentation states it ("epsilon hat"), a value at a time."""
    weights = [0.0] * 5
    m, v = [0.0] * 5, [0.0] * 5
    for step, gradient in enumerate(gradients(count)):
        t = step + 1
        size = rate(step) * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        for i, g in enumerate(gradient.tolist()):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            weights[i] -= size * m[i] / (math.sqrt(v[i]) + EPSILON)
    return torch.tensor(weights, dtype=torch.float64)


def test_steps_are_tensorflows():
    """Fails for PyTorch's own Adam, whose small gradients move the weights further at first."""
    expected = by_hand()
    torch.testing.assert_close(moved(TensorFlowAdam), expected, rtol=1e-10, atol=0)
    plain = moved(torch.optim.Adam)
    assert (plain[:2].abs() > 2 * expected[:2].abs()).all()
    torch.testing.assert_close(plain[-1], expected[-1], rtol=1e-2, atol=0)  # where epsilon is nothing


def test_after_many_steps_both_are_one():
    """Fails if epsilon grows with the steps."""
    one = TensorFlowAdam([nn.Parameter(torch.zeros(1))], 1e-3, eps=EPSILON)
    one.param_groups[0]["steps"] = 100_000
    one.step()
    assert one.param_groups[0]["eps"] == pytest.approx(EPSILON)


@pytest.mark.parametrize("name", ADAMS)
def test_the_learner_has_the_one_that_is_asked_for(name, make_learner):
    learner = make_learner(adam=name, small=True)
    assert {type(optimiser) for optimiser in learner.optimisers.values()} == {ADAMS[name]}
    assert learner.optimisers["all"].param_groups[0]["eps"] == EPSILON


def test_an_adam_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"unknown ppo\.adam 'tff'; did you mean 'tf'"):
        PPOConfig(adam="tff")
