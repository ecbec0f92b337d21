"""Classification: the digits task, the small CNN, its methods and their training."""

import dataclasses

import pytest
import torch

from clop.errors import UsageError
from clop.vision import data, methods
from clop.vision.data import Images, Task
from clop.vision.methods import BatchNorm, Clop, Dropout, Method
from clop.vision.models import SmallCNN
from clop.vision.train import VisionConfig, accuracy, batches, normalised, train


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


@pytest.fixture(scope="module")
def tiny(digits):
    """A few digits, for runs of a second."""
    few = Images(digits.train.pixels[:128], digits.train.labels[:128])
    return dataclasses.replace(digits, train=few, tests={"centred": few})


def weights(config, task, method):
    return [p.clone() for p in train(config, task, method).model.parameters()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_digits_are_drawn_small_for_training_and_fill_the_frame_in_one_test(digits):
    assert digits.train.pixels.shape == (1198, 1, 32, 32)
    for images in (digits.train, digits.tests["centred"]):
        margin = images.pixels.clone()
        margin[..., 6:26, 6:26] = 0
        assert margin.max() == 0
    assert digits.tests["filled"].pixels[..., 0, :].max() > 0
    assert torch.equal(digits.tests["filled"].labels, digits.tests["centred"].labels)


def test_no_test_digit_is_trained_on(digits):
    trained = {image.numpy().tobytes() for image in digits.train.pixels}
    assert not trained & {image.numpy().tobytes() for image in digits.tests["centred"].pixels}


def test_the_small_cnn_is_the_papers():
    """Parameters counted by hand: 5×5×32, 5×5×32×64, 3×3×64×128 and dense 8192-512-100-10, with biases."""
    model = SmallCNN(1, 10, 32)
    assert sum(p.numel() for p in model.parameters()) == 832 + 51264 + 73856 + 4194816 + 51300 + 1010
    assert model.stage3(model.stage2(model.stage1(torch.zeros(2, 1, 32, 32)))).shape == (2, 128, 8, 8)
    assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 10)


def test_layers_go_to_the_place_they_name():
    model = SmallCNN(1, 10, 32, layers=Clop(0.3).layers(SmallCNN.deepest))
    assert model.stage3[-1].alpha == 0.3
    assert sum(isinstance(m, torch.nn.BatchNorm2d) for m in SmallCNN(1, 10, 32, batch_norm=True).modules()) == 3


@pytest.mark.parametrize("method", [Clop(alpha=0.0), Dropout(p=0.0)], ids=lambda method: type(method).__name__)
def test_a_method_of_no_strength_trains_bit_for_bit_like_the_plain_network(method, tiny):
    config = VisionConfig("digits", epochs=1)
    assert same(weights(config, tiny, method), weights(config, tiny, Method()))


@pytest.mark.parametrize("method", [Clop(), Dropout(), BatchNorm()], ids=lambda method: type(method).__name__)
def test_a_method_changes_training_and_a_seed_repeats_it(method, tiny):
    config = VisionConfig("digits", epochs=1)
    once = train(config, tiny, method)
    assert same(list(once.model.parameters()), weights(config, tiny, method))
    assert not same(weights(dataclasses.replace(config, seed=1), tiny, method), list(once.model.parameters()))
    if not isinstance(method, BatchNorm):
        assert not same(list(once.model.parameters()), weights(config, tiny, Method()))


def test_the_digits_are_learnt(digits):
    """Fails with labels in another order than images, or a loss that is not descended."""
    half = dataclasses.replace(digits, train=Images(digits.train.pixels[:600], digits.train.labels[:600]))
    result = train(VisionConfig("digits", epochs=3), half, Method())
    assert result.test_accuracy["centred"] > 50  # chance is 10


def test_accuracy_is_measured_in_evaluation_mode_and_gives_the_mode_back(tiny):
    """Fails if CLOP or batch norm is active in a test."""
    modes = []
    model = SmallCNN(1, 10, 32).train()
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    accuracy(model, tiny.train, tiny)
    assert modes == [False]
    assert model.training


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own(tiny):
    shuffle = torch.Generator().manual_seed(0)
    first, second = (
        [label for _, labels in batches(tiny.train, 50, "cpu", shuffle) for label in labels.tolist()] for _ in "ab"
    )
    assert sorted(first) == sorted(second) == sorted(tiny.train.labels.tolist())
    assert first != second


def test_pixels_are_scaled_to_the_range_of_the_task():
    task = Task(2, Images(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), torch.zeros(1)), {}, mean=0.5, std=0.5)
    x = normalised(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1), task)
    assert x.flatten().tolist() == pytest.approx([-1.0, 1.0])


def test_unknown_names_are_told_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        data.load("digit")
    with pytest.raises(UsageError, match="did you mean 'dropout'"):
        methods.named("dropuot")
