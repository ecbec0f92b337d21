"""Putting a layer into networks of the usual kinds: where it lands, and when it is refused."""

import copy
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clop import CLOP, insert


def sequential():
    """Maps 30x30, 15x15, 13x13; then flattened."""
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 5, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(5 * 13 * 13, 10)),
    )


class Vgg(nn.Module):
    """As in torchvision: features, a pool to 7x7, classifier."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(nn.Conv2d(4, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(nn.Linear(5 * 49, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 10))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x
        return self.relu(out)


class ResNet(nn.Module):
    """Two stages of residual blocks, the second at half the size; ``head`` turns the last map into rows."""

    def __init__(self, head, features):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Block(4), Block(4))
        self.down = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.layer2 = nn.Sequential(Block(6), Block(6))
        self.head = head
        self.fc = nn.Linear(features, 10)

    def forward(self, x):
        return self.fc(self.head(self.layer2(self.down(self.layer1(self.stem(x))))))


class SpatialMean(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def flat_resnet():
    return ResNet(nn.Flatten(), 6 * 8 * 8)


class FunctionalMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3, stride=2), nn.Conv2d(4, 5, 3), nn.Linear(5, 10)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).mean((2, 3)))


class SharedPool(nn.Module):
    """One pooling module used twice, as many write it; the second result is the deepest map."""

    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(5 * 36, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc(x.flatten(1))


class ChangedInPlace(nn.Module):
    """The deepest map is changed in place after the last module that returned it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(5 * 28 * 28, 10)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(self.conv1(x)), inplace=True).flatten(1))


EXAMPLE = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
PLACES = [
    pytest.param(sequential, "4", id="sequential"),
    pytest.param(Vgg, "avgpool", id="VGG"),
    pytest.param(flat_resnet, "layer2.1", id="ResNet"),
]
networks = pytest.mark.parametrize("make", [p.values[0] for p in PLACES], ids=[p.id for p in PLACES])


def place(model):
    """The name of the module that the one CLOP is a child of."""
    (name,) = [name for name, module in model.named_modules() if isinstance(module, CLOP)]
    return name.rpartition(".")[0]


@pytest.mark.parametrize("example", [EXAMPLE, None])
@pytest.mark.parametrize(("make", "expected"), PLACES)
def test_the_layer_lands_after_the_deepest_map(make, expected, example):
    """After the last in-place ReLU of a residual block and not after its first, though it is one module run twice."""
    model = make()
    assert insert(model, 0.5, example=example) is model
    assert place(model) == expected


@pytest.mark.parametrize(("make", "expected"), PLACES)
def test_the_layer_acts_on_that_map_once_and_only_in_training(make, expected):
    model = make().eval()
    with torch.no_grad():
        before = model(EXAMPLE)
        insert(model, 1.0, example=EXAMPLE)
        maps = []
        layer = model.get_submodule(expected + ".clop")
        layer.register_forward_hook(lambda _, inputs, output: maps.append((inputs[0], output)))
        assert torch.equal(model(EXAMPLE), before)
        ((x, y),) = maps
        assert y is x
        layer.train()
        after = model(EXAMPLE)
    x, y = maps[1]
    assert not torch.equal(y, x)
    assert torch.equal(y.flatten(2).sort().values, x.flatten(2).sort().values)
    assert not torch.allclose(after, before)


HEADS = {
    "adaptive pool": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "pool of the whole map": lambda: nn.Sequential(nn.AvgPool2d(8), nn.Flatten()),
    "max pool": lambda: nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()),
    "mean": SpatialMean,
}


@pytest.mark.parametrize("head", HEADS)
def test_before_a_global_pool_the_layer_is_refused_and_the_stage_before_suggested(head):
    model = ResNet(HEADS[head](), 6)
    sentence = r"^a CLOP after 'layer2\.1' would do nothing: .*; put it further up, such as after='layer1(\.1)?'$"
    with pytest.raises(ValueError, match=sentence) as refusal:
        insert(model, 0.5, example=EXAMPLE)
    assert not any(isinstance(module, CLOP) for module in model.modules())
    suggestion = re.search(r"after='(.*)'", str(refusal.value))[1]
    assert place(insert(model, 0.5, after=suggestion, example=EXAMPLE)) == suggestion


