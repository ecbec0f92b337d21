"""Move rows of words by shuffles of whole vectors, on processors with AVX-512.

Word by word, a row of 64 floats takes 64 loads. But the 64 bytes of a vector of the result come from few vectors of the
row, its own and those of neighbouring positions, and one instruction puts the words of one of them where they belong.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from clop.kernels.jit import jit
from clop.kernels.vectors import INT, compiler_function, has_feature

VECTOR = 64  # bytes
_ROWS = 4  # that share the reading of a step; more, and maps of 32×32 fall out of the nearest cache
_FROM_ONE = {2: "hi", 4: "si", 8: "di"}  # by bytes of a word: llvm.x86.avx512.permvar.….512
_FROM_TWO = {2: "hi", 4: "d", 8: "q"}  # llvm.x86.avx512.vpermi2var.….512


def shuffles(word_size: int) -> bool:
    """Whether words of this many bytes can be moved so, by the code that numba makes on this machine."""
    return word_size in _FROM_ONE and has_feature("avx512bw")


@jit
def plan(index: Any, word: Any) -> tuple[Any, Any, Any, Any]:
    """Which vectors of a row each vector of the result is made of.

    Args:
        index: Position that each position of the result is read from, as many as fill whole vectors.
        word: Type of a word.

    Returns:
        For each word the place in the vector it comes from; where the steps of each vector of the result begin, and
        those of the last end; for each step the first position of the vector that is read, and a bit for each word that
        it gives.
    """
    within = np.empty(len(index), word)
    lanes = VECTOR // within.itemsize
    vectors = len(index) // lanes
    starts = np.zeros(vectors + 1, np.int64)
    sources = np.empty(len(index), np.int64)
    masks = np.zeros(len(index), np.uint64)
    latest = np.full(vectors, -1)  # the last step that reads each vector
    end = 0
    for vector in range(vectors):
        start = end
        for lane in range(lanes):
            k = vector * lanes + lane
            place = np.uint64(index[k])
            within[k] = place % np.uint64(lanes)
            source = place // np.uint64(lanes)
            # Without a branch, which the processor could not guess.
            new = latest[source] < start
            step = end if new else latest[source]
            end += new
            latest[source] = step
            sources[step] = source * np.uint64(lanes)
            masks[step] |= np.uint64(1) << np.uint64(lane)
        starts[vector + 1] = end
    return within, starts, sources, masks


@jit
def shuffle_rows(source: Any, target: Any, within: Any, starts: Any, sources: Any, masks: Any) -> None:
    """Move the words of each row, (rows, positions) to the same, by what :func:`plan` returned."""
    rows, positions = target.shape
    lanes = VECTOR // target.itemsize
    whole = rows - rows % _ROWS
    for row in range(0, whole, _ROWS):
        for vector in range(positions // lanes):
            start, end = starts[vector], starts[vector + 1]
            _shuffle_four(source, target, row, vector * lanes, within, sources, masks, start, end)
    for row in range(whole, rows):
        for vector in range(positions // lanes):
            start, end = starts[vector], starts[vector + 1]
            _shuffle_one(source, target, row, vector * lanes, within, sources, masks, start, end)


@jit
def plan_of_four(index: Any, word: Any) -> tuple[Any, Any]:
    """For rows of four vectors: each word's place in the half it comes from, and a bit where that is the second."""
    within = np.empty(len(index), word)
    lanes = len(index) // 4
    masks = np.zeros(4, np.uint64)
    for k in range(len(index)):
        within[k] = index[k] % (2 * lanes)
        masks[k // lanes] |= np.uint64(index[k] >= 2 * lanes) << np.uint64(k % lanes)
    return within, masks


@compiler_function
def shuffle_rows_of_four(typing_context: Any, source: Any, target: Any, within: Any, masks: Any) -> Any:
    """Move the words of each row by what :func:`plan_of_four` returned: a row is read once and stays in registers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = zip(signature.args, arguments, strict=True)
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in kinds]
        bits = signature.args[0].dtype.bitwidth
        lanes = 8 * VECTOR // bits
        vector, bit_of_each = ir.VectorType(ir.IntType(bits), lanes), ir.VectorType(ir.IntType(1), lanes)
        name = f"llvm.x86.avx512.vpermi2var.{_FROM_TWO[bits // 8]}.512"
        permute = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)

        def place(array: int, offset: Any) -> Any:
            return builder.bitcast(builder.gep(arrays[array].data, [offset]), vector.as_pointer())

        def load(array: int, offset: Any) -> Any:
            loaded = builder.load(place(array, offset))
            loaded.align = bits // 8
            return loaded

        def mask(number: int) -> Any:
            word = builder.load(builder.gep(arrays[3].data, [INT(number)]))
            return builder.bitcast(builder.trunc(word, ir.IntType(lanes)), bit_of_each)

        orders, seconds = [load(2, INT(lanes * i)) for i in range(4)], [mask(i) for i in range(4)]
        rows = cgutils.unpack_tuple(builder, arrays[0].shape)[0]
        with cgutils.for_range(builder, rows) as loop:
            places = [builder.add(builder.mul(loop.index, INT(4 * lanes)), INT(lanes * i)) for i in range(4)]
            a, b, c, d = (load(0, k) for k in places)
            for k, order, second in zip(places, orders, seconds, strict=True):
                first_half, second_half = builder.call(permute, [a, order, b]), builder.call(permute, [c, order, d])
                builder.store(builder.select(second, second_half, first_half), place(1, k)).align = bits // 8
        return context.get_dummy_value()

    return types.void(source, target, within, masks), generate


def _shuffle(rows: int) -> Any:
    """One vector of the result, at position ``k``, in this many rows from ``row`` on; see :func:`shuffle_rows`."""

    def shuffle(
        typing_context: Any,
        source: Any,
        target: Any,
        row: Any,
        k: Any,
        within: Any,
        sources: Any,
        masks: Any,
        start: Any,
        end: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def array(number: int) -> Any:
                return context.make_array(signature.args[number])(context, builder, arguments[number])

            bits = signature.args[0].dtype.bitwidth
            lanes = 8 * VECTOR // bits
            vector = ir.VectorType(ir.IntType(bits), lanes)
            name = f"llvm.x86.avx512.permvar.{_FROM_ONE[bits // 8]}.512"
            permute = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector, vector]), name)

            def place(words: Any, offset: Any) -> Any:
                return builder.bitcast(builder.gep(words, [offset]), vector.as_pointer())

            def load(words: Any, offset: Any) -> Any:
                loaded = builder.load(place(words, offset))
                loaded.align = bits // 8
                return loaded

            _, _, row, k, _, _, _, start, end = arguments
            positions = cgutils.unpack_tuple(builder, array(0).shape)[1]
            offsets = [builder.mul(builder.add(row, row.type(i)), positions) for i in range(rows)]
            order = load(array(4).data, k)
            results = [cgutils.alloca_once_value(builder, order) for _ in offsets]
            with cgutils.for_range_slice(builder, start, end, start.type(1)) as (step, _):
                first = builder.load(builder.gep(array(5).data, [step]))
                mask = builder.trunc(builder.load(builder.gep(array(6).data, [step])), ir.IntType(lanes))
                mask = builder.bitcast(mask, ir.VectorType(ir.IntType(1), lanes))
                for offset, result in zip(offsets, results, strict=True):
                    moved = builder.call(permute, [load(array(0).data, builder.add(offset, first)), order])
                    builder.store(builder.select(mask, moved, builder.load(result)), result)
            for offset, result in zip(offsets, results, strict=True):
                builder.store(builder.load(result), place(array(1).data, builder.add(offset, k))).align = bits // 8
            return context.get_dummy_value()

        arrays = source, target, types.int64, types.int64, within, sources, masks, types.int64, types.int64
        return types.void(*arrays), generate

    return compiler_function(shuffle)


_shuffle_four, _shuffle_one = _shuffle(_ROWS), _shuffle(1)
