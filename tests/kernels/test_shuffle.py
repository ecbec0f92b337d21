"""Rows moved by shuffles of vectors, against torch's own indexing; and what decides whether they are."""

import subprocess
import sys

import pytest
import torch

from clop.functional import sample_permutation
from clop.kernels import move, shuffle

DTYPES = [torch.bfloat16, torch.float32, torch.float64]  # words of 2, 4 and 8 bytes


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [(8, 8), (4, 8), (8, 16), (16, 16), (32, 32), (96,)])
def test_maps_of_whole_vectors_move_as_indexing_says(size, dtype, local, inverse):
    """Row counts that leave one to three over after batches of four; rows of four vectors, for each size of word."""
    for n, c in [(1, 1), (2, 3), (1, 7), (9, 17)]:
        x = torch.rand(n, c, *size).to(dtype)
        p = sample_permutation(size, 1.0, local=local, generator=torch.Generator().manual_seed(0))
        y = move.permute(x, p[None, None], inverse=inverse)
        assert torch.equal(y, x.flatten(2)[..., p.argsort() if inverse else p].view_as(x))


def test_all_bits_of_a_number_move():
    """Negative zero, infinities and the payloads of numbers that are none. Fails when words pass through arithmetic."""
    bits = torch.randint(-(2**31), 2**31, (2, 3, 8, 8), dtype=torch.int32)
    bits[0, 0, 0, :4] = torch.tensor([-(2**31), 0x7F800000, 0x7F800001, 0x7FC12345], dtype=torch.int32)
    p = sample_permutation((8, 8), 1.0)
    y = move.permute(bits.view(torch.float32), p[None, None], inverse=False)
    assert torch.equal(y.view(torch.int32), bits.flatten(2)[..., p].view_as(bits))


def test_a_step_of_a_plan_is_a_vector_that_gives_words():
    """Two vectors of 16 words; the second swaps two of them with the first. Fails when a word comes twice or never."""
    index = torch.arange(32)
    index[[3, 16]] = index[[16, 3]]
    within, starts, sources, masks = shuffle.plan(index.numpy(), torch.zeros(1, dtype=torch.float32).numpy().dtype)
    assert starts.tolist() == [0, 2, 4]
    assert sources[:4].tolist() == [0, 16, 0, 16]
    assert masks[:4].tolist() == [0xFFFF - 8, 8, 1, 0xFFFE]
    assert within[[3, 4, 16, 17]].tolist() == [0, 4, 3, 1]


def test_a_processor_without_the_instruction_moves_word_by_word():
    """Fails when code is made for the machine at hand where numba was told to make it for any."""
    program = """
import torch
from clop.kernels import move, shuffle
x, p = torch.rand(2, 3, 8, 8), torch.randperm(64)
assert not shuffle.shuffles(4)
assert torch.equal(move.permute(x, p[None, None], False), x.flatten(2)[..., p].view_as(x))
"""
    environment = {"NUMBA_CPU_NAME": "generic", "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
