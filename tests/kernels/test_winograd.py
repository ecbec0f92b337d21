"""Convolutions with fewer products: as exact as torch's, there and back, and only where asked for."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clop.kernels import winograd
from clop.kernels.pool import MaxPool
from clop.kernels.vectors import has_feature
from clop.kernels.winograd import fewer_products
from clop.rl.agent import Agent
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.encoders.base import Builder, Residual
from clop.rl.encoders.impala import Block
from clop.rl.settings import NetworkConfig

with_instruction = pytest.mark.skipif(not has_feature("avx512f"), reason="this processor has no AVX-512")


def pair(channels=16, **network):
    torch.manual_seed(0)
    build = Builder(NetworkConfig(**network), 15, torch.Generator())
    made = Residual("residual", build, (channels, 8, 8))
    for convolution in (made.conv1, made.conv2):
        nn.init.normal_(convolution.bias)
    return made.to(memory_format=torch.channels_last)


def block(inputs, outputs):
    torch.manual_seed(0)
    return Block(nn.Conv2d(inputs, outputs, 3, padding=1), MaxPool()).to(memory_format=torch.channels_last)


def maps(channels, height, width, count=3):
    x = torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(1))
    return x.to(memory_format=torch.channels_last)


def exactly(layers, x):
    """In float64, which no kernel computes; then in float32 by torch, whose error is the measure."""
    exact = layers.double()(x.double())
    plain = layers.float()(x)
    return exact, (plain - exact).abs().max()


SIZES = [(2, 2), (2, 8), (6, 4), (8, 8), (10, 14), (16, 16), (32, 32)]


@with_instruction
@torch.no_grad()
@pytest.mark.parametrize("channels", [16, 32, 48])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("skip_relu", [False, True])
def test_a_residual_pair_is_as_exact_as_torchs(size, channels, skip_relu):
    """Fails for a transform with a wrong sign, a tile at the wrong place, the last tiles left out where they are no
    multiple of sixteen, the border of the image before, a bias or a ReLU forgotten, and the wrong input added."""
    layers, x = pair(channels, skip_relu=skip_relu), maps(channels, *size)
    exact, error = exactly(layers, x)
    with fewer_products():
        y = layers(x)
    assert y.stride() == x.stride()
    assert (y - exact).abs().max() < 4 * error
    assert not torch.equal(y, layers(x)), "torch computed both"


@with_instruction
@torch.no_grad()
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 32), (32, 32), (48, 16), (32, 48)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_convolution_and_its_pool_are_as_exact_as_torchs(size, inputs, outputs):
    layers, x = block(inputs, outputs), maps(inputs, *size)
    exact, error = exactly(layers, x)
    with fewer_products():
        y = layers(x)
    assert (y - exact).abs().max() < 4 * error
    assert not torch.equal(y, layers(x)), "torch computed both"


def gradients(layers, x, again=False):
    """Of a sum with many weights: of what is read, and of all parameters."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layers(x)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y).to(y.dtype)
    return torch.autograd.grad(y, [x, *layers.parameters()], weights, create_graph=again)


def assert_gradients_are_as_exact(make, x):
    """As torch's in float32 against float64, within a few times its error or the last digit."""
    with fewer_products():
        ours = gradients(make(), x)
    exact, plain = gradients(make().double(), x.double()), gradients(make(), x)
    for mine, theirs, right in zip(ours, plain, exact, strict=True):
        assert (mine - right).abs().max() < 8 * (theirs - right).abs().max() + 4e-6 * right.abs().max()
    assert not torch.equal(ours[0], plain[0]), "torch computed both"


@with_instruction
@pytest.mark.parametrize("channels", [16, 32, 48])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("skip_relu", [False, True])
def test_gradients_of_a_residual_pair(size, channels, skip_relu):
    """Fails for weights that are not turned, a ReLU whose gradient is forgotten or taken at the wrong place, tiles that
    are added twice or not at all, and one image's gradient in another's border."""
    assert_gradients_are_as_exact(lambda: pair(channels, skip_relu=skip_relu), maps(channels, *size))


@with_instruction
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 32), (32, 32), (48, 16), (32, 48)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gradients_of_a_convolution_and_its_pool(size, inputs, outputs):
    assert_gradients_are_as_exact(lambda: block(inputs, outputs), maps(inputs, *size))


