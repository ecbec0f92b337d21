"""What ``clop`` and ``sample_permutation`` promise, whatever the map, the dtype and the memory format."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from clop import clop
from clop.functional import check_generator, sample_permutation

SIZES = [(7,), (1, 7), (5, 3), (8, 8), (2, 3, 4)]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def positions_as_values(samples, channels, size, dtype=torch.int64):
    """Maps whose value at each position is its number, so that the permutation can be read off the result."""
    return torch.arange(np.prod(size)).view(1, 1, *size).expand(samples, channels, *size).to(dtype)


def indexed(x, permutation):
    """``y[k] = x[p[k]]`` the plain way."""
    return x.contiguous().flatten(2)[..., permutation].view(x.shape)


small_sizes = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)
any_draw = {
    "size": small_sizes,
    "alpha": st.floats(0, 1),
    "variant": st.sampled_from(["paper", "raster", "clamp"]),
    "local": st.booleans(),
    "seed": st.integers(-(2**63), 2**64 - 1),
}
thorough = settings(max_examples=150, deadline=None, database=None, derandomize=True)


@thorough
@given(num=st.none() | st.integers(1, 5), **any_draw)
def test_a_draw_is_a_permutation_of_every_size(num, size, alpha, variant, local, seed):
    drawn = sample_permutation(size, alpha, num=num, variant=variant, local=local, generator=seeded(seed))
    n = np.prod(size)
    assert drawn.shape == ((n,) if num is None else (num, n))
    assert drawn.dtype == torch.int64
    assert torch.equal(drawn.sort(-1).values, torch.arange(n).expand_as(drawn))


@thorough
@given(samples=st.integers(1, 3), channels=st.integers(1, 3), **any_draw)
def test_maps_move_by_the_permutation_drawn_and_the_same_in_all_samples_and_channels(
    samples, channels, size, alpha, variant, local, seed
):
    x = torch.rand(samples, channels, *size, generator=seeded(0))
    y = clop(x, alpha, variant=variant, local=local, generator=seeded(seed))
    permutation = sample_permutation(size, alpha, variant=variant, local=local, generator=seeded(seed))
    assert torch.equal(y, indexed(x, permutation))
    assert torch.equal(y.flatten(2).sort().values, x.flatten(2).sort().values)


@pytest.mark.parametrize(("alpha", "training"), [(0, True), (0.0, True), (0.7, False), (0, False)])
def test_evaluation_and_alpha_0_return_the_very_tensor_and_use_no_randomness(alpha, training):
    x, generator = torch.rand(2, 3, 5, 3), seeded()
    before, default = generator.get_state(), torch.get_rng_state()
    assert clop(x, alpha, training, generator=generator) is x
    assert clop(x, alpha, training) is x
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(torch.get_rng_state(), default)


def test_sample_permutation_at_alpha_0_is_the_identity_and_uses_no_randomness():
    generator = seeded()
    before = generator.get_state()
    assert sample_permutation((2, 3), 0, num=2, generator=generator).tolist() == [[*range(6)]] * 2
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("options", [{}, {"per_sample": True, "channel_consistent": False}])
def test_a_call_draws_one_64_bit_seed_whatever_it_needs(options):
    """So that the randomness after a layer does not depend on the size of the layer's map."""
    generator, reference = seeded(), seeded()
    clop(torch.rand(4, 3, 5, 3), 0.5, generator=generator, **options)
    torch.randint(-(2**63), 2**63 - 1, (), generator=reference)
    assert torch.equal(generator.get_state(), reference.get_state())


def test_the_same_seed_gives_the_same_permutation_and_the_next_call_another():
    x = positions_as_values(1, 1, (8, 8))
    generator = seeded(3)
    first, second = clop(x, 0.5, generator=generator), clop(x, 0.5, generator=generator)
    assert torch.equal(first, clop(x, 0.5, generator=seeded(3)))
    assert not torch.equal(first, second)


def test_without_a_generator_torch_s_seed_decides():
    x = positions_as_values(1, 1, (8, 8))
    torch.manual_seed(3)
    assert torch.equal(clop(x, 0.5), clop(x, 0.5, generator=seeded(3)))


