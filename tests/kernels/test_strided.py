"""Three convolutions with stride 2 in one pass: numbers, gradients and graphs are those of torch's own."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clop.kernels.strided import three_convolutions
from clop.kernels.vectors import has_feature

with_instruction = pytest.mark.skipif(not has_feature("avx512f"), reason="this processor has no AVX-512")
CHANNELS = (3, 16), (16, 32), (32, 32)
SIZES = [(64, 64), (33, 37), (15, 13), (8, 40), (9, 9), (7, 2), (1, 1), (2, 3), (1, 17)]


def layers(changed=None, channels_last=True, **changes):
    """Three convolutions, of which the one of that number may be another."""
    torch.manual_seed(0)
    made = []
    for n, (inputs, outputs) in enumerate(CHANNELS):
        plain = {"in_channels": inputs, "out_channels": outputs, "kernel_size": 3, "stride": 2, "padding": 1}
        made.append(nn.Conv2d(**plain | (changes if n == changed else {})))
    return [layer.to(memory_format=torch.channels_last) if channels_last else layer for layer in made]


def frames(*size, count=3):
    x = torch.randint(0, 256, (count, 3, *size), generator=torch.Generator().manual_seed(1)) / 255
    return x.to(memory_format=torch.channels_last)


def plainly(convolutions, x):
    y = x
    for n, layer in enumerate(convolutions):
        y = F.conv2d(y if n == 0 else F.relu(y), layer.weight, layer.bias, stride=2, padding=1)
    return y


def parameters(convolutions):
    return [parameter for layer in convolutions for parameter in layer.parameters()]


def with_gradients(function, convolutions, x):
    y = function(convolutions, x)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.dtype)
    return [
        y.detach(),
        *torch.autograd.grad(y, parameters(convolutions), weights.to(memory_format=torch.channels_last)),
    ]


# ---- numbers ---------------------------------------------------------------------------------------------------------


@with_instruction
@pytest.mark.parametrize("channels_last", [False, True], ids=["weights as made", "weights with channels innermost"])
@pytest.mark.parametrize(("count", "size"), [(2, (64, 64)), (17, (64, 64)), (3, (40, 24)), (3, (33, 48))])
def test_frames_whose_width_eight_divides_to_the_bit(count, size, channels_last):
    """Fails when a sum has another order than oneDNN's; runs would no longer go on bit for bit."""
    convolutions, x = layers(channels_last=channels_last), frames(*size, count=count)
    for mine, yours in zip(
        with_gradients(three_convolutions, convolutions, x), with_gradients(plainly, convolutions, x), strict=True
    ):
        assert torch.equal(mine, yours)


@with_instruction
@pytest.mark.parametrize("size", SIZES)
def test_numbers_and_gradients_are_those_of_torch(size):
    """Fails for weights read in another order, a border that is not zero or of the image before, the last row or column
    of an odd size left out, and a ReLU, a bias or its gradient forgotten."""
    convolutions, x = layers(), frames(*size)
    ours = with_gradients(three_convolutions, convolutions, x)
    theirs = with_gradients(plainly, [layer.double() for layer in layers()], x.double())
    assert ours[0].stride() == plainly(convolutions, x).stride()
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), yours, rtol=1e-4, atol=1e-5 * float(yours.abs().max()))


@with_instruction
def test_where_a_map_is_exactly_zero_no_gradient_passes():
    """As torch's ReLU has it: fails when the comparison is with less than zero."""
    convolutions, x = layers(), frames(16, 16)
    nn.init.zeros_(convolutions[1].weight)
    nn.init.zeros_(convolutions[1].bias)
    ours = with_gradients(three_convolutions, convolutions, x)
    for mine, yours in zip(ours, with_gradients(plainly, convolutions, x), strict=True):
        assert torch.equal(mine, yours)
    assert not any(gradient.any() for gradient in ours[1:5])


@with_instruction
def test_numbers_that_are_none_go_on_as_in_torch():
    """Fails when the ReLU turns what is not a number into zero and hides that a run has diverged."""
    convolutions, x = layers(), frames(16, 16)
    x[1, 0, 4, 4] = float("nan")
    assert torch.equal(three_convolutions(convolutions, x).isnan(), plainly(convolutions, x).isnan())


@with_instruction
def test_an_image_does_not_depend_on_those_beside_it():
    """To the bit: evaluations deal frames out to processes."""
    convolutions, x = layers(), frames(64, 64, count=5)
    with torch.inference_mode():
        assert torch.equal(three_convolutions(convolutions, x)[3:], three_convolutions(convolutions, x[3:]))


@with_instruction
def test_without_gradients_the_numbers_are_the_same():
    """Fails when the one image that is kept then has the border of another."""
    convolutions, x = layers(), frames(33, 40, count=4)
    with torch.no_grad():
        y = three_convolutions(convolutions, x)
    assert torch.equal(y, three_convolutions(convolutions, x))
    assert not y.requires_grad


@with_instruction
def test_weights_that_do_not_learn_get_no_gradient():
    """Fails when frozen layers make a graph, or gradients get to the wrong parameters."""
    convolutions, x = layers(), frames(16, 16)
    convolutions[1].weight.requires_grad_(False)
    three_convolutions(convolutions, x).square().sum().backward()
    ours = [parameter.grad for parameter in parameters(convolutions)]
    assert [grad is None for grad in ours] == [False, False, True, False, False, False]
    for layer in convolutions:
        layer.requires_grad_(False)
    assert not three_convolutions(convolutions, x).requires_grad


# ---- gradients that torch computes -----------------------------------------------------------------------------------


