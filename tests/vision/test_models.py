"""The networks have the paper's shapes and sizes, and slots for layers."""

import pytest
import torch
from torch import nn

from clop.errors import UsageError
from clop.layer import CLOP
from clop.vision.models import NETWORKS, build


def count(*sizes, **settings):
    with torch.device("meta"):  # shapes without memory
        return sum(p.numel() for p in build(*sizes, **settings).parameters())


def test_the_small_cnn_is_the_papers():
    """Parameters counted by hand: 5×5×32, 5×5×32×64, 3×3×64×128 and dense 8192-512-100-10, with biases."""
    assert count("small_cnn", 1, 10, 32) == 832 + 51264 + 73856 + 4194816 + 51300 + 1010
    assert count("small_cnn", 1, 10, 32, batch_norm=True) - count("small_cnn", 1, 10, 32) == 2 * (32 + 64 + 128)
    model = build("small_cnn", 1, 10, 32)
    assert model.features(torch.zeros(2, 1, 32, 32)).shape == (2, 128, 8, 8)
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "plain", "batch_norm"),
    [("vgg11", 132_863_336, 132_868_840), ("vgg16", 138_357_544, 138_365_992)],
)
def test_vggs_have_as_many_parameters_as_torchvisions(name, plain, batch_norm):
    """At 224 pixels and 1000 classes. Fails if a convolution or its width is wrong anywhere."""
    assert count(name, 3, 1000, 224) == plain
    assert count(name, 3, 1000, 224, batch_norm=True) == batch_norm


def test_vgg9_is_vgg11_without_its_last_stage_with_batch_norm_too():
    """The first dense layer reads 512 × 6 × 6 = 18432 values at 96 pixels. The authors cut the two differently."""
    stages = [3 * 64, 64 * 128, 128 * 256, 256 * 256, 256 * 512, 512 * 512]
    widths = [64, 128, 256, 256, 512, 512]
    convolutions = sum(9 * size for size in stages) + sum(widths)
    dense = 18432 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 10 + 10
    assert count("vgg9", 3, 10, 96) == convolutions + dense == 96_824_714
    assert count("vgg9", 3, 10, 96, batch_norm=True) == convolutions + dense + 2 * sum(widths)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("size", [32, 45])
def test_any_size_of_image_goes_through(name, size, monkeypatch):
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda self: None)  # VGGs draw their own
    monkeypatch.setattr(nn.init, "normal_", lambda tensor, *_: nn.init.zeros_(tensor))
    model = build(name, 3, 7, size)
    with torch.no_grad():
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 7)


def test_images_that_pooling_would_use_up_are_refused():
    with pytest.raises(UsageError, match="nothing is left below 32 pixels, got 31"):
        build("vgg11", 3, 10, 31)


def test_layers_fill_the_slot_they_name_in_their_order():
    """Fails if CLOP comes before the pooling, or the second of two methods first."""
    layers = [CLOP(0.5), nn.Identity()]
    with torch.device("meta"):
        model = build("vgg9", 3, 10, 32, layers={"stage2": layers, "dense1": [nn.Dropout()]})
    assert [type(layer) for layer in model.stage2[-4:-2]] == [nn.MaxPool2d, nn.ReLU]
    assert list(model.stage2[-2:]) == layers
    assert isinstance(model.dense1[-1], nn.Dropout)
    assert model.stage_names == ("stage1", "stage2", "stage3", "stage4")


def spread(network, **settings):
    """Of the weights of each dense layer, and whether all biases of dense layers are 0."""
    torch.manual_seed(0)
    model = build(network, 3, 50, 16, **settings)
    dense = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return [layer.weight.std().item() for layer in dense], not any(layer.bias.any() for layer in dense)


def test_dense_layers_of_a_vgg_begin_as_in_the_authors_code():
    """They put new ``nn.Linear`` on torchvision's convolutions: uniform up to 1 / sqrt(inputs), whose deviation is
    0.0255 for 512 inputs and 0.0090 for 4096. Fails for torchvision's 0.01 everywhere, which is an option."""
    deviations, zero = spread("vgg9")
    assert deviations == pytest.approx([(3 * inputs) ** -0.5 for inputs in (512, 4096, 4096)], rel=0.01)
    assert not zero
    deviations, zero = spread("vgg9", dense_init="torchvision")
    assert deviations == pytest.approx([0.01] * 3, rel=0.01)
    assert zero


def test_convolutions_of_a_vgg_begin_as_torchvisions_whatever_the_dense_layers_do():
    """Kaiming's normal by the outputs: a deviation of sqrt(2 / (9 · 512)) in the last stage of VGG9."""
    for dense_init in ("pytorch", "torchvision"):
        torch.manual_seed(0)
        convolution = build("vgg9", 3, 10, 16, dense_init=dense_init).stage4[2]
        assert convolution.weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)
        assert not convolution.bias.any()


def test_batch_norm_follows_the_relu_in_the_small_cnn_and_comes_before_it_in_vggs():
    small = build("small_cnn", 1, 10, 8, batch_norm=True)
    assert [type(layer).__name__ for layer in small.stage1] == ["Conv2d", "ReLU", "BatchNorm2d", "MaxPool2d"]
    with torch.device("meta"):
        vgg = build("vgg9", 1, 10, 16, batch_norm=True)
    assert [type(layer).__name__ for layer in vgg.stage1] == ["Conv2d", "BatchNorm2d", "MaxPool2d", "ReLU"]


def test_pooling_before_relu_changes_no_bit():
    """Fails if they are swapped where batch norm lies between them, or if ReLU in place spoils a gradient."""

    def textbook(stage):
        convolution, pool, _ = stage
        return nn.Sequential(convolution, nn.ReLU(), pool)

    torch.manual_seed(0)
    ours = build("small_cnn", 1, 10, 16)
    images = torch.randn(8, 1, 16, 16)
    theirs = nn.Sequential(
        *(textbook(ours.stage1), textbook(ours.stage2), ours.stage3[0], nn.ReLU(), nn.Flatten()),
        *(ours.dense1[0], nn.ReLU(), ours.dense2[0], nn.ReLU(), ours.head),
    )
    results = []
    for network in (ours, theirs):
        ours.zero_grad()
        logits = network(images)
        logits.square().sum().backward()
        results.append([logits, *(parameter.grad for parameter in ours.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert not results[0][0].isnan().any()


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_known_of_a_network_is_true_of_the_network(name):
    """Fails for an entry with a stage too few, or a smallest image of which more or less than one pixel is left."""
    network = NETWORKS[name]
    with torch.device("meta"):
        model = build(name, 3, 10, network.smallest_image)
        assert model.stage_names == network.stages
        assert model.features(torch.zeros(1, 3, *[network.smallest_image] * 2)).shape[2:] == (1, 1)
    with pytest.raises(UsageError, match=f"below {network.smallest_image} pixels"):
        build(name, 3, 10, network.smallest_image - 1)


def test_unknown_networks_are_reported_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'vgg11'"):
        build("vgg111", 3, 10, 32)
