"""The operators as torch sees them: their fake and gradient rules, and torch's transforms."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses import FakeTensor, FakeTensorMode

from clop import CLOP, clop
from clop.kernels import operators

LAYOUTS = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "sliced": lambda x: torch.cat([x, x], 3)[..., : x.shape[3]],
    "expanded": lambda x: x[:, :1].expand(x.shape),
}
SHARING = [(1, 1), (2, 1), (1, 3), (2, 3)]
layouts = pytest.mark.parametrize("layout", LAYOUTS)
sharing = pytest.mark.parametrize("sharing", SHARING)


def maps_and_permutations(layout="contiguous", sharing=(1, 1), dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    x = LAYOUTS[layout](torch.rand(2, 3, 5, 4, dtype=dtype, generator=generator))
    return x, torch.rand(*sharing, 20, generator=generator).argsort(-1)


@layouts
@sharing
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("inverse", [False, True])
def test_the_kernel_and_torch_s_own_operations_agree(layout, sharing, dtype, inverse):
    """In values and in strides: what a GPU computes and what the CPU computes are one operator."""
    x, permutations = maps_and_permutations(layout, sharing, dtype)
    fast, general = (
        operators._permute_cpu(x, permutations, inverse),
        operators._permute_anywhere(x, permutations, inverse),
    )
    assert torch.equal(fast, general)
    assert fast.stride() == general.stride()
    assert torch.equal(fast, torch.ops.clop.permute(x, permutations, inverse))


@layouts
@sharing
def test_the_inverse_undoes_a_permutation(layout, sharing):
    x, permutations = maps_and_permutations(layout, sharing)
    assert torch.equal(operators.permute(operators.permute(x, permutations), permutations, inverse=True), x)
    assert not torch.equal(operators.permute(operators.permute(x, permutations), permutations), x)


@layouts
@sharing
@pytest.mark.parametrize("inverse", [False, True])
def test_permute_passes_torch_s_checks_of_an_operator(layout, sharing, inverse):
    """Schema, fake rule (shape, strides, dtype), registration of the gradient, tracing with dynamic shapes."""
    x, permutations = maps_and_permutations(layout, sharing, torch.float64)
    x = x.requires_grad_() if layout != "expanded" else x
    torch.library.opcheck(torch.ops.clop.permute, (x, permutations, inverse))


@pytest.mark.parametrize("size", [(7,), (5, 3), (2, 3, 4)])
def test_the_draws_pass_torch_s_checks_of_an_operator(size):
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")  # the fourth compares two runs
    torch.library.opcheck(torch.ops.clop.draw, (size, 2, 3, 0.5, "paper", True), {"device": "cpu"}, test_utils=checks)
    layer = CLOP(0.5)
    torch.library.opcheck(torch.ops.clop.draw_for, (layer._key, size, 2, 3), {"device": "cpu"}, test_utils=checks)


def test_a_thread_that_first_draws_in_inference_mode_can_draw_outside():
    """What a thread draws to is made at its first draw. Fails when it is a tensor that only that mode may write to."""

    def draw():
        with torch.inference_mode():
            first = clop(torch.arange(64.0).view(1, 1, 8, 8), 0.9)
        return first.is_inference(), operators.draw((8, 8), 1, 1, 0.9).sort().values.tolist()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(draw).result() == (True, [[list(range(64))]])


def test_the_draws_are_tagged_as_random():
    """Or a compiler may merge two draws, and repeat one in the backward."""
    for operator in (torch.ops.clop.draw, torch.ops.clop.draw_for):
        assert torch.Tag.nondeterministic_seeded in operator.default.tags


def test_draw_for_reads_the_settings_of_its_layer_at_each_call():
    layer = CLOP(0.5, variant="clamp", generator=torch.Generator().manual_seed(0))
    layer.alpha = 0.9
    drawn = torch.ops.clop.draw_for(layer._key, (5, 3), 2, 1, device="cpu")
    expected = operators.draw((5, 3), 2, 1, 0.9, "clamp", True, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, expected)


def test_a_layer_nobody_holds_is_forgotten():
    key = CLOP(0.5)._key
    assert key not in operators._layers


options = pytest.mark.parametrize("options", [{}, {"per_sample": True}, {"channel_consistent": False}])


@layouts
@options
def test_maps_on_the_meta_device_stay_there_and_keep_shape_and_strides(layout, options):
    x, _ = maps_and_permutations(layout)
    y, expected = clop(x.to("meta"), 0.5, **options), clop(x, 0.5, **options)
    assert y.is_meta
    assert (y.shape, y.dtype, y.stride()) == (expected.shape, expected.dtype, expected.stride())


@options
@pytest.mark.parametrize("layer", [False, True])
def test_fake_maps_give_fake_maps(layer, options):
    """Tools that plan memory run models on tensors without data. Fails when a value is asked of one."""
    x, _ = maps_and_permutations("channels last")
    expected = clop(x, 0.5, **options)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        y = CLOP(0.5, **options)(fake) if layer else clop(fake, 0.5, **options)
    assert isinstance(y, FakeTensor)
    assert (y.shape, y.dtype, y.stride()) == (expected.shape, expected.dtype, expected.stride())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch itself, on its first forward derivative
class TestTransforms:
    """``torch.func``, with permutations drawn outside."""

    @sharing
    def test_grad_moves_back(self, sharing):
        x, permutations = maps_and_permutations(sharing=sharing)
        weights = torch.rand(x.shape)
        gradient = torch.func.grad(lambda x: (operators.permute(x, permutations) * weights).sum())(x)
        assert torch.equal(gradient, operators.permute(weights, permutations, inverse=True))

    @sharing
    def test_jvp_moves_the_tangent_along(self, sharing):
        x, permutations = maps_and_permutations(sharing=sharing)
        tangent = torch.rand(x.shape)
        y, moved = torch.func.jvp(lambda x: operators.permute(x, permutations), (x,), (tangent,))
        assert torch.equal(y, operators.permute(x, permutations))
        assert torch.equal(moved, operators.permute(tangent, permutations))

    @sharing
    @pytest.mark.parametrize("inverse", [False, True])
    @pytest.mark.parametrize("dims", [(0, None), (2, None), (None, 0), (0, 0), (3, 1)])
    def test_vmap_is_a_loop(self, sharing, dims, inverse):
        b = 4
        x = torch.rand(b, 2, 3, 5, 4)
        permutations = torch.rand(b, *sharing, 20).argsort(-1)
        xs = list(x) if dims[0] is not None else [x[0]] * b
        ps = list(permutations) if dims[1] is not None else [permutations[0]] * b
        looped = torch.stack([operators.permute(a, p, inverse) for a, p in zip(xs, ps, strict=True)])
        inputs = (
            x.movedim(0, dims[0]) if dims[0] is not None else x[0],
            permutations.movedim(0, dims[1]) if dims[1] is not None else permutations[0],
        )
        assert torch.equal(torch.func.vmap(lambda a, p: operators.permute(a, p, inverse), dims)(*inputs), looped)

    def test_gradients_per_sample(self):
        """vmap of grad, as in differential privacy."""
        x, permutations = maps_and_permutations()
        weights = torch.rand(3, 5, 4)

        def loss(x):
            return (operators.permute(x[None], permutations)[0] * weights).sum()

        assert torch.equal(
            torch.func.vmap(torch.func.grad(loss))(x),
            operators.permute(weights.expand(2, 3, 5, 4), permutations, inverse=True),
        )

    def test_hessian_is_the_second_derivative(self):
        x = torch.rand(1, 1, 2, 2, dtype=torch.float64)
        permutations = torch.tensor([[[1, 2, 3, 0]]])
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
        hessian = torch.func.hessian(lambda x: (operators.permute(x, permutations).flatten() ** 2 * weights).sum())(x)
        assert torch.equal(hessian.view(4, 4), torch.diag(2 * weights[[3, 0, 1, 2]]))

    def test_vmap_with_the_same_randomness_draws_once(self):
        x = torch.arange(64.0).view(1, 1, 1, 8, 8).expand(3, 1, 1, 8, 8)
        y = torch.func.vmap(lambda x: clop(x, 0.9), randomness="same")(x)
        assert torch.equal(y, y[:1].expand_as(y))
        assert not torch.equal(y, x)

    def test_a_gradient_can_be_taken_of_a_function_that_draws(self):
        """Fails when a draw writes to a tensor that was there before the transform."""
        x, weights = torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8)
        torch.manual_seed(0)
        gradient = torch.func.grad(lambda x: (clop(x, 0.9) * weights).sum())(x)
        torch.manual_seed(0)
        permutations = operators.draw((8, 8), 1, 1, 0.9)
        assert torch.equal(gradient, operators.permute(weights, permutations, inverse=True))