def test_a_mean_in_the_forward_is_seen_too():
    with pytest.raises(ValueError, match=r"^a CLOP after 'conv2' would do nothing: .*, such as after='conv1'$"):
        insert(FunctionalMean(), 0.5, example=EXAMPLE)


def test_a_named_place_is_refused_as_well_when_an_example_shows_that_it_does_nothing():
    with pytest.raises(ValueError, match=r"^a CLOP after 'conv2' would do nothing"):
        insert(FunctionalMean(), 0.5, after="conv2", example=EXAMPLE)
    assert place(insert(FunctionalMean(), 0.5, after="conv2")) == "conv2"  # without an example, as told


def test_a_module_that_runs_twice_is_refused():
    """A layer after it would run twice as well, on the shallow map too."""
    with pytest.raises(ValueError, match=r"^'pool' runs 2 times in one pass, .*, such as after='conv2'$"):
        insert(SharedPool(), 0.5, example=EXAMPLE)


def test_a_map_changed_in_place_after_its_module_can_still_be_followed():
    """It acts position by position, so the layer may come before it. Fails if only unchanged maps count."""
    assert place(insert(ChangedInPlace(), 0.5, example=EXAMPLE)) == "conv2"


@pytest.mark.parametrize("name", ["features", "features.3", "avgpool"])
@pytest.mark.parametrize("example", [EXAMPLE, None])
def test_a_named_submodule_is_followed(name, example):
    model = insert(Vgg(), 0.5, after=name, example=example)
    assert place(model) == name
    assert model(EXAMPLE).shape == (2, 10)


def test_after_a_sequential_the_layer_runs_once():
    """It is its last child there, and needs no hook; fails when it runs as a child and again by a hook."""
    model = insert(Vgg(), 1.0, after="features")
    calls = []
    model.features.clop.register_forward_hook(lambda *_: calls.append(1))
    model(EXAMPLE)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("featurs", "unknown submodule 'featurs'; did you mean 'features'?"),
        ("classifier.9", "unknown submodule 'classifier.9'; did you mean 'classifier."),
    ],
)
def test_an_unknown_submodule_is_refused_with_a_suggestion(name, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        insert(Vgg(), 0.5, after=name)


def test_a_submodule_that_returns_no_map_is_refused():
    with pytest.raises(
        ValueError, match=r"^'classifier\.0' returns no feature map of more than one position; the deepest is"
    ):
        insert(Vgg(), 0.5, after="classifier.0", example=EXAMPLE)


def test_a_network_without_maps_is_refused():
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
    with pytest.raises(ValueError, match=r"no submodule returns a feature map .* for an input of shape \(2, 4\)$"):
        insert(network, 0.5, example=torch.rand(2, 4))
    with pytest.raises(ValueError, match=r"^cannot guess what the model takes; give insert an example"):
        insert(network, 0.5)


def test_a_guess_that_fails_for_all_sizes_asks_for_an_example():
    class NeedsTwo(nn.Conv2d):
        def forward(self, x, y):
            return super().forward(x + y)

    with pytest.raises(ValueError, match=r"^cannot guess what the model takes"):
        insert(NeedsTwo(3, 4, 3), 0.5)


@pytest.mark.parametrize("size", [28, 64, 84])
@pytest.mark.parametrize("channels", [1, 4])
def test_the_usual_sizes_are_guessed(size, channels):
    model = nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(2 * (size - 2) ** 2, 3))
    assert place(insert(model, 0.5)) == "0"


def test_a_second_layer_is_refused():
    with pytest.raises(ValueError, match=r"^the model has a CLOP already; set its alpha"):
        insert(insert(sequential(), 0.5), 0.5)


