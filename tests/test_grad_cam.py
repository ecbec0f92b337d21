"""Grad-CAM by hand, and the two numbers that say how concentrated a map is."""

import math

import pytest
import torch

from clop.grad_cam import entropy, grad_cam, half_mass


def test_channels_are_weighted_by_their_mean_gradient_and_what_lowers_the_score_is_cut_off():
    """Fails if gradients are weighted position by position, or summed instead of averaged."""
    x = torch.tensor([[[[1.0, 2.0]], [[4.0, 0.5]]]], requires_grad=True)  # two channels, two positions
    score = 3 * x[:, 0, 0, 0] - x[:, 1, 0, 0] - x[:, 1, 0, 1]  # mean gradients: 1.5 and -1
    assert torch.equal(grad_cam(x, score), torch.tensor([[[0.0, 2.5]]]))


def test_maps_of_a_batch_do_not_mix():
    x = torch.rand(3, 2, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    together = grad_cam(x, (x**2).sum((1, 2, 3)))
    for row in range(3):
        alone = x[row : row + 1].detach().requires_grad_()
        assert torch.equal(grad_cam(alone, (alone**2).sum((1, 2, 3)))[0], together[row])


@pytest.mark.parametrize(
    ("row", "expected_entropy", "expected_half"),
    [
        ([1, 1, 1, 1], 1.0, 0.5),
        ([0, 7, 0, 0], 0.0, 0.25),
        ([2, 2, 0, 0], 0.5, 0.25),  # log 2 / log 4; one of the two holds half
        ([3, 1, 1, 1], -(0.5 * math.log(1 / 2) + 0.5 * math.log(1 / 6)) / math.log(4), 0.25),
        ([2, 1, 1, 1], -(0.4 * math.log(0.4) + 0.6 * math.log(0.2)) / math.log(4), 0.5),
    ],
)
def test_numbers_of_a_map_worked_by_hand(row, expected_entropy, expected_half):
    maps = torch.tensor([row], dtype=torch.float32).view(1, 2, 2)
    assert entropy(maps).item() == pytest.approx(expected_entropy, abs=1e-12)
    assert half_mass(maps).item() == expected_half
    assert entropy(10 * maps).item() == pytest.approx(expected_entropy, abs=1e-12)  # the scale of a map says nothing


def test_an_empty_map_has_no_numbers():
    """Fails if a map that was rectified away counts as concentrated, or as spread out."""
    maps = torch.zeros(1, 2, 2)
    assert entropy(maps).isnan().all()
    assert half_mass(maps).isnan().all()