@with_instruction
def test_saved_tensors_may_come_back_in_another_layout():
    """Fails when numbers are read in the order in which they were saved."""
    convolutions, x = layers(), frames(17, 18)

    def other(kept):
        return kept.transpose(0, -1).contiguous().transpose(0, -1)

    with torch.autograd.graph.saved_tensors_hooks(other, lambda kept: kept):
        ours = with_gradients(three_convolutions, convolutions, x)
    for mine, yours in zip(ours, with_gradients(plainly, convolutions, x), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-4, atol=1e-4)


@with_instruction
def test_second_derivatives():
    """Fails when the gradient of a gradient is taken for zero."""
    convolutions, x = layers(), frames(17, 18)

    def second(function):
        y = function(convolutions, x)
        wanted = parameters(convolutions)
        first = torch.autograd.grad(y.square().sum(), wanted, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), wanted)

    for mine, yours in zip(second(three_convolutions), second(plainly), strict=True):
        torch.testing.assert_close(mine, yours, rtol=1e-3, atol=1e-3 * float(yours.abs().max()))


@with_instruction
def test_threads_may_change_before_the_gradient_is_asked_for(restored_threads):
    """Fails when torch's own way gives its gradients to the wrong parameters."""
    convolutions, x = layers(), frames(16, 16)
    convolutions[2].bias.requires_grad_(False)
    y = three_convolutions(convolutions, x)
    torch.set_num_threads(2)
    wanted = parameters(convolutions)[:-1]
    for mine, yours in zip(
        torch.autograd.grad(y.sum(), wanted), torch.autograd.grad(plainly(convolutions, x).sum(), wanted), strict=True
    ):
        torch.testing.assert_close(mine, yours)


# ---- left to torch ---------------------------------------------------------------------------------------------------


class Standardised(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)


@pytest.mark.parametrize("changed", [0, 1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {"out_channels": 8},
        {"in_channels": 64},
        {"stride": 1},
        {"stride": (2, 1)},
        {"bias": False},
        {"padding": 0},
        {"kernel_size": 5},
        {"dilation": 2},
        {"padding_mode": "reflect"},
        {"dtype": torch.float64},
        {"device": "meta"},
    ],
    ids=str,
)
def test_other_convolutions_are_left_to_torch(changes, changed):
    """Fails when one of them is computed as if it were a plain one."""
    assert three_convolutions(layers(changed, **changes), frames(16, 16)) is None


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_layers_that_do_something_else_are_left_to_torch(changed):
    """Fails if a subclass, a layer with computed weights, a patched forward or a hook is passed by."""
    x = frames(16, 16)

    def with_layer(change):
        convolutions = layers()
        convolutions[changed] = change(convolutions[changed]) or convolutions[changed]
        return convolutions

    def patch(layer):
        layer.forward = lambda x: nn.Conv2d.forward(layer, x).neg()

    def hook(layer):
        layer.register_forward_hook(lambda *_: None)

    def hook_back(layer):
        layer.register_full_backward_hook(lambda *_: None)

    subclass = Standardised(*CHANNELS[changed], 3, stride=2, padding=1)
    normed = nn.utils.parametrizations.weight_norm
    for change in (lambda _: subclass, lambda _: nn.Identity(), normed, patch, hook, hook_back):
        assert three_convolutions(with_layer(change), x) is None
    assert three_convolutions(layers()[:2], x) is None


@pytest.mark.parametrize(
    "x",
    [
        frames(16, 16).contiguous(),
        frames(16, 16)[:, :, ::2],
        frames(16, 16)[:0],
        frames(16, 16)[:1],  # of which torch adds in another order
        frames(16, 16).double(),
        frames(16, 16)[:, :1].contiguous(memory_format=torch.channels_last),
        frames(16, 16).requires_grad_(),  # as saliency maps want it
        nn.Parameter(frames(16, 16)),
        frames(16, 16).to("meta"),
    ],
    ids=lambda x: f"{tuple(x.shape)} {x.dtype} {x.stride()} {x.requires_grad} {x.device}",
)
def test_other_frames_are_left_to_torch(x):
    """Fails when memory is read that does not hold frames, or a gradient that is wanted is not computed."""
    assert three_convolutions(layers(), x) is None


def test_with_more_threads_or_less_precision_they_are_left_to_torch(restored_threads):
    """Fails when one thread does the work of all, or a setting is passed by."""
    convolutions, x = layers(), frames(16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert three_convolutions(convolutions, x) is None
    torch.set_num_threads(2)
    assert three_convolutions(convolutions, x) is None


def test_transforms_are_left_to_torch():
    """Fails when a transform of torch.func is handed memory that is not what it means."""
    convolutions, x = layers(), frames(16, 16)
    seen = []

    def watching(x):
        seen.append(three_convolutions(convolutions, x))
        return x.sum()

    torch.func.vmap(watching)(x[None])
    torch.func.grad(watching)(x)
    assert seen == [None, None]


def test_graphs_have_the_plain_operators():
    """Fails when a graph that leaves this process, as for ONNX, holds a function of ours."""

    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers())

        def forward(self, x):
            y = three_convolutions(self.layers, x)
            return plainly(self.layers, x) if y is None else y

    program = torch.export.export(All(), (frames(16, 16),))
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert sum("conv2d" in name for name in names) == 3


def test_a_processor_without_the_instruction_leaves_it_to_torch():
    """Fails when sums get another order there."""
    program = """
import torch
from torch import nn
from clop.kernels.strided import three_convolutions
torch.set_num_threads(1)
layers = [nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((3, 16), (16, 32), (32, 32))]
x = torch.rand(2, 3, 16, 16).to(memory_format=torch.channels_last)
assert three_convolutions(layers, x) is None
"""
    environment = {"NUMBA_CPU_NAME": "generic", "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
