"""Draw permutations from a seed: the compiled loop behind :func:`clop.functional.sample_permutation`.

Drawing is a pure function of a 64-bit seed. Random words come from SplitMix64 (Steele, Lea and Flood, 2014) used as
a counter-based generator: permutation ``i`` reads the words ``mix(key_i + j * GOLDEN)`` for j = 1, 2, … with the key
``key_i = mix(seed + (i + 1) * GOLDEN)``. Only integer arithmetic is involved, alpha becoming an integer exactly, so
a seed means the same permutation on every platform.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clop.kernels.jit import jit

Integers = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw(seed: int, size: tuple[int, ...], num: tuple[int, ...], alpha: float, variant: str, local: bool) -> Integers:
    """Permutations of the positions of a map; ``num`` is the shape of their array before the positions."""
    partners, counts = _partners(size, variant)
    permutations = np.empty((*num, len(counts)), np.int64)
    sweeps = variant == "raster"
    _draw(seed, partners, counts, 0.5 * alpha if sweeps else alpha, sweeps, local, permutations)
    return permutations


@functools.lru_cache(maxsize=64)
def _partners(size: tuple[int, ...], variant: str) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """The positions each position may swap with, (positions, 2 * dims), and how many of them to draw from.

    ``paper`` draws among the direct neighbours inside the map. The other two draw among all directions, where one
    that leads nowhere is the position itself: ``clamp`` when it leaves the map, ``raster`` when it leaves the flattened
    map or reaches position 0, so that there the end of a row and the start of the next are neighbours.

    The numbers are small ones, since the maps leave little of the caches.
    """
    positions = int(np.prod(size))
    here = np.arange(positions)
    coordinates = np.indices(size).reshape(len(size), positions)
    targets, valid = [], []
    stride = 1
    for axis in reversed(range(len(size))):
        for step in (-1, 1):
            target = here + step * stride
            moved = coordinates[axis] + step
            targets.append(target)
            if variant == "raster":
                valid.append((target > 0) & (target < positions))
            else:
                valid.append((moved >= 0) & (moved < size[axis]))
        stride *= size[axis]
    table, inside = np.stack(targets, 1), np.stack(valid, 1)
    if variant != "paper":
        return np.where(inside, table, here[:, None]).astype(np.int32), np.full(positions, 2 * len(size), np.int8)
    first = np.argsort(~inside, axis=1, kind="stable")  # the real neighbours to the front
    return np.take_along_axis(table, first, 1).astype(np.int32, order="C"), inside.sum(1, np.int8)


@jit
def _mix(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _below(state: Any, bound: int) -> tuple[Any, Any]:
    """The next state and an integer uniform on [0, bound), exactly (Lemire, 2019)."""
    limit = np.uint64(bound)
    while True:
        state += _GOLDEN
        product = (_mix(state) >> np.uint64(32)) * limit
        low = product & np.uint64(0xFFFFFFFF)
        if low >= limit or low >= (np.uint64(1 << 32) - limit) % limit:
            return state, np.int64(product >> np.uint64(32))


@jit
def _draw(seed: int, partners: Any, counts: Any, accept: float, sweeps: bool, local: bool, out: Any) -> None:
    positions = len(counts)
    rows = out.reshape(-1, positions)
    order = np.empty(positions, np.int32)
    visits = 2 * positions - 1 if sweeps else positions
    threshold = np.uint64(np.ceil(accept * 2.0**53))  # below it: 53 random bits that are, as a fraction, below accept
    for i in range(rows.shape[0]):
        index = rows[i]
        state = _mix(np.uint64(seed) + np.uint64(i + 1) * _GOLDEN)
        for k in range(positions):
            index[k] = k
            order[k] = k
        for visit in range(visits):
            if sweeps:  # down to position 0 and up again
                p = abs(positions - 1 - visit)
            else:  # one more step of a Fisher-Yates shuffle: the next position of a uniformly random order
                state, ahead = _below(state, positions - visit)
                p = order[visit + ahead]
                order[visit + ahead] = order[visit]
            state += _GOLDEN
            swaps = _mix(state) >> np.uint64(11) < threshold
            bound = counts[p] if local else positions - 1
            if bound == 0:
                continue
            # Drawn whether it is needed or not: the processor cannot guess, and a wrong guess takes longer.
            after, choice = _below(state, bound)
            partner = partners[p, choice] if local else choice + (choice >= p)
            state = after if swaps else state
            q = partner if swaps else p
            index[p], index[q] = index[q], index[p]
