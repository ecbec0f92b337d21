"""Vectors of sixteen, for functions that are written for numba's compiler (intrinsics)."""

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

LANES = 16
INT = ir.IntType(64)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
BYTES = ir.VectorType(ir.IntType(8), LANES)
_SHORTS = ir.VectorType(ir.IntType(16), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)

compiler_function: Callable[..., Any] = intrinsic  # its own types describe the compiler's view, not the caller's


@functools.cache
def has_feature(name: str) -> bool:
    """Whether the code that numba makes on this machine may use instructions such as ``avx512f``."""
    return f"+{name}" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")


class Vectors:
    """Loads, stores and sums of whole vectors of an intrinsic's arrays, which are numbered in their order.

    Arrays are taken for contiguous, and offsets are counted in their items. Those of int16 hold numbers in bfloat16,
    the upper half of a float32: vectors of them become floats when loaded, and are rounded when stored.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        arrays = [
            (kind, context.make_array(kind)(context, builder, value).data)
            for kind, value in zip(signature.args, arguments, strict=True)
            if isinstance(kind, types.Array)
        ]
        self.data = [data for _, data in arrays]
        self.is_short = [kind.dtype == types.int16 for kind, _ in arrays]

    def _place(self, array: int, offset: Any, vector: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.data[array], [offset]), vector.as_pointer())

    def load(self, array: int, offset: Any, vector: Any = FLOATS) -> Any:
        if self.is_short[array]:
            return self._lengthened(self._load(array, offset, _SHORTS))
        return self._load(array, offset, vector)

    def _load(self, array: int, offset: Any, vector: Any) -> Any:
        loaded = self.builder.load(self._place(array, offset, vector))
        loaded.align = 1
        return loaded

    def store(self, value: Any, array: int, offset: Any) -> None:
        if self.is_short[array]:
            value = self._shortened(value)
        self.builder.store(value, self._place(array, offset, value.type)).align = 1

    def _lengthened(self, shorts: Any) -> Any:
        """Floats of numbers in bfloat16."""
        half = ir.Constant(_WORDS, [16] * LANES)
        words = self.builder.shl(self.builder.zext(shorts, _WORDS), half)
        return self.builder.bitcast(words, FLOATS)

    def _shortened(self, floats: Any) -> Any:
        """Numbers in bfloat16 of floats: the nearest, of two as near the even one; what is not a number stays none."""
        builder = self.builder
        half, one, just_below = (ir.Constant(_WORDS, [number] * LANES) for number in (16, 1, 0x7FFF))
        words = builder.bitcast(floats, _WORDS)
        odd = builder.and_(builder.lshr(words, half), one)
        rounded = builder.lshr(builder.add(words, builder.add(odd, just_below)), half)
        not_a_number = builder.fcmp_unordered("uno", floats, floats)
        quiet = builder.or_(builder.lshr(words, half), ir.Constant(_WORDS, [0x40] * LANES))
        return builder.trunc(builder.select(not_a_number, quiet, rounded), _SHORTS)

    def number(self, array: int, offset: Any) -> Any:
        return self.builder.load(self.builder.gep(self.data[array], [offset]))

    def fetch(self, array: int, offset: Any) -> None:
        """Have what is read later brought into the cache; harmless behind the end of an array."""
        place = self.builder.bitcast(self.builder.gep(self.data[array], [offset]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        fetch = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        self.builder.call(fetch, [place, number(0), number(2), number(1)])

    def repeated(self, number: Any, vector: Any = FLOATS) -> Any:
        """A vector of one number."""
        nothing = ir.Constant(vector, ir.Undefined)
        single = self.builder.insert_element(nothing, number, ir.IntType(32)(0))
        return self.builder.shuffle_vector(single, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, rounded once."""
        kind = ir.FunctionType(FLOATS, [FLOATS] * 3)
        fma = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fma.v{LANES}f32")
        return self.builder.call(fma, [a, b, c])


@compiler_function
def copy(typing_context: Any, source: Any, first: Any, target: Any, result: Any, count: Any) -> Any:
    """Copy so many numbers from one contiguous array to another; numba's own way goes number by number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        here, there = Vectors(context, builder, signature, arguments).data
        _, first, _, result, count = arguments
        size = context.get_abi_sizeof(here.type.pointee)
        cgutils.raw_memcpy(builder, builder.gep(there, [result]), builder.gep(here, [first]), count, size)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64, types.int64), generate