@pytest.mark.parametrize("make", [pair, lambda: block(16, 16)], ids=["pair", "pool"])
def test_second_derivatives(make):
    layers, x = make(), maps(16, 4, 6)

    def second():
        first = gradients(layers, x, again=True)[1]
        return torch.autograd.grad(first.square().sum(), layers.parameters(), allow_unused=True)[0]

    expected = second()
    with fewer_products():
        torch.testing.assert_close(second(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("make", [pair, lambda: block(16, 16)], ids=["pair", "pool"])
def test_saved_tensors_may_come_back_in_another_layout(make):
    layers, x = make(), maps(16, 4, 6)
    with fewer_products():
        expected = gradients(layers, x)
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.contiguous(), lambda kept: kept):
            ours = gradients(layers, x)
    for mine, yours in zip(ours, expected, strict=True):
        assert torch.equal(mine, yours)


@with_instruction
@torch.no_grad()
@pytest.mark.parametrize("make", [pair, lambda: block(16, 16)], ids=["pair", "pool"])
def test_an_image_does_not_depend_on_those_beside_it(make):
    """To the bit: evaluations deal frames out to processes, and leave finished games out."""
    layers, x = make(), maps(16, 8, 8, count=5)
    with fewer_products():
        y = layers(x)
        assert torch.equal(y[3:4], layers(x[3:4]))
    assert not torch.equal(y, layers(x)), "torch computed both"


def test_without_being_asked_for_sums_are_torchs():
    """Fails if an update would see other sums than before, unless its settings say so."""
    layers, x = pair(), maps(16, 8, 8)
    assert torch.equal(layers(x), x + layers.conv2(F.relu(layers.conv1(F.relu(x)))))


@torch.no_grad()
@pytest.mark.parametrize("size", [(7, 8), (8, 7), (1, 1)], ids=str)
def test_maps_of_odd_size_go_to_torch(size):
    layers, x = pair(), maps(16, *size)
    with fewer_products():
        assert torch.equal(layers(x), x + layers.conv2(F.relu(layers.conv1(F.relu(x)))))


@torch.no_grad()
@pytest.mark.parametrize(
    "changes",
    [
        {"stride": 2},
        {"bias": False},
        {"padding": 0},
        {"dilation": 2, "padding": 2},
        {"padding_mode": "reflect"},
        {"groups": 2},
        {"out_channels": 8},
        {"dtype": torch.float64},
    ],
    ids=str,
)
def test_other_convolutions_go_to_torch(changes):
    convolution = nn.Conv2d(**{"in_channels": 16, "out_channels": 16, "kernel_size": 3, "padding": 1} | changes)
    with fewer_products():
        assert winograd.convolve_and_pool(convolution, MaxPool(), maps(16, 8, 8)) is None


@torch.no_grad()
def test_who_watches_a_layer_sees_what_goes_through_it():
    layers, blocks, seen = pair(), block(16, 16), []
    for layer in (layers.conv2, blocks[1]):
        layer.register_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    with fewer_products():
        layers(maps(16, 8, 8))
        blocks(maps(16, 8, 8))
    assert seen == [nn.Conv2d, MaxPool]


@torch.no_grad()
def test_a_convolution_that_does_something_else_does_it():
    """Fails if a subclass, or a layer with computed weights, is taken for a plain convolution; and under autocast."""
    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(16, 16, 3, padding=1))
    for convolution in (type("Own", (nn.Conv2d,), {})(16, 16, 3, padding=1), normed):
        with fewer_products():
            assert winograd.convolve_and_pool(convolution, MaxPool(), maps(16, 8, 8)) is None
    with fewer_products(), torch.autocast("cpu", torch.bfloat16):
        assert winograd.convolve_and_pool(block(16, 16)[0], MaxPool(), maps(16, 8, 8)) is None


class UsedError(Exception):
    pass


def refuse(*arguments):
    raise UsedError


@with_instruction
@pytest.mark.parametrize("encoder", ["impala", "small"])
def test_agents_go_this_way_and_learners_if_their_settings_say_so(monkeypatch, encoder):
    """Fails if a rollout's probabilities were other sums than those that the update compares them with."""
    changes = {"network.encoder": encoder, "ppo.num_envs": 2, "ppo.num_steps": 4, "ppo.num_minibatches": 1}
    config = TrainConfig.preset("procgen-easy", "bigfish", **changes)
    learner, asked = build_learner(config), build_learner(config.changed(**{"network.convolutions": "winograd"}))
    asked.iterate()
    for name in ("pairs", "pooled"):
        monkeypatch.setattr(winograd, name, refuse)
    learner.iterate()
    agent = Agent(learner.model, learner.method, learner.context(), learner.settings.spec)
    with pytest.raises(UsedError):
        agent.act(learner.games.observe().obs)
    with pytest.raises(UsedError):
        asked.collect()
    with pytest.raises(UsedError):
        asked.update()
