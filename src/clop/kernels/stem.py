"""IMPALA's first convolution, 3×3 on the three colours of frames to sixteen channels, and the max pool behind it.

oneDNN is at a third of its speed where there are so few channels. Here the sixteen results of a position are one
vector, to which each of the 27 numbers in its window adds a multiple of a vector of weights; eight positions are
computed at once. An image goes through both layers while it is in the cache, and the convolved map, four times as large
as the pooled one, is never written to memory. The sums have oneDNN's order on processors with AVX-512, which others
leave to torch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from clop.kernels.jit import jit
from clop.kernels.layers import by_outputs, plain, watched
from clop.kernels.pool import MaxPool, empty_maps, fits, gradient_of, pool, rows_of, unpool
from clop.kernels.vectors import FLOATS, INT, LANES, Vectors, compiler_function, copy, has_feature

COLOURS = 3
_TAPS = 9 * COLOURS
_AT_ONCE = 8  # positions; as many sums as the processor has on the way at a time


def convolve_and_pool(convolution: nn.Module, pooling: nn.Module, x: Tensor) -> Tensor:
    """What the pool makes of what the convolution makes of maps; in one pass for frames on one thread of a CPU."""
    # Exactly these types: a subclass, or a layer whose weights are computed, may do something else.
    if type(convolution) is nn.Conv2d and type(pooling) is MaxPool and _fits(convolution, pooling, x):
        return _apply(x, convolution.weight, convolution.bias)
    return pooling(convolution(x))


def _fits(convolution: nn.Conv2d, pooling: MaxPool, x: Tensor) -> bool:
    return (
        fits(x)
        and x.shape[1] == COLOURS
        and len(convolution.weight) == LANES
        and plain(convolution, COLOURS, stride=1)
        and not watched(convolution, pooling)
        and not (x.requires_grad and torch.is_grad_enabled())  # whose gradient is not computed here
        and has_feature("avx512f")  # where vectors are multiplied and added at once
    )


class _ConvolveAndPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        count, _, height, width = x.shape
        shape = count, LANES, (height + 1) // 2, (width + 1) // 2
        y, places = empty_maps(shape), empty_maps(shape, torch.uint8)
        vectors = by_outputs(weight).reshape(_TAPS, LANES)
        _convolve_all(rows_of(x), vectors, bias.detach().contiguous().numpy(), rows_of(y), rows_of(places))
        ctx.save_for_backward(x, places)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        x, places = (kept.contiguous(memory_format=torch.channels_last) for kept in ctx.saved_tensors)
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        if torch.is_grad_enabled() or not fits(gradient):  # to be differentiated again, or by somebody who looks on
            convolved = gradient_of(gradient, places, x.shape[2:])
            weight = conv2d_weight(x, (LANES, COLOURS, 3, 3), convolved, padding=1)
            return None, weight, convolved.sum((0, 2, 3))
        totals = np.zeros((_TAPS + 1, LANES), np.float32)
        _correlate_all(rows_of(x), rows_of(gradient), rows_of(places), totals)
        weight = torch.from_numpy(totals[:_TAPS]).view(3, 3, COLOURS, LANES).permute(3, 2, 0, 1).contiguous()
        return None, weight, torch.from_numpy(totals[_TAPS])


_apply: Callable[..., Tensor] = _ConvolveAndPool.apply


# ---- compiled ------------------------------------------------------------------------------------------------------


@jit
def bordered(height: int, width: int) -> Any:
    """An image with a border of zeros."""
    return np.zeros((height + 2, COLOURS * (width + 2)), np.float32)


@jit
def fill(bordered: Any, x: Any, n: int) -> None:
    """Put the image of that number inside the border."""
    _, height, width, channels = x.shape
    line = channels * width
    for i in range(height):
        copy(x, (n * height + i) * line, bordered, ((i + 1) * (width + 2) + 1) * channels, line)


@jit
def _convolve(image: Any, weights: Any, bias: Any, y: Any) -> None:
    """One image with its border to (rows, columns, 16)."""
    rows, columns, _ = y.shape
    line = image.shape[1]
    whole = columns - columns % _AT_ONCE
    for i in range(rows):
        window, result = i * line, i * columns * LANES
        for j in range(0, whole, _AT_ONCE):
            _eight(image, weights, bias, y, window + COLOURS * j, line, result + LANES * j)
        for j in range(whole, columns):
            _one(image, weights, bias, y, window + COLOURS * j, line, result + LANES * j)


@jit
def _correlate(image: Any, gradient: Any, totals: Any) -> None:
    """Add the gradient of the weights, and of the bias behind them, that one image gives."""
    rows, columns, _ = gradient.shape
    line = image.shape[1]
    for i in range(rows):
        sums_of_row(image, gradient, totals, i * line, line, 1, i * columns * LANES, columns)


@jit
def _convolve_all(x: Any, weights: Any, bias: Any, y: Any, places: Any) -> None:
    _, height, width, _ = x.shape
    image, convolved = bordered(height, width), np.empty((1, height, width, LANES), np.float32)
    for n in range(len(x)):
        fill(image, x, n)
        _convolve(image, weights, bias, convolved[0])
        pool(convolved, y[n : n + 1], places[n : n + 1])


@jit
def _correlate_all(x: Any, gradient: Any, places: Any, totals: Any) -> None:
    _, height, width, _ = x.shape
    image, unpooled = bordered(height, width), np.empty((1, height, width, LANES), np.float32)
    for n in range(len(x)):
        fill(image, x, n)
        unpool(gradient[n : n + 1], places[n : n + 1], unpooled)
        _correlate(image, unpooled[0], totals)


def _window(builder: Any, first: Any, line: Any) -> list[Any]:
    """Where the 27 numbers of the window at ``first`` are."""
    rows = [builder.add(first, builder.mul(line, INT(row))) for row in range(3)]
    return [builder.add(row, INT(k)) for row in rows for k in range(3 * COLOURS)]


def _positions(count: int) -> Any:
    """Vectors of so many positions next to each other; see :func:`_convolve`."""

    def convolve(
        typing_context: Any, image: Any, weights: Any, bias: Any, y: Any, first: Any, line: Any, result: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(context, builder, signature, arguments)
            *_, first, line, result = arguments
            sums = [ir.Constant(FLOATS, None)] * count
            for tap, place in enumerate(_window(builder, first, line)):
                weight = vectors.load(1, INT(tap * LANES))
                for n in range(count):
                    number = vectors.repeated(vectors.number(0, builder.add(place, INT(COLOURS * n))))
                    sums[n] = vectors.multiply_add(weight, number, sums[n])
            for n in range(count):
                biased = builder.fadd(sums[n], vectors.load(2, INT(0)))
                vectors.store(biased, 3, builder.add(result, INT(n * LANES)))
            return context.get_dummy_value()

        return types.void(image, weights, bias, y, *[types.int64] * 3), generate

    return compiler_function(convolve)


_one, _eight = _positions(1), _positions(_AT_ONCE)


@compiler_function
def sums_of_row(
    typing_context: Any,
    image: Any,
    gradient: Any,
    totals: Any,
    first: Any,
    line: Any,
    stride: Any,
    row: Any,
    columns: Any,
) -> Any:
    """One row of :func:`_correlate`; the 28 sums stay in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, first, line, stride, row, columns = arguments
        step = builder.mul(stride, INT(COLOURS))
        places = [INT(tap * LANES) for tap in range(_TAPS + 1)]
        sums = [cgutils.alloca_once_value(builder, vectors.load(2, place)) for place in places]
        with cgutils.for_range_slice(builder, INT(0), columns, INT(1)) as (j, _):
            here = vectors.load(1, builder.add(row, builder.mul(j, INT(LANES))))
            window = _window(builder, builder.add(first, builder.mul(j, step)), line)
            for place, total in zip(window, sums, strict=False):
                more = vectors.multiply_add(here, vectors.repeated(vectors.number(0, place)), builder.load(total))
                builder.store(more, total)
            builder.store(builder.fadd(builder.load(sums[-1]), here), sums[-1])
        for place, total in zip(places, sums, strict=True):
            vectors.store(builder.load(total), 2, place)
        return context.get_dummy_value()

    return types.void(image, gradient, totals, *[types.int64] * 5), generate
