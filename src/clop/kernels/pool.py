"""Max pooling of 3×3 windows with stride 2, channels innermost: as PyTorch's to the bit, in a third of its time.

PyTorch compares number by number; here sixteen channels are one vector. Where the greatest was is remembered as its
place in the window, in a byte instead of eight. Numbers in bfloat16 are pooled likewise; their gradients are rounded
once, where PyTorch rounds after each window that it adds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from torch import Tensor, nn

from clop.kernels.jit import jit
from clop.kernels.operators import traced, transforms_active
from clop.kernels.vectors import BYTES, FLOATS, INT, LANES, Vectors, compiler_function

_DTYPES = (torch.float32, torch.bfloat16)


class MaxPool(nn.MaxPool2d):
    """``torch.nn.MaxPool2d(3, stride=2, padding=1)``, faster for float32 and bfloat16 on one thread of a CPU."""

    def __init__(self) -> None:
        super().__init__(3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return _apply(x) if fits(x, _DTYPES) and x.shape[1] % LANES == 0 else super().forward(x)


def fits(x: Tensor, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> bool:
    """Whether maps are in memory that a kernel may read: of such numbers, on a CPU, channels innermost, one thread."""
    return (
        type(x) in (Tensor, nn.Parameter)
        and not traced()  # who looks on knows the plain operator, and so do graphs that leave this process
        and not transforms_active()
        and x.is_cpu
        and x.dtype in dtypes
        and x.dim() == 4
        and x.numel() > 0
        and x.is_contiguous(memory_format=torch.channels_last)
        and not x.is_neg()
        and torch.get_num_threads() == 1
    )


def rows_of(x: Tensor) -> Any:
    """The same numbers, channels innermost; those in bfloat16, which NumPy does not know, as int16."""
    rows = x.detach().permute(0, 2, 3, 1)
    return (rows.view(torch.int16) if x.dtype == torch.bfloat16 else rows).numpy()


def empty_maps(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Maps with channels innermost, whatever torch's defaults are."""
    return torch.empty(shape, dtype=dtype, device="cpu", memory_format=torch.channels_last)


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        shape = count, channels, (height + 1) // 2, (width + 1) // 2
        y, places = empty_maps(shape, x.dtype), empty_maps(shape, torch.uint8)
        pool(rows_of(x), rows_of(y), rows_of(places))
        ctx.size = height, width
        ctx.save_for_backward(places)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (places,) = ctx.saved_tensors
        return gradient_of(gradient, places, ctx.size)


