"""The loops of :mod:`clop.kernels.winograd`: image by image, with a border of zeros and channels innermost."""

from typing import Any

import numpy as np

from clop.kernels.jit import jit
from clop.kernels.pool import pool, unpool
from clop.kernels.stem import fill
from clop.kernels.strided import clear_border
from clop.kernels.strided_sums import clear
from clop.kernels.vectors import LANES, copy
from clop.kernels.winograd_sums import (
    POINTS,
    TILES,
    add_products_narrow,
    add_products_wide,
    from_points,
    gradient_to_points,
    products_narrow,
    products_wide,
    rectify,
    to_points,
    weights_to_points,
)

_SUM = 5
"""The point at which the gradient of a tile is the sum of its numbers."""


@jit
def pairs(x: Any, weights1: Any, bias1: Any, weights2: Any, bias2: Any, between: Any, y: Any, skip_relu: bool) -> None:
    """Residual pairs; ``between`` keeps the maps between of all images, or of one after the other."""
    count, height, width, channels = x.shape
    middle = weights1.shape[3]
    points1, points2 = _of_weights(weights1), _of_weights(weights2)
    image = np.zeros((height + 2, width + 2, channels), np.float32)
    read, written = _room(channels, middle), _room(channels, middle)
    line = width * channels
    for n in range(count):
        kept = min(n, len(between) - 1)
        if n == kept:
            clear_border(between[kept])
        for i in range(height):
            here, there = (n * height + i) * line, ((i + 1) * (width + 2) + 1) * channels
            rectify(x, image, here, there, line)
            if skip_relu:
                rectify(x, y, here, here, line)
            else:
                copy(x, here, y, here, line)
        inside = (width + 3) * middle
        _convolve(image, points1, bias1, between[kept], inside, width + 2, read, written, False, True)
        _convolve(between[kept], points2, bias2, y, n * height * line, width, read, written, True, False)


@jit
def pairs_back(
    x: Any,
    between: Any,
    gradient: Any,
    turned1: Any,
    turned2: Any,
    back: Any,
    totals1: Any,
    of_bias1: Any,
    totals2: Any,
    of_bias2: Any,
    skip_relu: bool,
) -> None:
    """The gradient of what pairs read; those of weights and biases are added to what is there."""
    count, height, width, channels = x.shape
    _, _, middle, _ = turned1.shape
    points1, points2 = _of_weights(turned1), _of_weights(turned2)
    image = np.zeros((height + 2, width + 2, channels), np.float32)
    behind = np.zeros((height + 2, width + 2, channels), np.float32)
    inner = np.zeros((height + 2, width + 2, middle), np.float32)
    nothing = np.zeros(max(channels, middle), np.float32)
    read, written = _room(channels, middle), _room(channels, middle)
    line = width * channels
    for n in range(count):
        first = n * height * line
        for i in range(height):
            here, there = first + i * line, ((i + 1) * (width + 2) + 1) * channels
            rectify(x, image, here, there, line)
        fill(behind, gradient, n)
        _correlate(between[n], behind, totals2, of_bias2, read, written)
        _convolve(behind, points2, nothing, inner, (width + 3) * middle, width + 2, read, written, False, False)
        clear(between[n], inner, 0, 0, inner.size)  # its border is zero already
        _correlate(image, inner, totals1, of_bias1, read, written)
        if skip_relu:  # what is added was rectified too
            copy(gradient, first, back, first, height * line)
            _convolve(inner, points1, nothing, back, first, width, read, written, True, False)
            clear(x, back, first, first, height * line)
        else:
            _convolve(inner, points1, nothing, back, first, width, read, written, False, False)
            clear(x, back, first, first, height * line)
            _add(gradient, back, first, height * line)


@jit
def pooled(x: Any, weights: Any, bias: Any, y: Any, places: Any) -> None:
    """Convolutions and their pools; ``places`` keeps those of all images, or of one after the other."""
    count, height, width, channels = x.shape
    outputs = weights.shape[3]
    points = _of_weights(weights)
    image = np.zeros((height + 2, width + 2, channels), np.float32)
    convolved = np.empty((1, height, width, outputs), np.float32)
    read, written = _room(channels, outputs), _room(channels, outputs)
    for n in range(count):
        kept = min(n, len(places) - 1)
        fill(image, x, n)
        _convolve(image, points, bias, convolved, 0, width, read, written, False, False)
        pool(convolved, y[n : n + 1], places[kept : kept + 1])


