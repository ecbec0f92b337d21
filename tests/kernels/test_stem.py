"""A first convolution and its pool in one pass: numbers, gradients and graphs are those of torch's own."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clop.kernels import stem
from clop.kernels.pool import MaxPool
from clop.kernels.stem import convolve_and_pool
from clop.kernels.vectors import has_feature

with_instruction = pytest.mark.skipif(not has_feature("avx512f"), reason="this processor has no AVX-512")


def layers(channels_last=False, **changes):
    torch.manual_seed(0)
    convolution = nn.Conv2d(**{"in_channels": 3, "out_channels": 16, "kernel_size": 3, "padding": 1} | changes)
    for parameter in convolution.parameters():
        parameter.data = parameter.data.mul(64).round().div(64)
    return convolution.to(memory_format=torch.channels_last) if channels_last else convolution, MaxPool()


def frames(*size, count=3):
    """Of few digits, as the weights are, so that sums are exact and the greatest is the same whoever adds."""
    x = torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(1)).mul(64).round().div(64)
    return x.to(memory_format=torch.channels_last)


def plainly(convolution, pooling, x):
    y = F.conv2d(x, convolution.weight, convolution.bias, padding=1)
    return F.max_pool2d(y, 3, stride=2, padding=1)


def with_gradients(function, convolution, pooling, x):
    y = function(convolution, pooling, x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y) ** 3
    return [y, *torch.autograd.grad(y, (convolution.weight, convolution.bias), weights)]


@with_instruction
@pytest.mark.parametrize("channels_last", [False, True], ids=["weights as made", "weights with channels innermost"])
@pytest.mark.parametrize("size", [(64, 64), (16, 16), (7, 9), (9, 7), (8, 13), (1, 1), (2, 3), (3, 1)])
def test_numbers_and_gradients_are_those_of_torch(size, channels_last):
    """Fails for weights read in another order, a border that is not zero or of the image before, and the bias or its
    gradient left out."""
    both, x = layers(channels_last), frames(*size)
    assert stem._fits(*both, x)
    y, *ours = with_gradients(convolve_and_pool, *both, x)
    exact, *theirs = with_gradients(plainly, layers()[0].double(), None, x.double())
    assert torch.equal(y.double(), exact)
    assert y.stride() == exact.stride()
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), yours, rtol=1e-4, atol=1e-5 * float(yours.abs().max()))


@with_instruction
def test_an_image_does_not_depend_on_those_beside_it():
    """To the bit: evaluations deal frames out to processes."""
    both, x = layers(), frames(64, 64, count=5)
    with torch.inference_mode():
        assert torch.equal(convolve_and_pool(*both, x)[3:4], convolve_and_pool(*both, x[3:4]))


@pytest.mark.parametrize(
    "changes",
    [
        {"out_channels": 8},
        {"in_channels": 4},
        {"stride": 2},
        {"bias": False},
        {"padding": 0},
        {"dilation": 2, "padding": 2},
        {"padding_mode": "reflect"},
        {"dtype": torch.float64},
        {"in_channels": 6, "groups": 2},
    ],
    ids=str,
)
def test_other_convolutions_go_to_torch(changes):
    convolution, pooling = layers(**changes)
    x = torch.rand(2, convolution.in_channels, 12, 12, dtype=convolution.weight.dtype)
    x = x.to(memory_format=torch.channels_last)
    assert torch.equal(convolve_and_pool(convolution, pooling, x), pooling(convolution(x)))


class Standardised(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)


def test_a_convolution_that_does_something_else_does_it():
    """Fails if a subclass, a layer with computed weights or a patched forward is taken for a plain convolution."""
    pooling, x = MaxPool(), frames(16, 16)
    normed = nn.utils.parametrizations.weight_norm(layers()[0])
    patched = layers()[0]
    patched.forward = lambda x: nn.Conv2d.forward(patched, x).neg()
    for convolution in (Standardised(3, 16, 3, padding=1), normed, patched):
        assert torch.equal(convolve_and_pool(convolution, pooling, x), pooling(convolution(x)))


def test_frames_of_other_colours_are_refused_as_torch_refuses_them():
    """Fails when memory behind grey frames is read for their other colours."""
    with pytest.raises(RuntimeError, match="channels"):
        convolve_and_pool(*layers(), torch.rand(2, 1, 16, 16).to(memory_format=torch.channels_last))


def test_saved_tensors_may_come_back_in_another_layout():
    both, x = layers(), frames(9, 8)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.contiguous(), lambda kept: kept):
        ours = with_gradients(convolve_and_pool, *both, x)
    for mine, yours in zip(ours, with_gradients(plainly, *both, x), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-4, atol=1e-4)


def test_second_derivatives():
    both, x = layers(), frames(7, 9)

    def second(function):
        y = function(*both, x)
        first = torch.autograd.grad(y.square().sum(), both[0].weight, create_graph=True)[0]
        return torch.autograd.grad(first.square().sum(), both[0].weight)[0]

    torch.testing.assert_close(second(convolve_and_pool), second(plainly), rtol=1e-4, atol=1e-1)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_who_watches_a_layer_sees_what_goes_through_it():
    """Fails if a hook, as for saliency maps, is passed by."""
    for watched in (0, 1):
        both, seen = layers(), []
        both[watched].register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output.shape[-1]))
        both[watched].register_full_backward_pre_hook(lambda module, gradients, seen=seen: seen.append("back"))
        convolve_and_pool(*both, frames(16, 16)).sum().backward()
        assert seen == [16 if watched == 0 else 8, "back"]


def test_a_gradient_for_the_frames_is_torch_s():
    """Saliency maps want it."""
    both, x = layers(), frames(16, 16).requires_grad_()
    (ours,) = torch.autograd.grad(convolve_and_pool(*both, x).sum(), x)
    (theirs,) = torch.autograd.grad(plainly(*both, x).sum(), x)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("x", [frames(16, 16).contiguous(), frames(16, 16)[:, :, ::2], frames(16, 16)[:0]], ids=str)
def test_other_maps_go_to_torch(x):
    both = layers()
    assert not stem._fits(*both, x)
    torch.testing.assert_close(convolve_and_pool(*both, x), plainly(*both, x))


def test_graphs_have_the_plain_operators():
    """Fails when a graph that leaves this process, as for ONNX, holds a function of ours."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers())

        def forward(self, x):
            return convolve_and_pool(*self.layers, x)

    program = torch.export.export(Both(), (frames(16, 16),))
    names = " ".join(str(node.target) for node in program.graph.nodes if node.op == "call_function")
    assert "conv2d" in names
    assert "max_pool2d" in names


def test_a_processor_without_the_instruction_leaves_it_to_torch():
    program = """
import torch
from torch import nn
from clop.kernels import stem
from clop.kernels.pool import MaxPool
torch.set_num_threads(1)
layers = nn.Conv2d(3, 16, 3, padding=1), MaxPool()
x = torch.rand(2, 3, 16, 16).to(memory_format=torch.channels_last)
assert not stem._fits(*layers, x)
expected = torch.nn.functional.max_pool2d(layers[0](x), 3, stride=2, padding=1)
assert torch.equal(stem.convolve_and_pool(*layers, x), expected)
"""
    environment = {"NUMBA_CPU_NAME": "generic", "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
