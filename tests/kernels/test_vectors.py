"""Vectors of numbers in bfloat16: rounded as torch rounds, whatever they hold."""

import numba
import numpy as np
import torch
from numba import types

from clop.kernels.vectors import INT, LANES, Vectors, compiler_function


@compiler_function
def _shorten(typing_context, source, target):
    def generate(context, builder, signature, arguments):
        vectors = Vectors(context, builder, signature, arguments)
        vectors.store(vectors.load(0, INT(0)), 1, INT(0))
        return context.get_dummy_value()

    return types.void(source, target), generate


@numba.njit
def shorten(source, target):
    _shorten(source, target)


def test_floats_become_the_nearest_short_numbers_and_what_is_not_a_number_stays_none():
    """Fails when halves are not rounded to even, when the greatest do not become infinite, and when rounding carries
    what is not a number over into zero."""
    words = [0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000]
    words += [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0x00000001, 0x80000000, 0x00008000, 0x00018000]
    source, target = np.array(words, np.uint32).view(np.float32), np.zeros(LANES, np.int16)
    shorten(source, target)
    ours, theirs = torch.from_numpy(target).view(torch.bfloat16), torch.from_numpy(source).bfloat16()
    assert ours.isnan().tolist() == [8 <= place < 12 for place in range(LANES)]
    numbers = ~ours.isnan()
    assert torch.equal(ours[numbers].view(torch.int16), theirs[numbers].view(torch.int16))