@pytest.mark.parametrize(
    ("size", "options", "permutation"),
    [
        ((2, 3), {}, [3, 4, 5, 0, 2, 1]),
        ((7,), {"variant": "clamp"}, [1, 0, 4, 2, 6, 3, 5]),
        ((7,), {"variant": "raster"}, [0, 3, 1, 2, 4, 5, 6]),
        ((2, 3), {"local": False}, [1, 5, 3, 2, 0, 4]),
    ],
)
def test_torch_s_seed_means_the_same_permutation_for_ever(size, options, permutation):
    assert sample_permutation(size, 0.5, generator=seeded(0), **options).tolist() == permutation


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("channel_consistent", [True, False])
def test_permutations_differ_exactly_where_asked(size, per_sample, channel_consistent):
    """Among samples if per_sample, among channels if not channel_consistent; shared along the other dimension."""
    x = positions_as_values(4, 3, size)
    options = {"per_sample": per_sample, "channel_consistent": channel_consistent}
    y = clop(x, 0.9, generator=seeded(), **options).flatten(2)  # (N, C, positions)
    expected = (4 if per_sample else 1) * (1 if channel_consistent else 3)
    assert len(y.flatten(0, 1).unique(dim=0)) == expected
    assert all((y[:, c] == y[:, 0]).all() == channel_consistent for c in (1, 2))
    assert all((y[n] == y[0]).all() == (not per_sample) for n in (1, 2, 3))
    assert torch.equal(y.sort(-1).values, x.flatten(2))


DTYPES = [
    *(
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.complex64,
        torch.complex128,
    ),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_every_dtype_moves_unchanged(dtype, channels_last):
    """Compared byte by byte. Fails when values are cast on the way, or words of the wrong size are moved."""
    x = torch.randint(0, 2, (2, 3, 5, 3), generator=seeded()) if dtype == torch.bool else torch.randn(2, 3, 5, 3) * 50
    x = x.abs().to(dtype) if not dtype.is_signed else x.to(dtype)
    expected = indexed(x, sample_permutation((5, 3), 0.9, generator=seeded()))
    y = clop(x.to(memory_format=torch.channels_last) if channels_last else x, 0.9, generator=seeded())
    assert y.dtype == dtype
    assert torch.equal(y.contiguous().view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("lazy", [torch.conj, torch._neg_view])
def test_a_pending_conjugation_or_negation_is_carried_out(lazy):
    """Such a tensor is a view with a flag. Fails when the bytes are moved and the flag forgotten."""
    x = lazy(torch.randn(2, 3, 5, 3, dtype=torch.complex64))
    assert x.is_conj() or x.is_neg()
    assert torch.equal(
        clop(x, 0.9, generator=seeded()), indexed(x, sample_permutation((5, 3), 0.9, generator=seeded()))
    )


@pytest.mark.parametrize("shape", [(2, 8, 5, 3), (2, 3, 1, 7), (2, 3, 2, 3, 4)])
@pytest.mark.parametrize("options", [{}, {"per_sample": True}, {"channel_consistent": False}])
def test_channels_last_in_channels_last_out(shape, options):
    memory_format = FORMATS[len(shape)]
    x = torch.randn(shape).to(memory_format=memory_format).requires_grad_()
    y = clop(x, 0.9, generator=seeded(), **options)
    assert y.is_contiguous(memory_format=memory_format)
    assert not y.is_contiguous()
    assert torch.equal(y, clop(x.contiguous(), 0.9, generator=seeded(), **options))
    y.backward(torch.randn(shape).to(memory_format=memory_format))
    assert x.grad.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, ::2],
        lambda x: x[..., 1:],
        lambda x: x.transpose(2, 3),
        lambda x: x.transpose(0, 1),
        lambda x: x[:1].expand(4, -1, -1, -1),
        lambda x: x[:, :1].expand(-1, 3, -1, -1),
        lambda x: x.to(memory_format=torch.channels_last)[:, 1:],
        lambda x: x.flatten()[1:].as_strided((2, 3, 5, 3), (90, 15, 3, 1)),
    ],
    ids=["channels", "columns", "hw", "nc", "expanded batch", "expanded channel", "sliced channels last", "offset"],
)
@pytest.mark.parametrize("options", [{}, {"per_sample": True}, {"channel_consistent": False}])
def test_any_strides_give_what_the_contiguous_copy_gives(view, options):
    x = view(torch.randn(4, 6, 5, 3))
    assert torch.equal(
        clop(x, 0.9, generator=seeded(), **options), clop(x.contiguous(), 0.9, generator=seeded(), **options)
    )


