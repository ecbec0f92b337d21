"""Training: the protocol, what is measured in which mode, and a state from which it goes on bit for bit."""

import dataclasses
import io
import math

import pytest
import torch

from clop.errors import DivergedError, UsageError
from clop.vision import tasks
from clop.vision.datasets import Images
from clop.vision.methods import Clop, Crop, Dropout, Mixup
from clop.vision.models import build
from clop.vision.tasks import Task
from clop.vision.train import Trainer, VisionConfig, accuracy, batches, normalised, paper_config, train


def config(**settings):
    return VisionConfig(**({"task": "digits", "network": "small_cnn", "image_size": 8, "epochs": 3} | settings))


NOISY = {"crop": Crop(), "clop": Clop(), "dropout": Dropout(), "mixup": Mixup()}


def test_a_run_goes_on_bit_for_bit_from_any_moment(noise_task):
    """Weights, optimiser and rows, through a file, in the middle of an epoch and at its end."""
    task = noise_task(channels=3, flip=True)
    settings = config(methods=NOISY, batch_size=16)

    def trainer():
        made = Trainer(settings, task)
        made.part = 2  # three parts an epoch, the last one shorter
        return made

    whole, states, rows = trainer(), [], []
    while not whole.done:
        file = io.BytesIO()
        torch.save(whole.state(), file)
        states.append(file.getvalue())
        rows.append(whole.advance())
    assert len(rows) == 9
    for number, content in enumerate(states):
        resumed = trainer()
        resumed.load(torch.load(io.BytesIO(content), weights_only=True))
        repeated = []
        while not resumed.done:
            repeated.append(resumed.advance())
        assert repeated == rows[number:]
        for name, value in resumed.state()["model"].items():
            assert torch.equal(value, whole.state()["model"][name])
    assert resumed.running_accuracy == whole.running_accuracy


def test_a_run_does_not_go_on_with_other_images(noise_task, tiny):
    state = Trainer(config(), tiny).state()
    other = noise_task(count=71)
    with pytest.raises(UsageError, match="begun on other images"):
        Trainer(config(), other).load(state)