@jit
def pooled_back(x: Any, gradient: Any, places: Any, turned: Any, back: Any, totals: Any, of_bias: Any) -> None:
    """The gradient of what they read; those of weights and bias are added to what is there."""
    count, height, width, channels = x.shape
    outputs = turned.shape[2]
    points = _of_weights(turned)
    image = np.zeros((height + 2, width + 2, channels), np.float32)
    behind = np.zeros((height + 2, width + 2, outputs), np.float32)
    unpooled = np.empty((1, height, width, outputs), np.float32)
    nothing = np.zeros(channels, np.float32)
    read, written = _room(channels, outputs), _room(channels, outputs)
    for n in range(count):
        fill(image, x, n)
        unpool(gradient[n : n + 1], places[n : n + 1], unpooled)
        fill(behind, unpooled, 0)
        _correlate(image, behind, totals, of_bias, read, written)
        _convolve(behind, points, nothing, back, n * height * width * channels, width, read, written, False, False)


@jit
def _room(channels: int, others: int) -> Any:
    """For all tiles that are computed together, at all points."""
    return np.zeros(POINTS * TILES * max(channels, others), np.float32)


@jit
def _add(x: Any, y: Any, first: int, count: int) -> None:
    numbers, sums = x.reshape(-1)[first : first + count], y.reshape(-1)[first : first + count]
    for k in range(count):
        sums[k] += numbers[k]


@jit
def _of_weights(weights: Any) -> Any:
    """What tiles are multiplied by: at each point (inputs, outputs)."""
    _, _, inputs, outputs = weights.shape
    points, size = np.empty((POINTS, inputs, outputs), np.float32), inputs * outputs
    for place in range(0, size, LANES):
        weights_to_points(weights, points, place, 3 * size, size, place, size)
    return points


@jit
def _read_tiles(image: Any, read: Any, start: int, count: int) -> None:
    """So many tiles of an image from one on, at all points."""
    _, width, inputs = image.shape
    columns = width // 2 - 1
    for tile in range(count):
        i, j = (start + tile) // columns, (start + tile) % columns
        window = 2 * (i * width + j) * inputs
        for c in range(0, inputs, LANES):
            to_points(image, read, window + c, width * inputs, inputs, tile * inputs + c, TILES * inputs)


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
    """One image, to lines of ``y`` that are ``across`` positions long, from the number ``first`` on."""
    height, width, inputs = image.shape
    rows, columns, outputs = height // 2 - 1, width // 2 - 1, points.shape[2]
    half = TILES // 2
    for start in range(0, rows * columns, TILES):
        count = min(TILES, rows * columns - start)
        _read_tiles(image, read, start, count)  # behind them are others, whose products nobody reads
        for point in range(POINTS):
            here, there, weight = point * TILES * inputs, point * TILES * outputs, point * inputs * outputs
            for c in range(0, outputs - LANES, 2 * LANES):
                place, result = weight + c, there + c
                products_wide(read, points, written, here, inputs, place, outputs, result)
                products_wide(
                    read, points, written, here + half * inputs, inputs, place, outputs, result + half * outputs
                )
            if outputs % (2 * LANES):
                c = outputs - LANES
                products_narrow(read, points, written, here, inputs, weight + c, outputs, there + c)
        for tile in range(count):
            i, j = (start + tile) // columns, (start + tile) % columns
            result = first + 2 * (i * across + j) * outputs
            for c in range(0, outputs, LANES):
                place, size = tile * outputs + c, TILES * outputs
                from_points(written, bias, y, place, size, c, result + c, across * outputs, outputs, added, rectified)


@jit
def _correlate(image: Any, gradient: Any, totals: Any, of_bias: Any, read: Any, written: Any) -> None:
    """Add what one image, and the gradient of what was made of it, give to the gradients of weights and bias."""
    height, width, inputs = image.shape
    outputs = gradient.shape[2]
    rows, columns = height // 2 - 1, width // 2 - 1
    half = LANES // 2
    for start in range(0, rows * columns, TILES):
        count = min(TILES, rows * columns - start)
        _read_tiles(image, read, start, count)
        for tile in range(count):
            i, j = (start + tile) // columns, (start + tile) % columns
            window = ((2 * i + 1) * width + 2 * j + 1) * outputs
            for c in range(0, outputs, LANES):
                place, size = tile * outputs + c, TILES * outputs
                gradient_to_points(gradient, written, window + c, width * outputs, outputs, place, size)
        for point in range(POINTS):
            here, there, total = point * TILES * inputs, point * TILES * outputs, point * inputs * outputs
            for c in range(0, outputs - LANES, 2 * LANES):
                for k in range(0, inputs, half):
                    result = total + k * outputs + c
                    add_products_wide(read, written, totals, here + k, inputs, there + c, outputs, result, count)
            if outputs % (2 * LANES):
                c = outputs - LANES
                for k in range(0, inputs, LANES):
                    result = total + k * outputs + c
                    add_products_narrow(read, written, totals, here + k, inputs, there + c, outputs, result, count)
        there = _SUM * TILES * outputs
        for tile in range(count):
            for c in range(outputs):
                of_bias[c] += written[there + tile * outputs + c]
