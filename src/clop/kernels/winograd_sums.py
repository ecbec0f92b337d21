"""The sums of :mod:`clop.kernels.winograd`, for numba's compiler: sixteen channels are one vector.

A tile is two by two positions of a result; sixteen numbers of what is read, four by four, decide it.
"""

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


def _store_points(vectors: Vectors, numbers: list[list[Any]], first: Any, size: Any) -> None:
    """Sixteen vectors of a tile to the array of the points, ``size`` apart."""
    for point in range(POINTS):
        place = vectors.builder.add(first, vectors.builder.mul(size, INT(point)))
        vectors.store(numbers[point // 4][point % 4], 1, place)


@compiler_function
def to_points(
    typing_context: Any, image: Any, points: Any, first: Any, line: Any, step: Any, tile: Any, size: Any
) -> Any:
    """What four by four vectors at ``first`` are to a tile's products: vectors at ``tile``, ``size`` apart."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, first, line, step, tile, size = arguments

        def transform(x: list[Any]) -> list[Any]:
            return [
                builder.fsub(x[0], x[2]),
                builder.fadd(x[1], x[2]),
                builder.fsub(x[2], x[1]),
                builder.fsub(x[1], x[3]),
            ]

        numbers = [[vectors.load(0, _place(builder, first, line, i, step, j)) for j in range(4)] for i in range(4)]
        _store_points(vectors, _both_ways(transform, numbers), tile, size)
        return context.get_dummy_value()

    return types.void(image, points, *[types.int64] * 5), generate


@compiler_function
def weights_to_points(
    typing_context: Any, weights: Any, points: Any, first: Any, step: Any, place: Any, size: Any
) -> Any:
    """What three by three vectors of weights, ``step`` apart, are to a tile's products; the halves are in here."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, first, step, place, size = arguments
        half = ir.Constant(FLOATS, [0.5] * LANES)

        def transform(x: list[Any]) -> list[Any]:
            ends = builder.fadd(x[0], x[2])
            return [
                x[0],
                builder.fmul(half, builder.fadd(ends, x[1])),
                builder.fmul(half, builder.fsub(ends, x[1])),
                x[2],
            ]

        row = builder.mul(step, INT(3))
        numbers = [[vectors.load(0, _place(builder, first, row, i, step, j)) for j in range(3)] for i in range(3)]
        _store_points(vectors, _both_ways(transform, numbers), place, size)
        return context.get_dummy_value()

    return types.void(weights, points, *[types.int64] * 4), generate


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


@compiler_function
def gradient_to_points(
    typing_context: Any, gradient: Any, points: Any, first: Any, line: Any, step: Any, tile: Any, size: Any
) -> Any:
    """What the gradient of a tile, two by two vectors at ``first``, is at the points; see :func:`to_points`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, first, line, step, tile, size = arguments
        nothing = ir.Constant(FLOATS, None)

        def transform(x: list[Any]) -> list[Any]:
            return [x[0], builder.fadd(x[0], x[1]), builder.fsub(x[0], x[1]), builder.fsub(nothing, x[1])]

        numbers = [[vectors.load(0, _place(builder, first, line, i, step, j)) for j in range(2)] for i in range(2)]
        _store_points(vectors, _both_ways(transform, numbers), tile, size)
        return context.get_dummy_value()

    return types.void(gradient, points, *[types.int64] * 5), generate
