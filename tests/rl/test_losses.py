"""The terms of the loss against numbers worked by hand, and where their gradients vanish."""

import pytest
import torch

from clop.rl.losses import clipped_policy_loss, clipped_value_loss

CLIP = 0.2


def policy_loss(ratios, advantages, clip=CLIP):
    ratios = torch.tensor(ratios, dtype=torch.float64)
    return clipped_policy_loss(ratios.log(), torch.zeros_like(ratios), torch.tensor(advantages).double(), clip)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 2.0, -2.0),
        (1.5, 2.0, -2.4),  # clipped at 1.2
        (1.5, -2.0, 3.0),  # not clipped: the worse of the two counts
        (0.5, 2.0, -1.0),  # not clipped
        (0.5, -2.0, 1.6),  # clipped at 0.8
        (1.1, -1.0, 1.1),
    ],
)
def test_the_policy_loss_of_one_transition(ratio, advantage, loss):
    assert policy_loss([ratio], [advantage]).item() == pytest.approx(loss)


def test_the_policy_loss_is_a_mean():
    assert policy_loss([1.5, 0.5, 1.0], [2.0, 2.0, -1.0]).item() == pytest.approx((-2.4 - 1.0 + 1.0) / 3)


def test_the_ratio_is_new_over_old():
    """Fails for old over new, whose loss here is -0.8."""
    new, old = torch.tensor([0.5]).log(), torch.tensor([0.4]).log()
    assert clipped_policy_loss(new, old, torch.tensor([1.0]), 0.9).item() == pytest.approx(-1.25)


def test_the_policy_gradient_vanishes_exactly_where_the_clip_wins():
    ratios = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1, 0.9], dtype=torch.float64)
    log_probs = ratios.log().requires_grad_()
    advantages = torch.tensor([2.0, -2.0, 2.0, -2.0, 1.0, -1.0], dtype=torch.float64)
    clipped_policy_loss(log_probs, torch.zeros(6).double(), advantages, CLIP).backward()
    expected = -ratios * advantages / 6  # d rho / d log pi = rho
    expected[[0, 3]] = 0
    torch.testing.assert_close(log_probs.grad, expected)


def test_at_ratio_one_the_gradient_is_that_of_the_plain_policy_gradient():
    log_probs = torch.randn(5, dtype=torch.float64, requires_grad=True)
    advantages = torch.randn(5, dtype=torch.float64)
    clipped_policy_loss(log_probs, log_probs.detach(), advantages, CLIP).backward()
    torch.testing.assert_close(log_probs.grad, -advantages / 5)


VALUE_CASES = [
    # value, old value, return, loss, gradient
    (1.1, 1.0, 2.0, 0.405, -0.9),  # inside the clip
    (1.5, 1.0, 2.0, 0.32, 0.0),  # clipped to 1.2, which is further from the return
    (1.5, 1.0, 0.0, 1.125, 1.5),  # outside, but the clipped value is the better one
    (0.5, 1.0, 0.0, 0.32, 0.0),  # the same below: clipped to 0.8
    (0.5, 1.0, 2.0, 1.125, -1.5),
    (3.0, 1.0, 2.0, 0.5, 1.0),  # clipped to 1.2 at 0.8 from the return, the value itself at 1
]


@pytest.mark.parametrize(("value", "old", "target", "loss", "gradient"), VALUE_CASES)
def test_the_value_loss_and_its_gradient_of_one_transition(value, old, target, loss, gradient):
    """The gradient is zero exactly where the clip is active and its branch wins the maximum.

    Fails for a minimum in place of the maximum, a missing half, and a clip around the return.
    """
    values = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    result = clipped_value_loss(values, torch.tensor([old]).double(), torch.tensor([target]).double(), CLIP)
    result.backward()
    assert result.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(gradient)
    assert (values.grad == 0).item() == (gradient == 0)


def test_the_value_loss_is_a_mean():
    values, old, targets, losses, _ = (torch.tensor(column) for column in zip(*VALUE_CASES, strict=True))
    torch.testing.assert_close(clipped_value_loss(values, old, targets, CLIP), losses.mean())


def test_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    x, old, target = (torch.randn(20, dtype=torch.float64, generator=generator) for _ in range(3))
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: clipped_value_loss(v, old, target, CLIP), x)
    assert torch.autograd.gradcheck(lambda v: clipped_policy_loss(v, old, target, CLIP), x)
