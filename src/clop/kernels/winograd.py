"""Convolutions of 3×3 windows with fewer products, there and back.

By Winograd's algorithm (Lavin and Gray, 2016) two by two results take sixteen products a channel instead of 36. The
sums are not torch's to the bit, though as exact; so layers go this way only inside :func:`fewer_products`.

An image goes through both convolutions of a residual pair, or through a convolution and its pool, while it is in the
cache, and its gradient back. What comes out does not depend on the images beside it. One thread of a CPU with AVX-512
computes here, for maps of even size whose channels fill vectors; all else is left to torch.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.kernels.layers import by_outputs, gradients_by_torch, plain, watched
from clop.kernels.pool import MaxPool, empty_maps, fits, gradient_of, rows_of
from clop.kernels.vectors import LANES, has_feature
from clop.kernels.winograd_loops import pairs, pairs_back, pooled, pooled_back
from clop.kernels.winograd_sums import POINTS

_TRANSFORM = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float32, device="cpu")
"""Three weights to four points."""


class _Wanted(threading.local):
    now = False


_wanted = _Wanted()


@contextmanager
def fewer_products() -> Iterator[None]:
    """In here, sums may be others than torch's."""
    before, _wanted.now = _wanted.now, True
    try:
        yield
    finally:
        _wanted.now = before


def residual(first: nn.Module, second: nn.Module, x: Tensor, skip_relu: bool) -> Tensor | None:
    """``x + second(relu(first(relu(x))))``, with ``skip_relu`` added to ``relu(x)``; None where torch is to do it."""
    layers = _layers(x, first, second)
    if layers is None or len(layers[1].weight) != x.shape[1]:
        return None
    numbers = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    if _learns(x, *numbers):
        return _residual(x, *numbers, skip_relu)
    return _through_pairs(x, numbers, skip_relu, kept=1)[0]


def convolve_and_pool(convolution: nn.Module, pooling: nn.Module, x: Tensor) -> Tensor | None:
    """What the pool makes of what the convolution makes of maps; None where torch is to do it."""
    layers = _layers(x, convolution) if type(pooling) is MaxPool and not watched(pooling) else None
    if layers is None:
        return None
    numbers = layers[0].weight, layers[0].bias
    return _pooled(x, *numbers) if _learns(x, *numbers) else _through_pool(x, *numbers, kept=1)[0]


