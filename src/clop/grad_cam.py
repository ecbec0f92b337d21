"""Grad-CAM (Selvaraju et al., 2017): where on a feature map a score comes from, and how concentrated that is."""

import math

import torch
from torch import Tensor


def grad_cam(feature_map: Tensor, score: Tensor) -> Tensor:
    r"""The channels of a map, each weighted by its mean gradient, summed and rectified.

    .. math:: m_{n,i} = \max\Bigl(0, \sum_c w_{n,c} \, x_{n,c,i}\Bigr), \quad
        w_{n,c} = \frac{1}{HW} \sum_j \frac{\partial s_n}{\partial x_{n,c,j}}

    Args:
        feature_map: A leaf that requires a gradient, or a map on the way to the score.
        score: One number for each sample, computed from the map.

    Shape:
        - feature_map: :math:`(N, C, H, W)`; score: :math:`(N,)`; the result: :math:`(N, H, W)`
    """
    (gradient,) = torch.autograd.grad(score.sum(), feature_map)
    weights = gradient.mean((2, 3), keepdim=True)
    return (weights * feature_map.detach()).sum(1).relu()


def entropy(maps: Tensor) -> Tensor:
    """(N,) Entropy of maps (N, H, W) as laws on their positions, in units of its maximum.

    1 for a map that is the same everywhere, 0 for one with a single position; not a number for an empty map.
    """
    laws = _laws(maps)
    logs = torch.where(laws > 0, laws, 1).log()
    return -(laws * logs).sum(1) / math.log(laws.shape[1])


def half_mass(maps: Tensor) -> Tensor:
    """(N,) The least share of the positions of maps (N, H, W) that hold half of the mass; not a number for an empty
    map."""
    laws = _laws(maps)
    held = laws.sort(1, descending=True).values.cumsum(1)
    needed = (held < 0.5 - 1e-9).sum(1) + 1  # a sum that is a half but for its rounding is enough
    return torch.where(laws.isnan().any(1), math.nan, needed / laws.shape[1])


def _laws(maps: Tensor) -> Tensor:
    """(N, positions) Each sums to 1; an empty map has none."""
    flat = maps.flatten(1).double()
    return flat / flat.sum(1, keepdim=True)
