"""The encoders: the maps they make of frames of any size, their slots, and their layers written down once more."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clop.errors import UsageError
from clop.kernels.strided import three_convolutions
from clop.kernels.vectors import has_feature
from clop.rl.config import TrainConfig
from clop.rl.encoders import ENCODERS, check_map, find_encoder
from clop.rl.envs.spec import EnvSpec
from clop.rl.network import Network, as_input, slots_of
from clop.rl.settings import NetworkConfig

CHANNELS = {"impala": 32, "nature": 64, "small": 32}
SMALLEST = {"impala": 9, "nature": 16, "small": 9}
"""Frames of which a map of 2×2 is left."""
SIZES = [(25, 17, 1), (25, 17, 4), (200, 200, 3), (16, 64, 2), (33, 48, 3)]

each_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def frames(shape, count=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)


def make(shape=(64, 64, 3), slots=None, num_actions=15, **config):
    torch.manual_seed(0)
    return Network(NetworkConfig(**config), EnvSpec(shape, num_actions), slots)


class Watch(nn.Module):
    """Passes everything on and remembers what it was told of its place and what it saw."""

    def __init__(self, name, site, log):
        super().__init__()
        self.name, self.declared, self.log = name, site.shape, log

    def forward(self, x):
        self.log.append((self.name, self.declared, tuple(x.shape[1:])))
        return x


# ---- sizes -----------------------------------------------------------------------------------------------------------


@each_encoder
@pytest.mark.parametrize("width", [0.5, 1, 2])
def test_the_map_of_procgens_frames_is_eight_by_eight(encoder, width):
    network = make(encoder=encoder, width=width)
    assert network.encoder(as_input(frames((64, 64, 3)))).shape == (2, CHANNELS[encoder] * width, 8, 8)


@each_encoder
@pytest.mark.parametrize("width", [0.5, 1])
@pytest.mark.parametrize("shape", SIZES)
def test_maps_of_other_frames_are_those_that_are_declared(encoder, shape, width):
    """Fails when declared and real sizes are rounded differently, which an even size never shows."""
    network = make(shape, encoder=encoder, width=width, num_actions=5)
    height, columns, channels = shape
    declared = find_encoder(encoder).shapes((channels, height, columns), width)[-1]
    assert network.encoder.map_shape == declared
    assert network.encoder(as_input(frames(shape))).shape == (2, *declared)
    output = network(frames(shape))
    assert (output.logits.shape, output.value.shape) == ((2, 5), (2,))


@each_encoder
@pytest.mark.parametrize("topology", ["shared", "decoupled"])
@pytest.mark.parametrize(("shape", "width"), [((64, 64, 3), 1), ((25, 17, 4), 0.5)])
def test_the_slot_of_each_stage_sees_the_shape_it_was_told(encoder, shape, width, topology):
    log, slots, stages = [], slots_of(encoder), list(find_encoder(encoder).stages)
    inside = ["input", *stages, "encoder_out"]
    own = [f"critic.{name}" for name in inside] if topology == "decoupled" else []
    for name in [*inside, *own, "actor_in", "critic_in"]:
        slots.put(name, lambda site, name=name: Watch(name, site, log))
    make(shape, slots, encoder=encoder, width=width, topology=topology)(frames(shape))
    assert [name for name, *_ in log] == [*inside, "actor_in", *own, "critic_in"]
    first = (shape[2], *shape[:2])
    after = find_encoder(encoder).shapes(first, width)
    maps = [first, *after, after[-1]]
    expected = [*maps, after[-1], *(maps if own else []), after[-1]]
    assert [declared for _, declared, _ in log] == [seen for *_, seen in log] == expected


@each_encoder
@pytest.mark.parametrize("shape", [(64, 64, 3), (25, 17, 4)])
def test_what_follows_a_convolution_sees_the_shape_it_was_told(encoder, shape):
    log, slots = [], slots_of(encoder)
    slots.after_convolutions.append(lambda name, site: Watch(name, site, log))
    network = make(shape, slots, encoder=encoder)
    network(frames(shape))
    convolutions = [module for module in network.encoder.modules() if isinstance(module, nn.Conv2d)]
    assert len(log) == len({name for name, *_ in log}) == len(convolutions)
    assert all(declared == seen for _, declared, seen in log)
    first_of_stages = [name for name, *_ in log if name.endswith(".conv")]
    assert len(first_of_stages) == 3


@each_encoder
@pytest.mark.parametrize("norm", ["none", "block", "all"])
def test_every_parameter_learns_and_no_layer_spoils_anothers_gradient(encoder, norm):
    """Layers that work in place must leave alone what the backward pass reads."""
    network = make((25, 17, 4), encoder=encoder, norm=norm, topology="split")
    output = network(frames((25, 17, 4), count=4))
    (output.logits.square().sum() + output.value.sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or (norm != "none" and "bias" in name), name  # a norm takes a bias away


# ---- frames that are too small ---------------------------------------------------------------------------------------


@each_encoder
@pytest.mark.parametrize("way", ["square", "flat", "narrow"])
def test_the_smallest_frames_leave_a_map_of_two_by_two_and_smaller_ones_are_refused(encoder, way):
    size, config = SMALLEST[encoder], NetworkConfig(encoder=encoder)
    height, columns = {"square": (size, size), "flat": (size, 64), "narrow": (64, size)}[way]
    check_map(config, (3, height, columns))
    output = make((height, columns, 3), encoder=encoder)
    assert min(output.encoder(as_input(frames((height, columns, 3)))).shape[2:]) == 2
    smaller = (height - (way != "narrow"), columns - (way != "flat"))
    with pytest.raises(UsageError) as refused:
        check_map(config, (3, *smaller))
    message = str(refused.value)
    assert message.startswith(f"frames of {smaller[0]}×{smaller[1]} leave a map of ")
    assert message.endswith(f"behind the encoder {encoder}, which must be 2×2 at least; enlarge them with a wrapper")
    assert "\n" not in message


@each_encoder
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_smallest_frames_of_all_are_refused_with_a_size_that_makes_sense(encoder, size):
    """Fails when a stage that leaves nothing is said to leave less."""
    with pytest.raises(UsageError, match=r"leave a map of [01]×[01] behind"):
        check_map(NetworkConfig(encoder=encoder), (3, size, size))


def test_an_unknown_encoder_is_answered_with_the_right_one():
    sentence = r"unknown network\.encoder 'smal'; did you mean 'small'\?"
    with pytest.raises(UsageError, match=sentence):
        find_encoder("smal")
    with pytest.raises(UsageError, match=sentence):
        TrainConfig("maze", network=NetworkConfig(encoder="smal"))


# ---- layers ----------------------------------------------------------------------------------------------------------


def small(x, conv):
    """Three strided convolutions, the last of which is not rectified, and a residual pair."""
    x = conv(x, "conv1.0", 2, 1).relu()
    x = conv(x, "conv2.0", 2, 1).relu()
    x = conv(x, "conv3", 2, 1)
    inside = conv(conv(x.relu(), "residual.0.conv1", 1, 1).relu(), "residual.0.conv2", 1, 1)
    return (x + inside).relu()


def nature(x, conv):
    """DQN's, with the padding that divides 64 by 8."""
    x = conv(x, "conv1.0", 4, 2).relu()
    x = conv(x, "conv2.0", 2, 1).relu()
    return conv(x, "conv3.0", 1, 1).relu()