def test_the_learning_rate_follows_a_cosine_stepped_once_an_epoch(tiny):
    trainer = Trainer(config(epochs=4, batch_size=16), tiny)
    trainer.part = 2
    rates = []
    while not trainer.done:
        rates.append(trainer.advance()["learning_rate"])
    expected = [5e-4 * (1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(4) for _ in range(3)]
    assert rates == pytest.approx(expected)


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own(tiny):
    """Fails if parts overlap, if the last batch is dropped, or if every epoch has the same order."""
    trainer = Trainer(config(epochs=2, batch_size=16), tiny)
    trainer.part = 2
    seen = []
    trainer.batch = lambda pixels, labels: seen.append(pixels) or Trainer.batch(trainer, pixels, labels)
    while not trainer.done:
        trainer.advance()
    images = [image.numpy().tobytes() for pixels in seen for image in pixels]
    first, second = images[:70], images[70:]
    everything = sorted(image.numpy().tobytes() for image in tiny.train.pixels)
    assert sorted(first) == sorted(second) == everything
    assert first != second


def test_the_running_accuracy_is_that_of_the_weights_while_they_move(tiny):
    """In training mode with the noise on, as the paper reports; the training accuracy is after, and without."""
    modes = []
    trainer = Trainer(config(epochs=1, methods={"clop": Clop()}), tiny)
    trainer.model.register_forward_hook(lambda module, *_: modes.append(module.training))
    row = trainer.advance()
    result = trainer.result()
    assert modes == [True, True, False, False, False], "two batches, a test, then training images and the test again"
    assert result.running_accuracy == row["running_accuracy"]
    assert set(result.test_accuracy) == {"noise"}


def test_with_weights_that_do_not_move_the_running_accuracy_is_the_training_accuracy(tiny):
    """In every epoch; fails for a wrong denominator, and when the count goes on from the epoch before."""
    trainer = Trainer(config(epochs=2, learning_rate=0.0), tiny)
    rows = [trainer.advance() for _ in range(2)]
    assert [row["running_accuracy"] for row in rows] == pytest.approx([accuracy(trainer.model, tiny.train, tiny)] * 2)


def test_accuracy_is_measured_in_evaluation_mode_and_gives_the_mode_back(tiny):
    """Fails if CLOP or batch norm is active in a test."""
    modes = []
    model = build("small_cnn", 1, 10, 8).train()
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    accuracy(model, tiny.train, tiny)
    assert modes == [False]
    assert model.training


def test_accuracy_counts_every_image(tiny):
    """Fails if an average over batches weighs a short last one like the others."""
    head = build("small_cnn", 1, 10, 8)
    torch.nn.init.zeros_(head.head.weight)
    head.head.bias.data = torch.tensor([1.0] + [0.0] * 9)
    large = Task("digits", 10, Images(tiny.train.pixels.repeat(8, 1, 1, 1), tiny.train.labels.repeat(8)), {})
    share = (large.train.labels == 0).float().mean().item()
    assert accuracy(head, large.train, large) == pytest.approx(100 * share)


def test_tests_come_as_often_as_asked_and_change_nothing(tiny):
    def run(every):
        trainer = Trainer(config(epochs=4, test_every=every), tiny)
        rows = []
        while not trainer.done:
            rows.append(trainer.advance())
        return ["test_accuracy_noise" in row for row in rows], trainer.model.head.weight

    never, often = run(0), run(2)
    assert never[0] == [False] * 4
    assert often[0] == [False, True, False, True]
    assert torch.equal(never[1], often[1])


def test_a_loss_that_is_no_number_stops_the_run(tiny):
    trainer = Trainer(config(), tiny)
    trainer.model.head.bias.data.fill_(float("nan"))
    with pytest.raises(DivergedError, match="no longer a number"):
        trainer.advance()


def test_batches_are_channels_last_bytes(noise_task):
    task = noise_task(channels=3)
    ((pixels, labels),) = batches(task.train, torch.tensor([3, 1]), 64, "cpu")
    assert torch.equal(pixels, task.train.pixels[[3, 1]])
    assert pixels.dtype == torch.uint8
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(labels, task.train.labels[[3, 1]])
    planes = Images(task.train.pixels.contiguous(), task.train.labels)
    assert torch.equal(next(batches(planes, torch.tensor([3, 1]), 64, "cpu"))[0], pixels), "in any memory format"


def test_pixels_are_scaled_to_the_range_of_the_task(noise_task):
    task = noise_task()
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    assert normalised(ends, task).flatten().tolist() == pytest.approx([-1.0, 1.0])
    floats = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
    assert normalised(floats, task).flatten().tolist() == pytest.approx([-1.0, 1.0])
    assert floats.flatten().tolist() == [0, 1], "what is given stays as it is"
    colours = dataclasses.replace(noise_task(channels=3), mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    white = normalised(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), colours)
    assert white.flatten().tolist() == pytest.approx([1.0, 3.0, 1.0])


def test_half_of_the_images_are_mirrored_where_the_protocol_says_so(noise_task):
    task = noise_task(flip=True)
    pixels = task.train.pixels
    images = Trainer(config(), task).batch(pixels, task.train.labels).images
    plain = normalised(pixels, task)
    mirrored = [torch.equal(images[i], plain[i].flip(-1)) for i in range(len(pixels))]
    same = [torch.equal(images[i], plain[i]) for i in range(len(pixels))]
    assert all(a or b for a, b in zip(mirrored, same, strict=True))
    assert 15 < sum(mirrored) < 55


def test_the_digits_are_learnt():
    """Fails with labels in another order than images, or a loss that is not descended."""
    task = tasks.load("digits", image_size=16, train_images=600)
    settings = paper_config("digits", image_size=16, epochs=4, batch_size=16, learning_rate=1e-3, test_every=0)
    result = train(settings, task)
    assert result.test_accuracy["centred"] > 50  # chance is 10


def test_settings_survive_a_file_and_nonsense_is_refused():
    settings = config(methods=NOISY)
    assert VisionConfig.fromdict(settings.asdict()) == settings
    assert settings.method == "crop+clop+dropout+mixup"
    assert config().method == "plain"
    with pytest.raises(UsageError, match="epochs must be at least 1, got 0"):
        config(epochs=0)
    with pytest.raises(UsageError, match="must be one of stage1, stage2, stage3 in small_cnn, got 'stage9'"):
        config(methods={"clop": Clop(slot="stage9")})
    with pytest.raises(UsageError, match="below 16 pixels, got 8"):
        config(network="vgg9")
    with pytest.raises(UsageError, match="unknown dense_init 'torchvison'; did you mean 'torchvision'"):
        config(dense_init="torchvison")