def _learns(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _layers(x: Tensor, *modules: nn.Module) -> list[nn.Conv2d] | None:
    """Convolutions that follow one another, if they may be computed here."""
    if not _wanted.now or not fits(x) or x.shape[2] % 2 or x.shape[3] % 2:
        return None
    # Exactly this type: a subclass, or a layer whose weights are computed, may do something else.
    layers = [layer for layer in modules if type(layer) is nn.Conv2d]
    channels = [x.shape[1], *(len(layer.weight) for layer in layers)]
    ours = (
        len(layers) == len(modules)
        and not any(count % LANES for count in channels)
        and all(plain(layer, inputs, stride=1) for layer, inputs in zip(layers, channels, strict=False))
        and not watched(*layers)
        and has_feature("avx512f")  # where vectors are multiplied and added at once
    )
    return layers if ours else None


def _turned(weight: Tensor) -> Any:
    """Weights of the convolution that a gradient goes back through: (3, 3, outputs, inputs), turned by half."""
    return by_outputs(weight.flip(2, 3).transpose(0, 1))


def _of_bias(bias: Tensor) -> Any:
    return bias.detach().contiguous().numpy()


def _totals(inputs: int, outputs: int) -> tuple[Any, Any]:
    """Where gradients of weights, at the points, and of a bias are added up."""
    return np.zeros((POINTS, inputs, outputs), np.float32), np.zeros(outputs, np.float32)


def _gradients(totals: tuple[Any, Any]) -> list[Tensor]:
    """Of a convolution's weight and bias."""
    points, bias = map(torch.from_numpy, totals)
    _, inputs, outputs = points.shape
    rows = (_TRANSFORM.t() @ points.view(4, -1)).view(3, 4, -1)
    weight = (_TRANSFORM.t() @ rows).view(3, 3, inputs, outputs)
    return [weight.permute(3, 2, 0, 1).contiguous(), bias]


# ---- a residual pair -----------------------------------------------------------------------------------------------


def _through_pairs(x: Tensor, numbers: Sequence[Any], skip_relu: bool, kept: int) -> tuple[Tensor, Tensor]:
    """The result, and the maps between of so many images, rectified, with a border of zeros and channels innermost."""
    weight1, bias1, weight2, bias2 = numbers
    _, _, height, width = x.shape
    y = empty_maps(tuple(x.shape))
    between = torch.empty(kept, height + 2, width + 2, len(weight1), dtype=torch.float32, device="cpu")
    given = by_outputs(weight1), _of_bias(bias1), by_outputs(weight2), _of_bias(bias2)
    pairs(rows_of(x), *given, between.numpy(), rows_of(y), skip_relu)
    return y, between


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, skip_relu: bool
    ) -> Tensor:
        numbers = weight1, bias1, weight2, bias2
        y, between = _through_pairs(x, numbers, skip_relu, kept=len(x))
        ctx.save_for_backward(x, *numbers, between)
        ctx.skip_relu = skip_relu
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *numbers, between = ctx.saved_tensors
        # Whoever keeps saved tensors, on another device for instance, may give them back in another layout.
        x, gradient = (each.contiguous(memory_format=torch.channels_last) for each in (x, gradient))
        if torch.is_grad_enabled() or not fits(gradient):  # to be differentiated again, or by somebody who looks on
            function = partial(_pair_by_torch, ctx.skip_relu)
            return (*gradients_by_torch(function, (x, *numbers), ctx.needs_input_grad[:-1], gradient), None)
        back = empty_maps(tuple(x.shape))
        totals = [_totals(*weight.shape[1::-1]) for weight in numbers[::2]]
        turned = [_turned(weight) for weight in numbers[::2]]
        between = between.detach().contiguous().numpy()
        pairs_back(
            rows_of(x), between, rows_of(gradient), *turned, rows_of(back), *totals[0], *totals[1], ctx.skip_relu
        )
        return (back, *_gradients(totals[0]), *_gradients(totals[1]), None)


_residual: Callable[..., Tensor] = _Residual.apply


def _pair_by_torch(
    skip_relu: bool, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor
) -> Tensor:
    rectified = x.relu()
    between = F.conv2d(rectified, weight1, bias1, padding=1).relu()
    return (rectified if skip_relu else x) + F.conv2d(between, weight2, bias2, padding=1)


# ---- a convolution and its pool ------------------------------------------------------------------------------------


def _through_pool(x: Tensor, weight: Tensor, bias: Any, kept: int) -> tuple[Tensor, Tensor]:
    """The result, and where in its window each number was, of so many images."""
    count, _, height, width = x.shape
    shape = len(weight), height // 2, width // 2
    y, places = empty_maps((count, *shape)), empty_maps((kept, *shape), torch.uint8)
    pooled(rows_of(x), by_outputs(weight), _of_bias(bias), rows_of(y), rows_of(places))
    return y, places


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y, places = _through_pool(x, weight, bias, kept=len(x))
        ctx.save_for_backward(x, weight, bias, places)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, places = ctx.saved_tensors
        x, places, gradient = (each.contiguous(memory_format=torch.channels_last) for each in (x, places, gradient))
        if torch.is_grad_enabled() or not fits(gradient):
            convolved = gradient_of(gradient, places, tuple(x.shape[2:]))
            return tuple(gradients_by_torch(_convolution_by_torch, (x, weight, bias), ctx.needs_input_grad, convolved))
        back, totals = empty_maps(tuple(x.shape)), _totals(*weight.shape[1::-1])
        pooled_back(rows_of(x), rows_of(gradient), rows_of(places), _turned(weight), rows_of(back), *totals)
        return (back, *_gradients(totals))


_pooled: Callable[..., Tensor] = _Pooled.apply


def _convolution_by_torch(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv2d(x, weight, bias, padding=1)
