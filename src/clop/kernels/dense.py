"""A dense layer's matrix products by oneDNN, which convolutions use anyway.

PyTorch leaves products of float32 matrices to MKL, which makes 110 GFLOP/s on a core of an AMD EPYC (Zen 5) where
oneDNN makes 250. On Intel's processors both are alike.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from clop.kernels.operators import traced


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``torch.nn.functional.linear``, faster on a CPU; the same up to the order of sums.

    Shape:
        - x: (N, inputs), weight: (outputs, inputs), bias: (outputs,)
    """
    if not _fits(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        return _apply(x, weight, bias)
    return _product(x, weight, bias)


class Linear(nn.Linear):
    """``torch.nn.Linear`` with the products of :func:`linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def _fits(x: Tensor, weight: Tensor) -> bool:
    return (
        _OPERATOR is not None
        and x.is_cpu
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not traced()  # who looks on knows the plain operator, and so do graphs that leave this process
    )


def _find_operator() -> Any:
    """oneDNN's product, an operator that torch has for its compiler; None in a build without it."""
    try:
        return torch.ops.mkldnn._linear_pointwise.default if torch.backends.mkldnn.is_available() else None
    except AttributeError:
        return None


_OPERATOR = _find_operator()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias"""
    return _OPERATOR(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t()) if of_x else None,
            _product(gradient.t(), x.t()) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


_apply: Callable[[Tensor, Tensor, Tensor], Tensor] = _Linear.apply