def test_a_bad_alpha_is_refused_before_anything_happens():
    with pytest.raises(ValueError, match=r"^alpha is a probability and must lie in"):
        insert(None, 1.5)


@networks
def test_checkpoints_fit_before_and_after(make):
    old, model = make(), insert(make(), 0.5, example=EXAMPLE)
    assert [*model.state_dict()] == [*old.state_dict()]
    model.load_state_dict(old.state_dict())
    old.load_state_dict(model.state_dict())


@networks
def test_weights_statistics_and_modes_are_left_as_they_were(make):
    """The search runs the network. Fails when batch norm counts that pass, or a frozen part is thawed."""
    model = make().train()
    next(iter(model.children())).eval()
    modes = {name: module.training for name, module in model.named_modules()}
    hooks = {
        name: len(module._forward_hooks) + len(module._forward_pre_hooks) for name, module in model.named_modules()
    }
    state = copy.deepcopy(model.state_dict())
    insert(model, 0.5, example=EXAMPLE)
    assert {name: model.get_submodule(name).training for name in modes} == modes
    added = {n: len(m._forward_hooks) + len(m._forward_pre_hooks) - hooks.get(n, 0) for n, m in model.named_modules()}
    assert {name for name, number in added.items() if number} <= {place(model)}
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_and_hooks_are_restored_when_the_network_fails():
    model = sequential().train()
    with pytest.raises(RuntimeError):
        insert(model, 0.5, example=torch.rand(2, 3, 9, 9))
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@networks
@pytest.mark.parametrize("example", [EXAMPLE, None])
def test_torch_s_randomness_is_left_alone(make, example):
    model, before = make(), torch.get_rng_state()
    insert(model, 0.5, example=example)
    assert torch.equal(torch.get_rng_state(), before)


@networks
def test_in_an_evaluating_network_the_layer_evaluates(make):
    model = make().eval()
    before = model(EXAMPLE)
    insert(model, 0.9, example=EXAMPLE)
    assert not any(module.training for module in model.modules())
    assert torch.equal(model(EXAMPLE), before)


@networks
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_runs_its_own_layer(make, copied):
    """Fails when the hook of the copy runs the child of the original."""
    model = insert(make(), 0.9, example=EXAMPLE).eval()
    other = copied(model)
    other.get_submodule(place(other) + ".clop").train()
    assert not torch.allclose(other(EXAMPLE), model(EXAMPLE))
    assert torch.equal(model(EXAMPLE), other.eval()(EXAMPLE))


@networks
def test_the_network_compiles_in_one_graph(make):
    torch._dynamo.reset()
    model = insert(make(), 0.9, example=EXAMPLE).eval()
    model.get_submodule(place(model) + ".clop").train()
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    torch.manual_seed(0)
    expected = model(EXAMPLE)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(EXAMPLE), expected)
    torch._dynamo.reset()


@networks
def test_the_exported_network_holds_nothing_of_the_layer(make):
    model = insert(make(), 0.9, example=EXAMPLE).eval()
    program = torch.export.export(model, (EXAMPLE,))
    assert not any("clop" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(EXAMPLE), model(EXAMPLE))


def test_one_and_three_dimensional_networks_are_served_too():
    sound = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 14, 5))
    assert place(insert(sound, 0.5, example=torch.rand(2, 2, 16))) == "1"
    video = nn.Sequential(nn.Conv3d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 8, 5))
    assert place(insert(video, 0.5, example=torch.rand(2, 2, 4, 4, 4))) == "1"


def test_frames_of_bytes_are_an_example_as_well():
    class Scaled(nn.Sequential):
        def forward(self, x):
            return super().forward(x.float() / 255)

    model = Scaled(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 5))
    assert place(insert(model, 0.5, example=torch.zeros(2, 3, 8, 8, dtype=torch.uint8))) == "0"
