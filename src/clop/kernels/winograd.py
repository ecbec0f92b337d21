"""Convolutions of 3×3 windows with fewer products, for agents that act and do not learn.

By Winograd's algorithm (Lavin and Gray, 2016) two by two results take sixteen products a channel instead of 36. The
sums are not torch's to the bit, though as exact; so an update never sees them, and neither does a rollout, whose
probabilities an update compares with its own. Layers go this way only inside :func:`fewer_products`, and where no
gradient is wanted.

An image goes through both convolutions of a residual pair while it is in the cache, and what comes out does not depend
on the images beside it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clop.kernels.jit import jit
from clop.kernels.layers import plain, watched
from clop.kernels.pool import MaxPool, empty_maps, fits, pool, rows_of
from clop.kernels.vectors import LANES, copy, has_feature
from clop.kernels.winograd_sums import (
    POINTS,
    TILES,
    from_points,
    products_narrow,
    products_wide,
    rectify,
    to_points,
    weights_to_points,
)


class _Wanted(threading.local):
    here = False


_wanted = _Wanted()


@contextmanager
def fewer_products() -> Iterator[None]:
    """Where sums may be others than torch's."""
    before = _wanted.here
    _wanted.here = True
    try:
        yield
    finally:
        _wanted.here = before


def residual(first: nn.Module, second: nn.Module, x: Tensor, skip_relu: bool) -> Tensor | None:
    """``x + second(relu(first(relu(x))))``, with ``skip_relu`` added to ``relu(x)``; None where torch is to do it."""
    layers = _layers(x, first, second)
    if layers is None or len(layers[1].weight) != x.shape[1]:
        return None
    y = empty_maps(tuple(x.shape))
    _residuals(rows_of(x), *_numbers(layers[0]), *_numbers(layers[1]), rows_of(y), skip_relu)
    return y


def convolve_and_pool(convolution: nn.Module, pooling: nn.Module, x: Tensor) -> Tensor | None:
    """What the pool makes of what the convolution makes of maps; None where torch is to do it."""
    layers = _layers(x, convolution) if type(pooling) is MaxPool and not watched(pooling) else None
    if layers is None:
        return None
    count, _, height, width = x.shape
    shape = count, len(layers[0].weight), height // 2, width // 2
    y, places = empty_maps(shape), empty_maps((1, *shape[1:]), torch.uint8)
    _convolve_and_pool_all(rows_of(x), *_numbers(layers[0]), rows_of(y), rows_of(places))
    return y


def _layers(x: Tensor, *modules: nn.Module) -> list[nn.Conv2d] | None:
    """Convolutions that follow one another, if they may be computed here."""
    if not _wanted.here or torch.is_grad_enabled() or not fits(x) or x.shape[2] % 2 or x.shape[3] % 2:
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


def _numbers(layer: nn.Conv2d) -> tuple[Any, Any]:
    """Weights, (3, 3, inputs, outputs), and bias."""
    assert layer.bias is not None
    return layer.weight.detach().permute(2, 3, 1, 0).contiguous().numpy(), layer.bias.detach().contiguous().numpy()


# ---- compiled ------------------------------------------------------------------------------------------------------


@jit
def _residuals(x: Any, weights1: Any, bias1: Any, weights2: Any, bias2: Any, y: Any, skip_relu: bool) -> None:
    count, height, width, channels = x.shape
    between = weights1.shape[3]
    points1, points2 = _of_weights(weights1), _of_weights(weights2)
    image = np.zeros((height + 2, width + 2, channels), np.float32)
    middle = np.zeros((height + 2, width + 2, between), np.float32)
    read = np.zeros(POINTS * TILES * max(channels, between), np.float32)
    written = np.empty(POINTS * TILES * max(channels, between), np.float32)
    line = width * channels
    for n in range(count):
        for i in range(height):
            here, there = (n * height + i) * line, ((i + 1) * (width + 2) + 1) * channels
            rectify(x, image, here, there, line)
            if skip_relu:
                rectify(x, y, here, here, line)
            else:
                copy(x, here, y, here, line)
        inside = (width + 3) * between
        _convolve(image, points1, bias1, middle, inside, width + 2, read, written, False, True)
        _convolve(middle, points2, bias2, y, n * height * line, width, read, written, True, False)


@jit
def _convolve_and_pool_all(x: Any, weights: Any, bias: Any, y: Any, places: Any) -> None:
    count, height, width, channels = x.shape
    outputs = weights.shape[3]
    points = _of_weights(weights)
    image = np.zeros((height + 2, width + 2, channels), np.float32)
    convolved = np.empty((1, height, width, outputs), np.float32)
    read = np.zeros(POINTS * TILES * channels, np.float32)
    written = np.empty(POINTS * TILES * outputs, np.float32)
    line = width * channels
    for n in range(count):
        for i in range(height):
            copy(x, (n * height + i) * line, image, ((i + 1) * (width + 2) + 1) * channels, line)
        _convolve(image, points, bias, convolved, 0, width, read, written, False, False)
        pool(convolved, y[n : n + 1], places)


@jit
def _of_weights(weights: Any) -> Any:
    """What tiles are multiplied by: at each point (inputs, outputs)."""
    _, _, inputs, outputs = weights.shape
    points = np.empty((POINTS, inputs, outputs), np.float32)
    for place in range(0, inputs * outputs, LANES):
        weights_to_points(weights, points, place, inputs * outputs, place, inputs * outputs)
    return points


@jit
def _convolve(
    image: Any,
    points: Any,
    bias: Any,
    y: Any,
    first: int,
    across: int,
    read: Any,
    written: Any,
    added: bool,
    rectified: bool,
) -> None:
    """One image with its border, to lines of ``y`` that are ``across`` positions long, from the number ``first`` on."""
    height, width, inputs = image.shape
    rows, columns, outputs = height // 2 - 1, width // 2 - 1, points.shape[2]
    for start in range(0, rows * columns, TILES):
        count = min(TILES, rows * columns - start)
        for tile in range(count):
            i, j = (start + tile) // columns, (start + tile) % columns
            window = 2 * (i * width + j) * inputs
            for c in range(0, inputs, LANES):
                to_points(image, read, window + c, width * inputs, inputs, tile * inputs + c, TILES * inputs)
        for point in range(POINTS):
            here, there, weight = point * TILES * inputs, point * TILES * outputs, point * inputs * outputs
            c = 0
            while c + 2 * LANES <= outputs:
                half = TILES // 2
                products_wide(read, points, written, here, inputs, weight + c, outputs, there + c)
                products_wide(
                    read, points, written, here + half * inputs, inputs, weight + c, outputs, there + half * outputs + c
                )
                c += 2 * LANES
            if c < outputs:
                products_narrow(read, points, written, here, inputs, weight + c, outputs, there + c)
        for tile in range(count):
            i, j = (start + tile) // columns, (start + tile) % columns
            result = first + 2 * (i * across + j) * outputs
            for c in range(0, outputs, LANES):
                place, size = tile * outputs + c, TILES * outputs
                from_points(written, bias, y, place, size, c, result + c, across * outputs, outputs, added, rectified)