@pytest.mark.parametrize("shape", [(0, 3, 5, 3), (2, 0, 5, 3), (2, 3, 0, 3)])
@pytest.mark.parametrize("options", [{}, {"per_sample": True}, {"channel_consistent": False}])
def test_nothing_in_nothing_out(shape, options):
    x = torch.rand(shape, requires_grad=True)
    y = clop(x, 0.5, **options)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape


def test_no_permutations_can_be_asked_for():
    assert sample_permutation((2, 3), 0.5, num=0).shape == (0, 6)
    assert sample_permutation((2, 3), 0, num=0).shape == (0, 6)


def test_autocast_changes_nothing():
    x = torch.randn(2, 3, 5, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        convolved = torch.nn.functional.conv2d(x, torch.ones(2, 3, 1, 1))
        assert clop(convolved, 0.5).dtype == torch.bfloat16
        y = clop(x, 0.5, generator=seeded())
    assert torch.equal(y, clop(x, 0.5, generator=seeded()))


GRADIENT_CASES = [
    pytest.param((2, 2, 3, 2), {}, False, id="plain"),
    pytest.param((2, 2, 3, 2), {}, True, id="channels last"),
    pytest.param((2, 2, 3, 2), {"per_sample": True}, True, id="per sample, channels last"),
    pytest.param((2, 2, 3, 2), {"channel_consistent": False}, False, id="per channel"),
    pytest.param((2, 2, 3, 2), {"channel_consistent": False}, True, id="per channel, channels last"),
    pytest.param((2, 2, 3, 2), {"per_sample": True, "channel_consistent": False}, False, id="all different"),
    pytest.param((1, 2, 5), {}, False, id="1-D"),
    pytest.param((1, 2, 2, 1, 3), {}, True, id="3-D"),
]


@pytest.mark.parametrize(("shape", "options", "channels_last"), GRADIENT_CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch itself, on its first forward derivative
def test_first_and_second_derivatives_agree_with_differences(shape, options, channels_last, dtype):
    x = torch.randn(shape, dtype=dtype)
    x = (x.to(memory_format=FORMATS[len(shape)]) if channels_last else x).requires_grad_()

    def moved_then_squared(x):  # something to differentiate twice
        return clop(x, 0.9, generator=seeded(), **options) ** 2

    assert gradcheck(moved_then_squared, (x,), check_forward_ad=True)
    assert gradgradcheck(moved_then_squared, (x,))


@pytest.mark.parametrize(("shape", "options", "channels_last"), GRADIENT_CASES)
def test_the_gradient_is_moved_back_exactly(shape, options, channels_last):
    """Not the permutation once more: the two differ as soon as a permutation is not its own inverse."""
    shape = (*shape[:2], *(4 * n for n in shape[2:]))
    x = torch.randn(shape)
    x = (x.to(memory_format=FORMATS[len(shape)]) if channels_last else x).requires_grad_()
    y = clop(x, 0.9, generator=seeded(), **options)
    sources = clop(positions_as_values(*shape[:2], shape[2:]), 0.9, generator=seeded(), **options).flatten(2)
    functional = torch.randn(shape)
    (functional * y).sum().backward()
    moved_back = torch.empty_like(functional).flatten(2).scatter_(2, sources, functional.flatten(2)).view(shape)
    assert torch.equal(x.grad, moved_back)
    assert not torch.equal(x.grad, functional.flatten(2).gather(2, sources).view(shape))


def test_a_parameter_can_be_permuted():
    x = torch.nn.Parameter(torch.randn(1, 2, 5, 3))
    clop(x, 0.9).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize(
    ("alpha", "error", "sentence"),
    [
        (1.5, ValueError, "alpha is a probability and must lie in [0, 1], got 1.5"),
        (-0.1, ValueError, "alpha is a probability and must lie in [0, 1], got -0.1"),
        (float("nan"), ValueError, "alpha is a probability and must lie in [0, 1], got nan"),
        ("0.5", TypeError, "alpha is a probability, expected a number in [0, 1], got '0.5'"),
        (True, TypeError, "alpha is a probability, expected a number in [0, 1], got True"),
        (None, TypeError, "alpha is a probability, expected a number in [0, 1], got None"),
        (0.5j, TypeError, "alpha is a probability, expected a number in [0, 1], got 0.5j"),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_an_alpha_that_is_no_probability_is_refused(alpha, error, sentence, training):
    with pytest.raises(error, match=f"^{re.escape(sentence)}$"):
        clop(torch.rand(1, 1, 2, 2), alpha, training)
    with pytest.raises(error, match=f"^{re.escape(sentence)}$"):
        sample_permutation((2, 2), alpha)


@pytest.mark.parametrize("alpha", [0, 1, np.float32(0.5), np.float64(0.25)])
def test_numbers_of_other_kinds_are_probabilities_too(alpha):
    assert clop(torch.rand(1, 1, 2, 2), alpha).shape == (1, 1, 2, 2)


SHAPES = r"clop expects feature maps of shape \(N, C, H, W\), \(N, C, L\) or \(N, C, D, H, W\), got "


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("x", "error", "sentence"),
    [
        (torch.rand(32, 2048), ValueError, SHAPES + r"\(32, 2048\); apply it before flattening$"),
        (torch.rand(5), ValueError, SHAPES + r"\(5,\)$"),
        (torch.rand(1, 1, 1, 1, 1, 1), ValueError, SHAPES + r"\(1, 1, 1, 1, 1, 1\)$"),
        (np.zeros((1, 1, 2, 2)), TypeError, "^clop expects feature maps as a tensor, got ndarray$"),
    ],
)
def test_what_is_no_feature_map_is_refused(x, error, sentence, training):
    """In evaluation mode too: a layer in the wrong place is a mistake that should not wait for training."""
    with pytest.raises(error, match=sentence):
        clop(x, 0.5, training)


@pytest.mark.parametrize(
    ("variant", "sentence"),
    [
        ("papr", "unknown variant 'papr'; did you mean 'paper'?"),
        ("xyz", "unknown variant 'xyz'; expected one of paper, raster, clamp"),
        (None, "unknown variant None; expected one of paper, raster, clamp"),
    ],
)
def test_an_unknown_variant_is_refused_with_a_suggestion(variant, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        clop(torch.rand(1, 1, 2, 2), 0.5, variant=variant)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        sample_permutation((2, 2), 0.5, variant=variant)


def test_a_generator_of_another_type_is_refused():
    for generator in (0, np.random.default_rng(0)):
        with pytest.raises(TypeError, match=f"^generator: expected a torch.Generator, got {type(generator).__name__}$"):
            clop(torch.rand(1, 1, 2, 2), 0.5, generator=generator)


def test_a_generator_on_another_device_is_refused():
    class OnCuda(torch.Generator):
        device = torch.device("cuda:0")

    with pytest.raises(ValueError, match=r"expected a CPU generator, got one on cuda:0: use torch\.Generator\(\)$"):
        check_generator(OnCuda())
    with pytest.raises(ValueError, match="drawn on the CPU whatever the device of the maps"):
        clop(torch.rand(1, 1, 2, 2), 0.5, generator=OnCuda())


@pytest.mark.parametrize("size", [(), (2, 2, 2, 2), (0, 3), (2, -1), (2.0, 3), "ab"])
def test_a_size_that_is_no_extent_of_a_map_is_refused(size):
    with pytest.raises(
        ValueError, match=r"^size is the extent of a map, expected \(H, W\), \(L,\) or \(D, H, W\) of at"
    ):
        sample_permutation(size, 0.5)


def test_a_size_that_is_one_number_is_refused_with_what_to_write():
    with pytest.raises(TypeError, match=r"got 7; write \(7,\)$"):
        sample_permutation(7, 0.5)


@pytest.mark.parametrize("num", [-1, 2.0, "3", True])
def test_a_num_that_is_no_count_is_refused(num):
    with pytest.raises(ValueError, match=f"^num is a number of permutations, expected an integer .*, got {num!r}$"):
        sample_permutation((2, 3), 0.5, num=num)
