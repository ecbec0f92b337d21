"""The compiled loop on the CPU, against torch's own indexing."""

import numpy as np
import pytest
import torch

from clop.kernels import move

DTYPES = [torch.uint8, torch.bfloat16, torch.float32, torch.float64, torch.complex128]  # 1 to 16 bytes


def random_permutations(samples, channels, positions):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(samples, channels, positions, generator=generator).argsort(-1)


def plainly(x, permutations, inverse):
    """Sample by sample, channel by channel, with Python's indexing."""
    y = torch.empty(x.shape, dtype=x.dtype).flatten(2)
    for n, c in np.ndindex(*x.shape[:2]):
        p = permutations[n % permutations.shape[0], c % permutations.shape[1]]
        if inverse:
            y[n, c][p] = x[n, c].flatten()
        else:
            y[n, c] = x[n, c].flatten()[p]
    return y.view(x.shape)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 5, 3), (3, 5, 7), (1, 9, 1, 7), (2, 2, 2, 3, 4), (5, 1, 4, 4), (1, 1, 1, 1)])
def test_maps_move_as_indexing_says(shape, dtype, inverse):
    """Row counts that are no multiple of four, which the loop treats apart; permutations of every sharing."""
    x = (torch.rand(shape) * 200).to(dtype)
    for samples, channels in [(1, 1), (shape[0], 1), (1, shape[1]), shape[:2]]:
        permutations = random_permutations(samples, channels, x[0, 0].numel())
        y = move.permute(x, permutations, inverse=inverse)
        assert torch.equal(y, plainly(x, permutations, inverse))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 8])
def test_maps_with_channels_innermost_move_as_indexing_says(channels, dtype, inverse):
    """Channels times bytes decides the word that is moved: an odd number of bytes moves one by one."""
    x = (torch.rand(3, channels, 5, 3) * 200).to(dtype).to(memory_format=torch.channels_last)
    for samples in (1, 3):
        permutations = random_permutations(samples, 1, 15)
        y = move.permute(x, permutations, inverse=inverse)
        assert torch.equal(y, plainly(x, permutations, inverse))
        assert y.stride() == x.stride()


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("sharing", "memory_format"),
    [
        *(((samples, 1), torch.channels_last) for samples in (1, 67)),
        *(((samples, channels), torch.contiguous_format) for samples in (1, 67) for channels in (1, 33)),
    ],
)
def test_several_threads_do_what_one_does(sharing, memory_format, inverse, monkeypatch):
    """Many chunks, whose ends fall inside a sample. Fails when one is skipped or a row moves by its neighbour's."""
    x = torch.rand(67, 33, 9, 7).to(memory_format=memory_format)
    monkeypatch.setattr(move, "_CHUNK", x.nbytes // 9)
    assert x.nbytes >= move._PARALLEL_FROM
    permutations = random_permutations(*sharing, 63)
    torch.set_num_threads(1)
    alone = move.permute(x, permutations, inverse=inverse)
    torch.set_num_threads(2)
    for _ in range(5):
        assert torch.equal(move.permute(x, permutations, inverse=inverse), alone)
    assert torch.equal(alone, plainly(x, permutations, inverse))


@pytest.mark.usefixtures("restored_threads")
def test_without_torch_s_openmp_one_thread_does_it_all(monkeypatch):
    monkeypatch.setattr(move, "openmp_team", lambda: None)
    torch.set_num_threads(2)
    x, permutations = torch.rand(64, 32, 8, 8), random_permutations(1, 1, 64)
    assert torch.equal(move.permute(x, permutations, inverse=False), x.flatten(2)[..., permutations[0, 0]].view_as(x))


@pytest.mark.parametrize(
    "permutations",
    [
        torch.zeros(1, 1, 7, dtype=torch.int64),
        torch.zeros(3, 1, 6, dtype=torch.int64),
        torch.zeros(1, 2, 6, dtype=torch.int64),
        torch.zeros(1, 1, 6, dtype=torch.int32),
        torch.zeros(1, 1, 12, dtype=torch.int64)[..., ::2],
    ],
    ids=["positions", "samples", "channels", "dtype", "strides"],
)
def test_permutations_of_another_shape_are_refused_before_memory_is_touched(permutations):
    with pytest.raises(ValueError, match="expected contiguous int64"):
        move.permute(torch.zeros(2, 4, 2, 3), permutations, False)
