"""The sums of :mod:`clop.kernels.strided`, for numba's compiler.

Sixteen channels are one vector, to which a number adds a multiple of another vector; sixteen such sums are on the way
at a time, in registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from clop.kernels.stem import COLOURS
from clop.kernels.vectors import FLOATS, INT, LANES, Vectors, compiler_function

WIDE = 2 * LANES
"""Channels behind the second and the third convolution."""
AT_ONCE = 16
"""Sums."""


def _spreading(count: int, inputs: int) -> Any:
    """So many positions of a row of :func:`~clop.kernels.strided._windows` with an even column, and with ``odd`` those
    behind them too."""

    def spread(
        typing_context: Any,
        gradient: Any,
        weights: Any,
        back: Any,
        first: Any,
        line: Any,
        rows: Any,
        tap: Any,
        result: Any,
        odd: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(context, builder, signature, arguments)
            *_, first, line, rows, tap, result, odd = arguments

            def column(of_weights: int, later: int, behind: int, added: bool = False) -> None:
                """What a column of the weights gives to positions, by windows that many columns later."""
                window = builder.add(first, INT(later * WIDE))
                weight = builder.add(tap, INT(of_weights * WIDE * inputs))
                for (n, c), total in _totals(vectors, count, inputs, window, line, rows, weight).items():
                    offset = builder.add(result, INT((2 * n + behind) * inputs + c))
                    vectors.store(builder.fadd(vectors.load(2, offset), total) if added else total, 2, offset)

            column(1, 0, 0)
            with builder.if_then(odd):
                column(0, 1, 1)
                column(2, 0, 1, added=True)
            return context.get_dummy_value()

        return types.void(gradient, weights, back, *[types.int64] * 5, types.boolean), generate

    return compiler_function(spread)


def _totals(
    vectors: Vectors, count: int, inputs: int, window: Any, line: Any, rows: Any, weight: Any
) -> dict[tuple[int, int], Any]:
    """Sums over rows of windows and the channels of their gradient, by position and first channel; in registers."""
    builder = vectors.builder
    nothing = ir.Constant(FLOATS, None)
    channels = range(0, inputs, LANES)
    sums = {(n, c): cgutils.alloca_once(builder, FLOATS) for n in range(count) for c in channels}
    for total in sums.values():
        builder.store(nothing, total)
    with (
        cgutils.for_range_slice(builder, INT(0), rows, INT(1)) as (i, _),
        cgutils.for_range_slice(builder, INT(0), INT(WIDE), INT(1)) as (output, _),
    ):
        # The next row of windows is the one above; in it the row of the weights is the next but one.
        place = builder.add(builder.sub(window, builder.mul(i, line)), output)
        row = builder.add(builder.mul(i, INT(6 * WIDE)), output)
        first = builder.add(weight, builder.mul(row, INT(inputs)))
        each = {c: vectors.load(1, builder.add(first, INT(c))) for c in channels}
        for (n, c), total in sums.items():
            number = vectors.repeated(vectors.number(0, builder.add(place, INT(n * WIDE))))
            builder.store(vectors.multiply_add(each[c], number, builder.load(total)), total)
    return {place: builder.load(total) for place, total in sums.items()}


spread_one, spread_narrow = _spreading(1, LANES), _spreading(AT_ONCE, LANES)
spread_one_wide, spread_wide = _spreading(1, 2 * LANES), _spreading(AT_ONCE // 2, 2 * LANES)


def _convolving(count: int, inputs: int, outputs: int) -> Any:
    """So many positions of :func:`~clop.kernels.strided._convolve`."""

    def convolve(
        typing_context: Any,
        image: Any,
        weights: Any,
        bias: Any,
        y: Any,
        first: Any,
        line: Any,
        result: Any,
        rectified: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vectors = Vectors(context, builder, signature, arguments)
            *_, first, line, result, rectified = arguments
            nothing = ir.Constant(FLOATS, None)
            channels = range(0, outputs, LANES)
            sums = {(n, c): cgutils.alloca_once(builder, FLOATS) for n in range(count) for c in channels}
            for total in sums.values():
                builder.store(nothing, total)
            for row in range(3):
                window = builder.add(first, builder.mul(line, INT(row)))
                with cgutils.for_range_slice(builder, INT(0), INT(3 * inputs), INT(1)) as (k, _):
                    weight = builder.mul(builder.add(k, INT(row * 3 * inputs)), INT(outputs))
                    each = {c: vectors.load(1, builder.add(weight, INT(c))) for c in channels}
                    place = builder.add(window, k)
                    for (n, c), total in sums.items():
                        number = vectors.repeated(vectors.number(0, builder.add(place, INT(2 * n * inputs))))
                        builder.store(vectors.multiply_add(each[c], number, builder.load(total)), total)
            for (n, c), total in sums.items():
                biased = builder.fadd(builder.load(total), vectors.load(2, INT(c)))
                below = builder.fcmp_ordered("<=", biased, nothing)
                kept = builder.select(rectified, builder.select(below, nothing, biased), biased)
                vectors.store(kept, 3, builder.add(result, INT(n * outputs + c)))
            return context.get_dummy_value()

        return types.void(image, weights, bias, y, *[types.int64] * 3, types.boolean), generate

    return compiler_function(convolve)


convolve_colours, convolve_one_colours = (_convolving(count, COLOURS, LANES) for count in (AT_ONCE, 1))
convolve_narrow, convolve_one_narrow = (_convolving(count, LANES, WIDE) for count in (AT_ONCE // 2, 1))
convolve_wide, convolve_one_wide = (_convolving(count, WIDE, WIDE) for count in (AT_ONCE // 2, 1))


@compiler_function
def add_products(
    typing_context: Any,
    image: Any,
    gradient: Any,
    totals: Any,
    fetched: Any,
    place: Any,
    line: Any,
    step: Any,
    result: Any,
    ahead: Any,
    rows: Any,
    columns: Any,
) -> Any:
    """Eight channels of :func:`~clop.kernels.strided._correlate` at one place of all windows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, place, line, step, result, ahead, rows, columns = arguments
        channels = range(0, WIDE, LANES)
        places = {(k, c): builder.add(result, INT(k * WIDE + c)) for k in range(AT_ONCE // 2) for c in channels}
        sums = {key: cgutils.alloca_once(builder, FLOATS) for key in places}
        for key, total in sums.items():
            builder.store(vectors.load(2, places[key]), total)
        within = builder.sub(columns, INT(1))  # the last is of zeros
        with (
            cgutils.for_range_slice(builder, INT(0), rows, INT(1)) as (i, _),
            cgutils.for_range_slice(builder, INT(0), within, INT(1)) as (j, _),
        ):
            position = builder.add(builder.mul(i, columns), j)
            vectors.fetch(3, builder.add(ahead, builder.mul(position, INT(AT_ONCE // 2))))
            here = builder.mul(position, INT(WIDE))
            each = {c: vectors.load(1, builder.add(here, INT(c))) for c in channels}
            window = builder.add(place, builder.mul(builder.mul(i, INT(2)), line))
            number = builder.add(window, builder.mul(j, step))
            for (k, c), total in sums.items():
                repeated = vectors.repeated(vectors.number(0, builder.add(number, INT(k))))
                builder.store(vectors.multiply_add(each[c], repeated, builder.load(total)), total)
        for key, total in sums.items():
            vectors.store(builder.load(total), 2, places[key])
        return context.get_dummy_value()

    return types.void(image, gradient, totals, fetched, *[types.int64] * 7), generate


@compiler_function
def add_positions(typing_context: Any, gradient: Any, totals: Any, result: Any, positions: Any) -> Any:
    """Add all numbers of a gradient, by channel."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, result, positions = arguments
        for c in range(0, WIDE, LANES):
            place = builder.add(result, INT(c))
            total = cgutils.alloca_once(builder, FLOATS)
            builder.store(vectors.load(1, place), total)
            with cgutils.for_range_slice(builder, INT(0), positions, INT(1)) as (j, _):
                more = vectors.load(0, builder.add(builder.mul(j, INT(WIDE)), INT(c)))
                builder.store(builder.fadd(builder.load(total), more), total)
            vectors.store(builder.load(total), 1, place)
        return context.get_dummy_value()

    return types.void(gradient, totals, types.int64, types.int64), generate


@compiler_function
def clear(typing_context: Any, y: Any, gradient: Any, first: Any, result: Any, count: Any) -> Any:
    """One row of :func:`~clop.kernels.strided._let_through`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        *_, first, result, count = arguments
        nothing = ir.Constant(FLOATS, None)
        with cgutils.for_range_slice(builder, INT(0), count, INT(LANES)) as (k, _):
            place = builder.add(result, k)
            # As torch: not where it is not a number.
            below = builder.fcmp_ordered("<=", vectors.load(0, builder.add(first, k)), nothing)
            vectors.store(builder.select(below, nothing, vectors.load(1, place)), 1, place)
        return context.get_dummy_value()

    return types.void(y, gradient, *[types.int64] * 3), generate
