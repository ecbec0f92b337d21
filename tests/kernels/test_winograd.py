"""Convolutions with fewer products: as exact as torch's, only where asked for, and nowhere near an update."""

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

pytestmark = pytest.mark.skipif(not has_feature("avx512f"), reason="this processor has no AVX-512")


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


@torch.no_grad()
def test_an_image_does_not_depend_on_those_beside_it():
    """To the bit: evaluations deal frames out to processes, and leave finished games out."""
    layers, x = pair(), maps(16, 8, 8, count=5)
    with fewer_products():
        assert torch.equal(layers(x)[3:4], layers(x[3:4]))


def test_without_being_asked_for_or_with_gradients_sums_are_torchs():
    """Fails if an update, or a rollout, would see other sums than before."""
    layers, x = pair(), maps(16, 8, 8)
    plain = x + layers.conv2(F.relu(layers.conv1(F.relu(x))))
    with torch.no_grad():
        assert torch.equal(layers(x), plain)
    with fewer_products():
        y = layers(x)
        with torch.no_grad():
            assert not torch.equal(layers(x), plain)
    assert torch.equal(y, plain)
    assert y.requires_grad


@torch.no_grad()
@pytest.mark.parametrize("size", [(7, 8), (8, 7), (1, 1)], ids=str)
def test_maps_of_odd_size_go_to_torch(size):
    layers, x = pair(), maps(16, *size)
    with fewer_products():
        assert torch.equal(layers(x), x + layers.conv2(F.relu(layers.conv1(F.relu(x)))))


@torch.no_grad()
@pytest.mark.parametrize(
    "changes",
    [{"stride": 2}, {"bias": False}, {"padding": 0}, {"padding_mode": "reflect"}, {"groups": 2}, {"out_channels": 8}],
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


class UsedError(Exception):
    pass


def refuse(*arguments):
    raise UsedError


@pytest.mark.parametrize("encoder", ["impala", "small"])
def test_learning_never_goes_this_way_and_agents_do(monkeypatch, encoder):
    """Fails if a rollout's probabilities were other sums than those that the update compares them with."""
    changes = {"network.encoder": encoder, "ppo.num_envs": 2, "ppo.num_steps": 4, "ppo.num_minibatches": 1}
    learner = build_learner(TrainConfig.preset("procgen-easy", "bigfish", **changes))
    for name in ("_residuals", "_convolve_and_pool_all"):
        monkeypatch.setattr(winograd, name, refuse)
    learner.iterate()
    agent = Agent(learner.model, learner.method, learner.context(), learner.settings.spec)
    with pytest.raises(UsedError):
        agent.act(learner.games.observe().obs)
