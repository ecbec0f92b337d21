"""Move the positions of feature maps by permutations: the compiled loop behind ``torch.ops.clop.permute`` on the CPU.

It is a copy in another order, and memory bandwidth is its limit. Four things keep it near: values move as machine
words of the largest size that fits, whatever their dtype, and where possible as whole vectors (see
:mod:`clop.kernels.shuffle`); maps with channels innermost are read in order and written
scattered, which is faster than the reverse; and the loop runs on the threads torch already has. A second pool would
fight with torch's, whose threads spin for a while after each operation.
"""

import ctypes
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import carray, types  # type: ignore[attr-defined]
from torch import Tensor

from clop.kernels.jit import callback, jit
from clop.kernels.shuffle import VECTOR, plan, plan_of_four, shuffle_rows, shuffle_rows_of_four, shuffles
from clop.kernels.vectors import compiler_function

_PARALLEL_FROM = 1 << 19  # bytes; below, waking threads costs more than it saves
_CHUNK = 1 << 18  # bytes of map that a thread takes at a time; it begins by reading the permutation

_STEPS = 6  # vectors that a vector of the result comes from, on average; with more, single words are as fast


class _Task(ctypes.Structure):
    """What the loop reads, eleven 64-bit words.

    The map is (outer, positions, inner) words; row ``o`` is moved by permutation ``o // repeat % count``. Threads take
    ``chunk`` rows at a time and count them in ``next``.
    """

    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            *("source", "target", "permutations"),
            *("outer", "positions", "inner", "repeat", "count"),
            *("inverse", "chunk", "next"),
        )
    ]