def impala(x, conv):
    for block in ("block1", "block2", "block3"):
        x = F.max_pool2d(conv(x, f"{block}.0", 1, 1), 3, 2, 1)
        for pair in (2, 3):
            x = x + conv(conv(x.relu(), f"{block}.{pair}.conv1", 1, 1).relu(), f"{block}.{pair}.conv2", 1, 1)
    return x.relu()


@pytest.mark.parametrize("written", [small, nature, impala], ids=lambda written: written.__name__)
@pytest.mark.parametrize("shape", [(64, 64, 3), (25, 17, 4)])
def test_an_encoder_is_its_layers_written_down_once_more(written, shape):
    """Fails for a missing ReLU or one too many, a wrong stride or padding, and a layer that is left out."""
    encoder, used = make(shape, encoder=written.__name__).encoder, set()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))  # so that biases count too
    weights = dict(encoder.named_parameters())

    def conv(x, name, stride, padding):
        used.update({f"{name}.weight", f"{name}.bias"})
        return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], stride, padding)

    with torch.no_grad():
        x = frames(shape).permute(0, 3, 1, 2) / 255
        torch.testing.assert_close(encoder(x), written(x, conv), atol=1e-5, rtol=1e-4)
    assert used == weights.keys()


@pytest.mark.parametrize(
    ("encoder", "kernels"),
    [
        ("small", [(16, 3, 3, 3), (32, 16, 3, 3), (32, 32, 3, 3), (32, 32, 3, 3), (32, 32, 3, 3)]),
        ("nature", [(32, 3, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]),
    ],
)
def test_kernels_have_the_sizes_of_the_paper(encoder, kernels):
    parameters = make(encoder=encoder).encoder.parameters()
    assert [tuple(parameter.shape) for parameter in parameters if parameter.ndim == 4] == kernels


def test_the_small_encoder_is_not_rectified_before_its_residual_pair_and_is_behind_it():
    smallest, slots = {}, slots_of("small")

    class Smallest(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, x):
            smallest[self.name] = x.min().item()
            return x

    for name in ("conv1", "conv2", "conv3", "residual"):
        slots.put(name, lambda site, name=name: Smallest(name))
    make(slots=slots, encoder="small")(frames((64, 64, 3)))
    assert smallest["conv3"] < 0
    assert smallest["conv1"] == smallest["conv2"] == smallest["residual"] == 0


# ---- the small encoder's convolutions in one pass --------------------------------------------------------------------


def in_one_pass(encoder, monkeypatch):
    """Whether the encoder's three convolutions go through the one kernel."""
    seen = []

    def watching(*arguments):
        seen.append(three_convolutions(*arguments) is not None)
        return three_convolutions(*arguments)

    monkeypatch.setattr("clop.rl.encoders.small.three_convolutions", watching)
    encoder(as_input(frames((64, 64, 3))))
    return seen == [True]


with_instruction = pytest.mark.skipif(not has_feature("avx512f"), reason="this processor has no AVX-512")


@with_instruction
@pytest.mark.parametrize("stage", ["conv1", "conv2", "conv3", "residual"])
def test_the_map_behind_a_stage_is_the_same_in_one_pass(stage, monkeypatch):
    """Fails when the stages behind the third are left out or run twice, or a map is that of another stage."""
    encoder, x = make(encoder="small").encoder, as_input(frames((64, 64, 3)))
    assert in_one_pass(encoder, monkeypatch)
    ours, whole = encoder.until(x, stage), encoder(x)
    monkeypatch.setattr("clop.rl.encoders.small.three_convolutions", lambda *_: None)
    assert torch.equal(ours, encoder.until(x, stage))
    assert torch.equal(whole, encoder.onward(ours, stage))


@with_instruction
@pytest.mark.parametrize("name", ["conv1", "conv1.0", "conv1.1", "conv1_out", "conv2", "conv2.1", "conv2_out", "conv3"])
def test_who_watches_a_layer_of_the_small_encoder_sees_what_goes_through_it(name, monkeypatch):
    """Fails if a hook, as for saliency maps, is passed by."""
    encoder, seen = make(encoder="small").encoder, []
    encoder.get_submodule(name).register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1]))
    assert not in_one_pass(encoder, monkeypatch)
    assert seen == [16 if name.startswith("conv1") else 32]


@with_instruction
@pytest.mark.parametrize("slot", ["conv1", "conv2", "input", "conv3"])
def test_a_layer_in_a_slot_of_the_small_encoder_is_passed_through(slot, monkeypatch):
    log, slots = [], slots_of("small")
    slots.put(slot, lambda site: Watch(slot, site, log))
    assert in_one_pass(make(slots=slots, encoder="small").encoder, monkeypatch) == (slot in ("input", "conv3"))
    assert [name for name, *_ in log] == [slot]


@with_instruction
def test_norms_and_layers_behind_convolutions_are_not_left_out(monkeypatch):
    log, slots = [], slots_of("small")
    slots.after_convolutions.append(lambda name, site: Watch(name, site, log))
    assert not in_one_pass(make(slots=slots, encoder="small").encoder, monkeypatch)
    assert len(log) == 5
    assert not in_one_pass(make(encoder="small", norm="block").encoder, monkeypatch)