def gradient_of(gradient: Tensor, places: Tensor, size: tuple[int, int]) -> Tensor:
    """The gradient of maps of that size, by torch's own operator where it is to be differentiated again."""
    # Whoever keeps saved tensors, on another device for instance, may give them back in another layout.
    gradient, places = (x.contiguous(memory_format=torch.channels_last) for x in (gradient, places))
    count, channels, rows, columns = gradient.shape
    if torch.is_grad_enabled() or not fits(gradient, _DTYPES):
        height, width = size
        top, left = (2 * torch.arange(n, device="cpu") - 1 for n in (rows, columns))
        index = (top[:, None] + places.long() // 3) * width + left + places % 3
        like = gradient.new_empty(count, channels, height, width).contiguous(memory_format=torch.channels_last)
        window = [3, 3], [2, 2], [1, 1], [1, 1]
        return torch.ops.aten.max_pool2d_with_indices_backward(gradient, like, *window, False, index)
    back = empty_maps((count, channels, *size), gradient.dtype)
    unpool(rows_of(gradient), rows_of(places), rows_of(back))
    return back


_apply: Callable[[Tensor], Tensor] = _MaxPool.apply


@jit
def pool(x: Any, y: Any, places: Any) -> None:
    """The greatest of each window of ``x``, and where in the window it was: (N, height, width, channels) each."""
    count, height, width, channels = x.shape
    _, rows, columns, _ = y.shape
    for n in range(count):
        for i in range(rows):
            top, bottom = int(i == 0), 3 - int(2 * i + 1 == height)
            for j in range(columns):
                left, right = int(j == 0), 3 - int(2 * j + 1 == width)
                window = ((n * height + 2 * i - 1) * width + 2 * j - 1) * channels
                result = ((n * rows + i) * columns + j) * channels
                inside = bottom - top == 3 and right - left == 3
                for c in range(0, channels, LANES):
                    if inside:  # with bounds that the compiler knows
                        _greatest(x, y, places, window + c, result + c, width * channels, channels, 0, 3, 0, 3)
                    else:
                        line = width * channels
                        _greatest(x, y, places, window + c, result + c, line, channels, top, bottom, left, right)


@jit
def unpool(gradient: Any, places: Any, back: Any) -> None:
    """The gradient of each number that was pooled: the sum of those of the windows whose greatest it was.

    An even row is in one window, the middle of it; an odd one is the last of a window and the first of the next.
    Columns likewise.
    """
    count, height, width, channels = back.shape
    _, rows, columns, _ = gradient.shape
    line = columns * channels
    for n in range(count):
        for y in range(height):
            i, place = y // 2, 3 + 3 * (y % 2)
            two_rows = y % 2 == 1 and i + 1 < rows
            for j in range(columns):
                window = ((n * rows + i) * columns + j) * channels
                even = ((n * height + y) * width + 2 * j) * channels
                for c in range(0, channels, LANES):
                    if two_rows:
                        _sum(gradient, places, back, window + c, even + c, line, channels, 2, 1, place + 1)
                    else:
                        _sum(gradient, places, back, window + c, even + c, line, channels, 1, 1, place + 1)
                if 2 * j + 1 == width:
                    continue
                odd = even + channels
                for c in range(0, channels, LANES):
                    if j + 1 == columns:
                        _sum(gradient, places, back, window + c, odd + c, line, channels, 1 + two_rows, 1, place + 2)
                    elif two_rows:
                        _sum(gradient, places, back, window + c, odd + c, line, channels, 2, 2, place + 2)
                    else:
                        _sum(gradient, places, back, window + c, odd + c, line, channels, 1, 2, place + 2)


def _place_in_window(builder: Any, i: Any, j: Any) -> Any:
    """A byte that says which of the nine."""
    return builder.trunc(builder.add(builder.mul(i, INT(3)), j), ir.IntType(8))


def _offset(builder: Any, first: Any, i: Any, line: Any, j: Any, step: Any) -> Any:
    return builder.add(first, builder.add(builder.mul(i, line), builder.mul(j, step)))


@compiler_function
def _greatest(
    typing_context: Any,
    x: Any,
    y: Any,
    places: Any,
    window: Any,
    result: Any,
    line: Any,
    step: Any,
    top: Any,
    bottom: Any,
    left: Any,
    right: Any,
) -> Any:
    """One vector of :func:`pool`. As PyTorch: the first of equals, and what is not a number is greater than all."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        window, result, line, step, top, bottom, left, right = arguments[3:]
        first = vectors.repeated(_place_in_window(builder, top, left), BYTES)
        best = cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [-np.inf] * LANES))
        place = cgutils.alloca_once_value(builder, first)
        with (
            cgutils.for_range_slice(builder, top, bottom, INT(1)) as (i, _),
            cgutils.for_range_slice(builder, left, right, INT(1)) as (j, _),
        ):
            number = vectors.load(0, _offset(builder, window, i, line, j, step))
            before = builder.load(best)
            greater = builder.fcmp_ordered(">", number, before)
            taken = builder.or_(greater, builder.fcmp_unordered("uno", number, number))
            here = vectors.repeated(_place_in_window(builder, i, j), BYTES)
            builder.store(builder.select(taken, number, before), best)
            builder.store(builder.select(taken, here, builder.load(place)), place)
        vectors.store(builder.load(best), 1, result)
        vectors.store(builder.load(place), 2, result)
        return context.get_dummy_value()

    return types.void(x, y, places, *[types.int64] * 8), generate


@compiler_function
def _sum(
    typing_context: Any,
    gradient: Any,
    places: Any,
    back: Any,
    window: Any,
    result: Any,
    line: Any,
    step: Any,
    rows: Any,
    columns: Any,
    place: Any,
) -> Any:
    """One vector of :func:`unpool`: over windows, the first of which has the number at ``place``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = Vectors(context, builder, signature, arguments)
        window, result, line, step, rows, columns, place = arguments[3:]
        total = cgutils.alloca_once_value(builder, ir.Constant(FLOATS, None))
        with (
            cgutils.for_range_slice(builder, INT(0), rows, INT(1)) as (i, _),
            cgutils.for_range_slice(builder, INT(0), columns, INT(1)) as (j, _),
        ):
            offset = _offset(builder, window, i, line, j, step)
            here = builder.sub(place, builder.add(builder.mul(i, INT(6)), builder.mul(j, INT(2))))
            repeated = vectors.repeated(builder.trunc(here, ir.IntType(8)), BYTES)
            mine = builder.icmp_unsigned("==", vectors.load(1, offset, BYTES), repeated)
            before = builder.load(total)
            more = builder.fadd(before, vectors.load(0, offset))
            builder.store(builder.select(mine, more, before), total)
        vectors.store(builder.load(total), 2, result)
        return context.get_dummy_value()

    return types.void(gradient, places, back, *[types.int64] * 7), generate
