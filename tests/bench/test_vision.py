"""The benchmarks of classifiers compare what they say they compare."""

import pytest
import torch
from torch import nn

from clop.bench import augment, vision
from clop.vision.datasets import Images
from clop.vision.models import SmallCNN, build
from clop.vision.tasks import Task
from clop.vision.train import normalised


def test_a_ratio_is_taken_round_by_round():
    """A machine that is three times slower in one round: the medians of the two loops would say 3 or 1, not 2."""
    rows = vision.compare({"plain": [2.0, 6.0], "ours": [1.0, 3.0]}, 100, {"ours": "plain"})
    assert rows[0].images_per_second == pytest.approx(25)
    assert rows[1].ratio == pytest.approx(2)
    assert rows[1].quartiles == pytest.approx((2, 2))


def test_the_plain_loop_is_plain_and_learns(monkeypatch):
    """Fails if the baseline is made slow by doing more than ours, or nothing at all."""
    seen, forward = [], nn.Sequential.forward
    monkeypatch.setattr(nn.Sequential, "forward", lambda self, x: seen.append(x) or forward(self, x))
    ours, weights = build("small_cnn", 1, 10, 32), []
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: weights.append(self.param_groups[0]["params"]))
    vision.plain_loop(2)()
    assert [tuple(x.shape) for x in seen] == [(64, 1, 32, 32)] * 2
    assert [w.shape for w in weights[0]] == [w.shape for w in ours.parameters()]
    assert all(w.grad.any() for w in weights[0])
    assert all(x.dtype == torch.float32 and x.is_contiguous() for x in seen)
    task = vision._task(2)
    ours = normalised(task.train.pixels, task)
    assert torch.cat(seen).sum().item() == pytest.approx(ours.sum().item(), rel=1e-3)


@pytest.mark.slow
def test_loops_take_turns_in_processes_of_their_own():
    rows = vision.measure(vision.Settings(rounds=1, batches=1, threads=1))
    assert [row.what for row in rows] == ["plain loop", "ours", "ours with CLOP", "ours, VGG9 at 96 px"]
    assert all(row.images_per_second > 0 for row in rows)
    assert [row.baseline for row in rows] == [None, "plain loop", "ours", None]
    assert 0 < rows[-1].share_of_peak < 1.1, "nothing is faster than the peak but for noise"


def test_the_share_of_peak_is_taken_round_by_round():
    """64 images of 2 GFLOP: the machine is half as fast in the second round, and so is its peak."""
    row = vision.share_of_peak([1.0, 2.0], [256.0, 128.0], 2.0)
    assert row.share_of_peak == pytest.approx(0.5)


def test_the_work_of_vgg9_counts_its_dense_layers():
    """Fails if what oneDNN multiplies is not seen by the counter. By hand: 2 operations of each weight and position,
    three times but for the first convolution, whose input needs no gradient."""
    sizes = [(3, 64, 96), (64, 128, 48), (128, 256, 24), (256, 256, 24), (256, 512, 12), (512, 512, 12)]
    first, *others = [2 * 9 * inputs * outputs * side**2 for inputs, outputs, side in sizes]
    dense = 2 * (512 * 6 * 6 * 4096 + 4096 * 4096 + 4096 * 10)
    assert vision.vgg_gflop() == pytest.approx((2 * first + 3 * (sum(others) + dense)) / 1e9)


def test_costs_are_beside_the_papers():
    rows = {row.method: row for row in augment.compare("mnist", {"plain": 2.0, "crop": 3.0, "random_conv": 4.0}, "x")}
    assert rows["crop"].ratio == pytest.approx(1.5)
    assert rows["crop"].paper_ratio == pytest.approx(16.8 / 6.6)
    assert rows["random_conv"].paper_ratio is None, "printed N/A"


def test_every_method_passes_over_every_image_in_training_mode(monkeypatch):
    seen, forward = [], SmallCNN.forward
    monkeypatch.setattr(SmallCNN, "forward", lambda self, x: seen.append((len(x), self.training)) or forward(self, x))
    pixels = torch.randint(256, (100, 1, 16, 16), dtype=torch.uint8)
    task = Task("mnist-usps", 10, Images(pixels, torch.zeros(100, dtype=torch.long)), {})
    rows = augment.time_methods("mnist", task, "small_cnn")
    assert [row.method for row in rows] == list(augment.METHOD_NAMES)
    assert rows[0].ratio == 1
    warm_up = len(augment.METHOD_NAMES) * 64
    assert sum(count for count, _ in seen) == warm_up + len(augment.METHOD_NAMES) * 100
    assert all(training for _, training in seen)
