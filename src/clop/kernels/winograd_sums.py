"""The sums of :mod:`clop.kernels.winograd`, for numba's compiler: sixteen channels are one vector.

A tile is two by two positions of a result; sixteen numbers of what is read, four by four, decide it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from clop.kernels.vectors import FLOATS, INT, LANES, Vectors, compiler_function

TILES = 16
"""Tiles that are computed together."""
POINTS = 16
"""Numbers of a tile between its two transforms, four by four."""


def _both_ways(transform: Any, numbers: list[list[Any]]) -> list[list[Any]]:
    """The transform of each column, and then of each row."""
    columns = [transform(list(column)) for column in zip(*numbers, strict=True)]
    return [transform(list(row)) for row in zip(*columns, strict=True)]


def _place(builder: Any, first: Any, line: Any, i: int, step: Any, j: int) -> Any:
    return builder.add(first, builder.add(builder.mul(line, INT(i)), builder.mul(step, INT(j))))


def _to_points(width: int, transform: Callable[[Any, list[Any]], list[Any]]) -> Any:
    """So many by so many vectors at ``first``, ``line`` and ``step`` apart, to a tile's points, ``size`` apart."""

    def to_points(
        typing_context: Any, source: Any, points: Any, first: Any, line: Any, step: Any, tile: Any, size: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(context, builder, signature, arguments)
            *_, first, line, step, tile, size = arguments
            numbers = [
                [vectors.load(0, _place(builder, first, line, i, step, j)) for j in range(width)] for i in range(width)
            ]
            transformed = _both_ways(partial(transform, builder), numbers)
            for point in range(POINTS):
                place = builder.add(tile, builder.mul(size, INT(point)))
                vectors.store(transformed[point // 4][point % 4], 1, place)
            return context.get_dummy_value()

        return types.void(source, points, *[types.int64] * 5), generate

    return compiler_function(to_points)


def _of_numbers(builder: Any, x: list[Any]) -> list[Any]:
    return [builder.fsub(x[0], x[2]), builder.fadd(x[1], x[2]), builder.fsub(x[2], x[1]), builder.fsub(x[1], x[3])]


def _of_weights(builder: Any, x: list[Any]) -> list[Any]:
    half, ends = ir.Constant(FLOATS, [0.5] * LANES), builder.fadd(x[0], x[2])
    sums = builder.fadd(ends, x[1]), builder.fsub(ends, x[1])
    return [x[0], *(builder.fmul(half, each) for each in sums), x[2]]


def _of_gradient(builder: Any, x: list[Any]) -> list[Any]:
    nothing = ir.Constant(FLOATS, None)
    return [x[0], builder.fadd(x[0], x[1]), builder.fsub(x[0], x[1]), builder.fsub(nothing, x[1])]


to_points, weights_to_points, gradient_to_points = (
    _to_points(4, _of_numbers),
    _to_points(3, _of_weights),
    _to_points(2, _of_gradient),
)


@compiler_function
def from_points(
    typing_context: Any,
    points: Any,
    bias: Any,
    y: Any,
    tile: Any,
    size: Any,
    channel: Any,
    first: Any,
    line: Any,
    step: Any,
    added: Any,
    rectified: Any,
) -> Any:
    """A tile's two by two vectors, to ``first`` and beside and below it; added to what is there, or rectified."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, tile, size, channel, first, line, step, added, rectified = arguments
        nothing = ir.Constant(FLOATS, None)

        def transform(x: list[Any]) -> list[Any]:
            return [builder.fadd(builder.fadd(x[0], x[1]), x[2]), builder.fsub(builder.fsub(x[1], x[2]), x[3])]

        row = builder.mul(size, INT(4))
        numbers = [[vectors.load(0, _place(builder, tile, row, i, size, j)) for j in range(4)] for i in range(4)]
        transformed = _both_ways(transform, numbers)
        offset = vectors.load(1, channel)
        for i in range(2):
            for j in range(2):
                place = _place(builder, first, line, i, step, j)
                total = builder.fadd(transformed[i][j], offset)
                below = builder.fcmp_ordered("<=", total, nothing)
                total = builder.select(rectified, builder.select(below, nothing, total), total)
                before = builder.select(added, vectors.load(2, place), nothing)
                vectors.store(builder.fadd(before, total), 2, place)
        return context.get_dummy_value()

    return types.void(points, bias, y, *[types.int64] * 6, types.boolean, types.boolean), generate


@compiler_function
def rectify(typing_context: Any, source: Any, target: Any, first: Any, result: Any, count: Any) -> Any:
    """Copy so many numbers, a multiple of sixteen, those below zero as zeros."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, first, result, count = arguments
        nothing = ir.Constant(FLOATS, None)
        with cgutils.for_range_slice(builder, INT(0), count, INT(LANES)) as (k, _):
            number = vectors.load(0, builder.add(first, k))
            below = builder.fcmp_ordered("<=", number, nothing)  # as torch: not what is not a number
            vectors.store(builder.select(below, nothing, number), 1, builder.add(result, k))
        return context.get_dummy_value()

    return types.void(source, target, *[types.int64] * 3), generate


def _products(tiles: int, wide: int) -> Any:
    """The products of so many tiles at one point, for so many vectors of results; their sums stay in registers."""

    def products(
        typing_context: Any,
        read: Any,
        weights: Any,
        written: Any,
        first: Any,
        inputs: Any,
        weight: Any,
        outputs: Any,
        result: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(context, builder, signature, arguments)
            *_, first, inputs, weight, outputs, result = arguments
            places = [builder.add(first, builder.mul(inputs, INT(n))) for n in range(tiles)]
            sums = {(n, c): cgutils.alloca_once(builder, FLOATS) for n in range(tiles) for c in range(wide)}
            for total in sums.values():
                builder.store(ir.Constant(FLOATS, None), total)
            with cgutils.for_range_slice(builder, INT(0), inputs, INT(1)) as (k, _):
                row = builder.add(weight, builder.mul(k, outputs))
                each = [vectors.load(1, builder.add(row, INT(c * LANES))) for c in range(wide)]
                for n, place in enumerate(places):
                    number = vectors.repeated(vectors.number(0, builder.add(place, k)))
                    for c in range(wide):
                        more = vectors.multiply_add(each[c], number, builder.load(sums[n, c]))
                        builder.store(more, sums[n, c])
            for (n, c), total in sums.items():
                there = builder.add(result, builder.add(builder.mul(outputs, INT(n)), INT(c * LANES)))
                vectors.store(builder.load(total), 2, there)
            return context.get_dummy_value()

        return types.void(read, weights, written, *[types.int64] * 5), generate

    return compiler_function(products)


products_narrow, products_wide = _products(TILES, 1), _products(TILES // 2, 2)


def _adding_products(inputs: int, wide: int) -> Any:
    """The products of so many channels with so many vectors of a gradient, of ``count`` tiles at one point."""

    def add_products(
        typing_context: Any,
        read: Any,
        written: Any,
        totals: Any,
        first: Any,
        across: Any,
        place: Any,
        outputs: Any,
        result: Any,
        count: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(context, builder, signature, arguments)
            *_, first, across, place, outputs, result, count = arguments
            places = {
                (k, c): builder.add(result, builder.add(builder.mul(outputs, INT(k)), INT(c * LANES)))
                for k in range(inputs)
                for c in range(wide)
            }
            sums = {key: cgutils.alloca_once_value(builder, vectors.load(2, there)) for key, there in places.items()}
            with cgutils.for_range_slice(builder, INT(0), count, INT(1)) as (tile, _):
                number, row = (builder.add(a, builder.mul(tile, b)) for a, b in ((first, across), (place, outputs)))
                each = [vectors.load(1, builder.add(row, INT(c * LANES))) for c in range(wide)]
                for k in range(inputs):
                    repeated = vectors.repeated(vectors.number(0, builder.add(number, INT(k))))
                    for c in range(wide):
                        more = vectors.multiply_add(each[c], repeated, builder.load(sums[k, c]))
                        builder.store(more, sums[k, c])
            for key, there in places.items():
                vectors.store(builder.load(sums[key]), 2, there)
            return context.get_dummy_value()

        return types.void(read, written, totals, *[types.int64] * 6), generate

    return compiler_function(add_products)


add_products_narrow, add_products_wide = _adding_products(LANES, 1), _adding_products(LANES // 2, 2)
