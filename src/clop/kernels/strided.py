"""Three convolutions of 3×3 windows with stride 2, from frames to 32 channels, the first two of them rectified.

An image goes through all of them, and its gradient back, while it is in the cache; layer by layer, the maps of a
minibatch go through memory. oneDNN is at a third of its speed for the gradient of what a convolution with stride 2
reads, and at half of it for a convolution of three colours.

All sums have oneDNN's order on processors with AVX-512, which others leave to torch; so numbers are equal to the bit,
but for gradients on frames whose width 8 does not divide.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.kernels.jit import jit
from clop.kernels.layers import by_outputs, gradients_by_torch, plain, watched
from clop.kernels.pool import empty_maps, fits, rows_of
from clop.kernels.stem import COLOURS, bordered, fill, sums_of_row
from clop.kernels.strided_sums import (
    AT_ONCE,
    WIDE,
    add_positions,
    add_products,
    clear,
    convolve_colours,
    convolve_narrow,
    convolve_one_colours,
    convolve_one_narrow,
    convolve_one_wide,
    convolve_wide,
    spread_narrow,
    spread_one,
    spread_one_wide,
    spread_wide,
)
from clop.kernels.vectors import LANES, copy, has_feature

CHANNELS = COLOURS, LANES, WIDE, WIDE


def three_convolutions(convolutions: Sequence[nn.Module], x: Tensor) -> Tensor | None:
    """What three convolutions make of frames, with a ReLU behind the first and the second; None if they are others."""
    # Exactly this type: a subclass, or a layer whose weights are computed, may do something else.
    layers = [layer for layer in convolutions if type(layer) is nn.Conv2d]
    if len(layers) != len(convolutions) or not _fits(layers, x):
        return None
    parameters: list[Any] = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters):
        return _apply(x, *parameters)
    return _convolved(x, parameters, kept=1)[0]


def _fits(convolutions: Sequence[nn.Conv2d], x: Tensor) -> bool:
    return (
        fits(x)
        and len(x) > 1  # of one image torch adds in another order
        and (x.shape[1], *(len(layer.weight) for layer in convolutions)) == CHANNELS
        and all(plain(layer, inputs, stride=2) for layer, inputs in zip(convolutions, CHANNELS, strict=False))
        and not watched(*convolutions)
        and not (x.requires_grad and torch.is_grad_enabled())  # whose gradient is not computed here
        and has_feature("avx512f")  # where vectors are multiplied and added at once
    )


def _convolved(x: Tensor, parameters: Sequence[Tensor], kept: int) -> tuple[Tensor, list[Tensor]]:
    """The last map, and those between of so many images, rectified, with a border of zeros and channels innermost."""
    sizes = [tuple(x.shape[2:])]
    for _ in range(3):
        sizes.append(tuple((size + 1) // 2 for size in sizes[-1]))
    between = [
        torch.empty(kept, height + 2, width + 2, channels, dtype=torch.float32, device="cpu")
        for (height, width), channels in zip(sizes[1:3], CHANNELS[1:3], strict=True)
    ]
    y = empty_maps((len(x), CHANNELS[3], *sizes[3]))
    vectors = [by_outputs(weight) for weight in parameters[::2]]
    biases = [bias.detach().contiguous().numpy() for bias in parameters[1::2]]
    _convolve_all(rows_of(x), *vectors, *biases, *(each.numpy() for each in between), rows_of(y))
    return y, between


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        y, between = _convolved(x, parameters, kept=len(x))
        ctx.save_for_backward(x, *parameters, *between)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Whoever keeps saved tensors, on another device for instance, may give them back in another layout.
        x, *parameters = ctx.saved_tensors[:7]
        between = [each.detach().contiguous().numpy() for each in ctx.saved_tensors[7:]]
        gradient, x = (each.contiguous(memory_format=torch.channels_last) for each in (gradient, x))
        if torch.is_grad_enabled() or not fits(gradient):  # to be differentiated again, or by somebody who looks on
            return tuple(gradients_by_torch(_by_torch, (x, *parameters), ctx.needs_input_grad, gradient))
        totals = [np.zeros((9 * a + 1, b), np.float32) for a, b in pairwise(CHANNELS)]
        vectors = [by_outputs(weight.transpose(0, 1)) for weight in parameters[2::2]]
        _correlate_all(rows_of(x), *between, rows_of(gradient), *vectors, *totals)
        found: list[Tensor | None] = [None]
        for total, inputs in zip(totals, CHANNELS, strict=False):
            numbers = torch.from_numpy(total)
            found += [numbers[:-1].view(3, 3, inputs, -1).permute(3, 2, 0, 1).contiguous(), numbers[-1]]
        return tuple(found)


_apply: Callable[..., Tensor] = _Convolve.apply


def _by_torch(x: Tensor, *parameters: Tensor) -> Tensor:
    y = x
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        y = F.conv2d(x if y is x else y.relu(), weight, bias, stride=2, padding=1)
    return y


# ---- compiled ------------------------------------------------------------------------------------------------------


@jit
def _convolve_all(
    x: Any,
    weights1: Any,
    weights2: Any,
    weights3: Any,
    bias1: Any,
    bias2: Any,
    bias3: Any,
    first: Any,
    second: Any,
    y: Any,
) -> None:
    """Fill ``first`` and ``second`` with the maps between, or with those of one image after the other."""
    count, height, width, _ = x.shape
    image = bordered(height, width)
    for n in range(count):
        kept = min(n, len(first) - 1)
        if n == kept:
            clear_border(first[n])
            clear_border(second[n])
        fill(image, x, n)
        one, two = first[kept], second[kept]
        _convolve(
            image, image.shape[1], weights1, bias1, one, one.shape[1] + 1, one.shape[1] - 2, one.shape[0] - 2, True
        )
        line = one.shape[1] * LANES
        _convolve(one, line, weights2, bias2, two, two.shape[1] + 1, two.shape[1] - 2, two.shape[0] - 2, True)
        _, rows, columns, _ = y.shape
        _convolve(two, two.shape[1] * WIDE, weights3, bias3, y[n], 0, columns, rows, False)


@jit
def clear_border(image: Any) -> None:
    """Zeros around an image."""
    image[0], image[-1], image[:, 0], image[:, -1] = 0, 0, 0, 0


@jit
def _convolve(
    image: Any,
    line: int,
    weights: Any,
    bias: Any,
    y: Any,
    first: int,
    columns: int,
    rows: int,
    rectified: bool,
) -> None:
    """One image with its border, to rows of ``y`` from the position ``first`` on."""
    _, _, inputs, outputs = weights.shape
    at_once = AT_ONCE * LANES // outputs
    whole = columns - columns % at_once
    for i in range(rows):
        window, result = 2 * i * line, (first + i * y.shape[1]) * outputs
        for j in range(0, whole, at_once):
            here, there = window + 2 * j * inputs, result + j * outputs
            if inputs == COLOURS:
                convolve_colours(image, weights, bias, y, here, line, there, rectified)
            elif inputs == LANES:
                convolve_narrow(image, weights, bias, y, here, line, there, rectified)
            else:
                convolve_wide(image, weights, bias, y, here, line, there, rectified)
        for j in range(whole, columns):
            here, there = window + 2 * j * inputs, result + j * outputs
            if inputs == COLOURS:
                convolve_one_colours(image, weights, bias, y, here, line, there, rectified)
            elif inputs == LANES:
                convolve_one_narrow(image, weights, bias, y, here, line, there, rectified)
            else:
                convolve_one_wide(image, weights, bias, y, here, line, there, rectified)


@jit
def _correlate_all(
    x: Any,
    first: Any,
    second: Any,
    gradient: Any,
    weights2: Any,
    weights3: Any,
    totals1: Any,
    totals2: Any,
    totals3: Any,
) -> None:
    """Add the gradients of the weights, and of the biases behind them."""
    count, height, width, _ = x.shape
    _, rows, columns, _ = gradient.shape
    image = bordered(height, width)
    # Gradients have a column of zeros behind the others.
    behind_first = np.zeros((first.shape[1] - 2, first.shape[2] - 1, LANES), np.float32)
    behind_second = np.zeros((second.shape[1] - 2, second.shape[2] - 1, WIDE), np.float32)
    last = np.zeros((rows, columns + 1, WIDE), np.float32)
    line = columns * WIDE
    for n in range(count):
        for i in range(rows):
            copy(gradient, (n * rows + i) * line, last, i * (line + WIDE), line)
        following = min(n + 1, count - 1)
        _correlate(second[n], last, totals3, x[n], x[n])
        _spread(last, weights3, behind_second)
        _let_through(second[n], behind_second)
        _correlate(first[n], behind_second, totals2, first[following], second[following])
        _spread(behind_second, weights2, behind_first)
        _let_through(first[n], behind_first)
        fill(image, x, n)
        for i in range(len(behind_first)):
            row = i * behind_first.shape[1] * LANES
            sums_of_row(
                image, behind_first, totals1, 2 * i * image.shape[1], image.shape[1], 2, row, behind_first.shape[1] - 1
            )


@jit
def _let_through(y: Any, gradient: Any) -> None:
    """Clear the gradient where the map was rectified."""
    rows, columns, channels = gradient.shape
    for i in range(rows):
        clear(y, gradient, ((i + 1) * y.shape[1] + 1) * channels, i * columns * channels, (columns - 1) * channels)


@jit
def _correlate(image: Any, gradient: Any, totals: Any, soon: Any, later: Any) -> None:
    """Add the gradient of the weights, and of the bias behind them, that one image gives, but for the first layer.

    On the way ``soon`` and ``later``, which are read next, are fetched from memory.
    """
    _, across, inputs = image.shape
    rows, columns, _ = gradient.shape
    line, at_once = across * inputs, AT_ONCE // 2
    for tap in range(9):
        fetched, turn = (soon, tap) if tap < 5 else (later, tap - 5)
        for c in range(0, inputs, at_once):
            place, total = tap // 3 * line + tap % 3 * inputs + c, (tap * inputs + c) * WIDE
            ahead = (turn * inputs + c) * rows * columns
            add_products(image, gradient, totals, fetched, place, line, 2 * inputs, total, ahead, rows, columns)
    add_positions(gradient, totals, 9 * inputs * WIDE, rows * columns)


@jit
def _spread(gradient: Any, weights: Any, back: Any) -> None:
    """The gradient of an image that was read.

    An even row is in one window, the middle of it; an odd one is the first of a window and the last of the one before.
    Columns likewise.
    """
    height, columns, inputs = back.shape
    line, tap = gradient.shape[1] * WIDE, 3 * WIDE * inputs
    for row in range(height):
        middle, last = row % 2 == 0, row // 2 + 1 == len(gradient)
        i, rows = (row // 2, 1) if middle or last else (row // 2 + 1, 2)
        first = 1 if middle else 2 if last else 0  # row of the weights
        _windows(gradient, weights, back, i * line, line, rows, first * tap, row * columns * inputs)


@jit
def _windows(gradient: Any, weights: Any, back: Any, first: int, line: int, rows: int, tap: int, result: int) -> None:
    """The same, from one or two rows of windows, the last of which begins at ``first``."""
    _, width, inputs = back.shape
    width -= 1
    at_once = AT_ONCE * LANES // inputs
    whole = width // 2 - width // 2 % at_once
    for j in range(0, whole, at_once):
        here, there = first + j * WIDE, result + 2 * j * inputs
        if inputs == LANES and rows == 1:  # numbers that the compiler knows
            spread_narrow(gradient, weights, back, here, line, 1, tap, there, True)
        elif inputs == LANES:
            spread_narrow(gradient, weights, back, here, line, 2, tap, there, True)
        elif rows == 1:
            spread_wide(gradient, weights, back, here, line, 1, tap, there, True)
        else:
            spread_wide(gradient, weights, back, here, line, 2, tap, there, True)
    for j in range(whole, (width + 1) // 2):
        here, there, odd = first + j * WIDE, result + 2 * j * inputs, 2 * j + 1 < width
        if inputs == LANES:
            spread_one(gradient, weights, back, here, line, rows, tap, there, odd)
        else:
            spread_one_wide(gradient, weights, back, here, line, rows, tap, there, odd)
