"""Max pooling by vectors: numbers, gradients, memory and graphs are those of torch's own, to the bit."""

import pytest
import torch
import torch.nn.functional as F

from clop.kernels import pool
from clop.kernels.pool import MaxPool


def plain(x):
    return F.max_pool2d(x, 3, stride=2, padding=1)


def maps(*shape):
    """With many equal numbers, so that which of them is the greatest matters."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(3).round()
    return x.to(memory_format=torch.channels_last)


def with_gradient(function, x):
    x = x.detach().requires_grad_()
    y = function(x)
    weights = torch.linspace(-1, 1, y.numel()).view_as(y) ** 3  # of many sizes, so that the order of sums shows
    return y, torch.autograd.grad(y, x, weights)[0]


def assert_same(x):
    for ours, theirs in zip(with_gradient(MaxPool(), x), with_gradient(plain, x), strict=True):
        assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32))
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("size", [(64, 64), (8, 8), (7, 7), (7, 10), (10, 7), (2, 2), (2, 5), (1, 1), (1, 6), (3, 1)])
@pytest.mark.parametrize("channels", [16, 48])
def test_pooled_and_gradient_are_those_of_torch(size, channels):
    """Fails for a border that is read, a window that is missed, and the last of equals taken instead of the first."""
    assert pool.fits(maps(3, channels, *size))
    assert_same(maps(3, channels, *size))


def test_infinities_and_what_is_not_a_number():
    """Fails where nothing is greater than minus infinity, or a comparison with what is not a number is believed."""
    x = maps(2, 16, 9, 9)
    x[0] = -torch.inf
    x[1, :, ::3, ::2] = torch.nan
    x[1, :, 1::4] = torch.inf
    assert_same(x)


@pytest.mark.parametrize("size", [(64, 64), (7, 10), (1, 6)])
def test_short_numbers_are_pooled_as_by_torch_and_their_gradients_rounded_once(size):
    """Fails where bfloat16 goes to torch, which takes several times as long and adds rounded sums, or is cut off and
    not rounded."""
    x = maps(3, 32, *size).bfloat16().requires_grad_()
    y = MaxPool()(x)
    assert "MaxPool2D" not in type(y.grad_fn).__name__
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, plain(x))
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = x.detach().float().requires_grad_()
    (ours,) = torch.autograd.grad(y, x, gradient)
    (theirs,) = torch.autograd.grad(plain(exact), exact, gradient.float())
    assert torch.equal(ours, theirs.bfloat16())


def test_short_numbers_that_are_none_or_infinite_stay_so():
    x = maps(2, 16, 9, 9).bfloat16()
    x[0] = -torch.inf
    x[1, :, ::3] = -torch.nan
    x[1, :, 1::4] = torch.inf
    x.requires_grad_()
    assert torch.equal(MaxPool()(x).isnan(), plain(x).isnan())
    assert torch.equal(MaxPool()(x).nan_to_num(7), plain(x).nan_to_num(7))
    gradient = torch.full((2, 16, 5, 5), -torch.nan, dtype=torch.bfloat16)
    ours, theirs = (torch.autograd.grad(f(x), x, gradient)[0] for f in (MaxPool(), plain))
    assert torch.equal(ours.isnan(), theirs.isnan())


def test_a_gradient_in_another_layout():
    x = maps(2, 16, 8, 8).requires_grad_()
    gradient = torch.randn(2, 16, 4, 4)
    (ours,), (theirs,) = (torch.autograd.grad(f(x), x, gradient) for f in (MaxPool(), plain))
    assert torch.equal(ours, theirs)


def test_without_gradients():
    x = maps(2, 16, 8, 8)
    with torch.inference_mode():
        assert torch.equal(MaxPool()(x), plain(x))


@pytest.mark.parametrize(
    "x",
    [
        maps(2, 16, 8, 8).contiguous(),
        maps(2, 8, 8, 8),
        maps(2, 16, 8, 8).double(),
        maps(2, 16, 8, 8).half(),
        maps(2, 16, 8, 8)[0],
        maps(2, 32, 8, 8)[:, ::2],
        torch.empty(0, 16, 8, 8).to(memory_format=torch.channels_last),
    ],
    ids=["channels outermost", "8 channels", "float64", "float16", "one map", "every second channel", "no map"],
)
def test_what_the_kernel_does_not_take_goes_to_torch(x):
    assert torch.equal(MaxPool()(x), plain(x))


@pytest.mark.usefixtures("restored_threads")
def test_more_threads_go_to_torch():
    torch.set_num_threads(2)
    assert not pool.fits(maps(2, 16, 8, 8))


def test_graphs_have_the_plain_operator():
    """Fails when a graph that leaves this process, as for ONNX, holds a function of ours."""
    program = torch.export.export(MaxPool(), (maps(2, 16, 8, 8),))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert any("max_pool2d" in name for name in names)


def test_transforms_of_torch_func():
    x = maps(2, 16, 8, 8)
    assert torch.equal(torch.func.vmap(MaxPool())(x[None]), plain(x)[None])


def test_torch_s_defaults_do_not_matter():
    """Fails when what comes out is made in torch's default dtype, and half of it is garbage."""
    x = maps(2, 16, 8, 8)
    expected = plain(x)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(MaxPool()(x), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_saved_tensors_may_come_back_in_another_layout():
    """As torch's own ``save_on_cpu`` gives them. Fails with a gradient at the wrong places."""
    x = maps(2, 16, 9, 8).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.contiguous(), lambda kept: kept):
        y = MaxPool()(x)
    gradient = torch.randn_like(y)
    (ours,), (theirs,) = torch.autograd.grad(y, x, gradient), torch.autograd.grad(plain(x), x, gradient)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 1)])
def test_second_derivatives(size):
    x = maps(2, 16, *size).requires_grad_()

    def second(function):
        (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    assert torch.equal(second(MaxPool()), second(plain))


@pytest.mark.filterwarnings("ignore")
def test_a_tracer_sees_the_plain_operator():
    """Fails when a traced network holds the result for its example instead."""
    traced = torch.jit.trace(MaxPool(), maps(2, 16, 8, 8))
    assert "max_pool2d" in str(traced.graph)
