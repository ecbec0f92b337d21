"""The terms of PPO's loss (Schulman et al., 2017): tensors in, one scalar out."""

from collections.abc import Iterable

import torch
from torch import Tensor


def clipped_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float) -> Tensor:
    r""":math:`-\mathrm{mean} \min(\rho A, \mathrm{clip}(\rho, 1 - \epsilon, 1 + \epsilon) A)`, all inputs (N,)."""
    ratio = (log_probs - old_log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    r""":math:`\frac{1}{2} \mathrm{mean} \max((V - R)^2, (V_c - R)^2)` with :math:`V_c` within clip of the old value."""
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2).mean()


def policy_divergence(target: Tensor, logits: Tensor) -> Tensor:
    r""":math:`\mathrm{mean}\, \mathrm{KL}(\pi_{target} \| \pi)` of logits (N, A); the target receives no gradient."""
    wanted = target.detach().log_softmax(-1)
    return (wanted.exp() * (wanted - logits.log_softmax(-1))).sum(-1).mean()


def half_squared_norm(parameters: Iterable[Tensor]) -> Tensor:
    r""":math:`\frac{1}{2} \sum \|w\|^2` over weights; biases and the parameters of batch norm, of one dimension, are
    left out."""
    return 0.5 * torch.stack([(weight**2).sum() for weight in parameters if weight.dim() > 1]).sum()