def permute(x: Tensor, permutations: Tensor, inverse: bool) -> Tensor:
    """``y[n, c, k] = x[n, c, p[n, c, k]]`` over flattened positions; ``inverse`` undoes that.

    Args:
        x: Maps on the CPU, of any dtype, dense; channels innermost only where all share a permutation.
        permutations: int64 of shape (N or 1, C or 1, positions), contiguous.
        inverse: ``y[n, c, p[n, c, k]] = x[n, c, k]`` instead.
    """
    if permutations.dtype != torch.int64 or not permutations.is_contiguous():
        raise _refused(x.shape, permutations.shape, permutations.dtype)
    way = _way(x.shape, permutations.shape, x.element_size(), x.is_contiguous())
    y = torch.empty_like(x)
    threads = torch.get_num_threads() if way.rows * way.row_bytes >= _PARALLEL_FROM else 1
    # A chunk begins with a copy of the permutation in another type, which one thread alone need not repeat.
    chunk = max(1, _CHUNK // max(1, way.row_bytes)) if threads > 1 else max(1, way.rows)
    task = _Task(x.data_ptr(), y.data_ptr(), permutations.data_ptr(), *way.task, inverse, chunk, 0)
    if threads > 1 and (team := openmp_team()) is not None:
        team(way.loop.address, ctypes.addressof(task), threads, 0)
    else:
        way.loop.call(ctypes.addressof(task))
    return y


class _Way(NamedTuple):
    """How maps of one shape are moved."""

    loop: "_Loop"
    rows: int
    row_bytes: int
    task: tuple[int, ...]  # outer, positions, inner, repeat and count of a _Task


@functools.lru_cache(maxsize=256)  # to work it out takes 1 µs, a tenth of what moving a small map does
def _way(shape: tuple[int, ...], sharing: tuple[int, ...], item: int, contiguous: bool) -> _Way:
    n, c = shape[:2]
    samples, channels, positions = sharing
    if samples not in (1, n) or channels not in (1, c) or positions != math.prod(shape[2:]):  # the loop trusts them
        raise _refused(shape, sharing, torch.int64)
    if contiguous:
        rows, inner, repeat = n * c, item, c if channels == 1 else 1
    else:
        assert channels == 1, "with channels innermost, whole positions move"
        rows, inner, repeat = n, c * item, 1
    word = min(8, inner & -inner)  # bytes, the largest power of two that divides
    count = samples * channels
    whole = positions > 0 and positions * word % VECTOR == 0
    by_vectors = count == 1 and inner == word and whole and shuffles(word)
    loop = _shuffler(word) if by_vectors else _mover(word)
    return _Way(loop, rows, positions * inner, (rows, positions, inner // word, repeat, count))


def _refused(shape: tuple[int, ...], sharing: tuple[int, ...], dtype: torch.dtype) -> ValueError:
    return ValueError(
        f"permutations of maps {tuple(shape)}: expected contiguous int64 of shape (N or 1, C or 1, positions), "
        f"got {dtype} {tuple(sharing)}"
    )


class _Loop(NamedTuple):
    """A compiled loop over a :class:`_Task`."""

    compiled: Any  # kept, or its code is freed
    address: int
    call: Callable[[int], None]

    @classmethod
    def of(cls, compiled: Any) -> "_Loop":
        # What numba offers as a function of ctypes takes twice as long to call.
        return cls(compiled, compiled.address, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(compiled.address))


@functools.cache
def openmp_team() -> Callable[..., None] | None:
    """``GOMP_parallel(function, argument, threads, flags)`` of the OpenMP torch brings; None if that is another."""
    for library in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*"):
        try:
            team = ctypes.CDLL(str(library)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        team.argtypes, team.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
        return team
    return None


@compiler_function
def _take_ticket(typing_context: Any, words: Any) -> Any:
    """Count ``_Task.next`` up and return what it was, in one indivisible step."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = builder.gep(arguments[0], [context.get_constant(types.intp, 10)])
        return builder.atomic_rmw("add", counter, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(words), generate


@compiler_function
def _pointer(typing_context: Any, address: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(word.instance_type)(types.int64, word), generate


_WORDS = {1: types.uint8, 2: types.uint16, 4: types.uint32, 8: types.uint64}  # by their bytes


@functools.cache
def _shuffler(word_size: int) -> _Loop:
    """The loop over a :class:`_Task` with one permutation of rows that fill whole vectors, compiled on first use."""
    word = _WORDS[word_size]

    @callback
    def move(words: Any) -> None:
        task = carray(words, 11)
        outer, positions, inverse, chunk = task[3], task[4], task[8] != 0, task[9]
        source = carray(_pointer(task[0], word), (outer, positions))
        target = carray(_pointer(task[1], word), (outer, positions))
        permutation = carray(_pointer(task[2], types.uint64), positions)
        index = np.empty(positions, np.uint32)
        for k in range(positions):
            if inverse:
                index[permutation[k]] = k
            else:
                index[k] = permutation[k]
        four = positions * word_size == 4 * VECTOR
        if four:
            place, second = plan_of_four(index, source.dtype)
        else:
            within, starts, sources, masks = plan(index, source.dtype)
            few_steps = starts[-1] <= _STEPS * (len(starts) - 1)
        while True:
            row = _take_ticket(words) * chunk
            end = min(row + chunk, outer)
            if row >= end:
                return
            if four:
                shuffle_rows_of_four(source[row:end], target[row:end], place, second)
            elif few_steps:
                shuffle_rows(source[row:end], target[row:end], within, starts, sources, masks)
            else:
                _gather_words(source[row:end], target[row:end], index)

    return _Loop.of(move)


@functools.cache
def _mover(word_size: int) -> _Loop:
    """The loop over a :class:`_Task` for words of this many bytes, compiled on first use."""
    word, pair = _WORDS[word_size], _WORDS[min(8, 2 * word_size)]
    bits = np.uint64(8 * word_size)

    @callback
    def move(words: Any) -> None:
        task = carray(words, 11)
        outer, positions, inner, repeat, count = task[3], task[4], task[5], task[6], task[7]
        inverse, chunk = task[8] != 0, task[9]
        source = carray(_pointer(task[0], word), (outer, positions, inner))
        target = carray(_pointer(task[1], word), (outer, positions, inner))
        # Where inner is 1. A slice of the above would have strides that the compiler does not know.
        source_rows = carray(_pointer(task[0], word), (outer, positions))
        target_rows = carray(_pointer(task[1], word), (outer, positions))
        pairs = carray(_pointer(task[1], pair), (outer, positions // 2))
        permutations = carray(_pointer(task[2], types.uint64), (count, positions))
        index = np.empty(positions, np.uint32)  # half the size of the permutation: more of the map stays in the cache
        while True:
            row = _take_ticket(words) * chunk
            end = min(row + chunk, outer)
            if row >= end:
                return
            while row < end:
                group = row // repeat
                stop = end if count == 1 else min(end, (group + 1) * repeat)
                permutation = permutations[group % count]
                for k in range(positions):
                    if (inner == 1) == inverse:
                        index[permutation[k]] = k
                    else:
                        index[k] = permutation[k]
                if inner > 1:
                    _scatter_blocks(source[row:stop], target[row:stop], index)
                elif word_size < 8 and positions % 2 == 0:
                    _gather_pairs(source_rows[row:stop], pairs[row:stop], index, bits)
                else:
                    _gather_words(source_rows[row:stop], target_rows[row:stop], index)
                row = stop

    return _Loop.of(move)


@jit
def _gather_pairs(source: Any, target: Any, index: Any, bits: Any) -> None:
    """Write two words at a time, since stores are the bottleneck; two rows share the reading of the index."""
    rows, half = target.shape
    for row in range(0, rows - 1, 2):
        s0, s1, t0, t1 = source[row], source[row + 1], target[row], target[row + 1]
        for k in range(half):
            p, q = index[2 * k], index[2 * k + 1]
            t0[k] = s0[p] | (target.dtype.type(s0[q]) << bits)
            t1[k] = s1[p] | (target.dtype.type(s1[q]) << bits)
    if rows % 2:
        s, t = source[rows - 1], target[rows - 1]
        for k in range(half):
            t[k] = s[index[2 * k]] | (target.dtype.type(s[index[2 * k + 1]]) << bits)


@jit
def _gather_words(source: Any, target: Any, index: Any) -> None:
    rows, positions = target.shape
    for row in range(rows):
        for k in range(positions):
            target[row, k] = source[row, index[k]]


@jit
def _scatter_blocks(source: Any, target: Any, index: Any) -> None:
    rows, positions, inner = source.shape
    for row in range(rows):
        for k in range(positions):
            s, t = source[row, k], target[row, index[k]]
            for i in range(inner):
                t[i] = s[i]
