"""Kornia's augmentations, written by others, as a check of ours; and the benchmark that compares their speeds."""

import json
import sys

import pytest
import torch

from clop.augment import AUGMENTATIONS, Crop, Flip, Grayscale, Rotate, Rotation
from clop.bench import pixels
from clop.bench.pixels import COUNTERPARTS, Counterpart
from clop.cli import main


@pytest.fixture
def images():
    return torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def kornias(name, images, **settings):
    return Counterpart(name, settings).build()(images)


def test_flip_and_grayscale_are_kornias(images):
    assert torch.equal(Flip(p=1)(images), kornias("RandomHorizontalFlip", images, p=1.0))
    torch.testing.assert_close(Grayscale()(images), kornias("RandomGrayscale", images, p=1.0))


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_quarter_turn_is_kornias(images, turns):
    """Fails for turns in the other direction, which four of them do not tell."""
    ours = Rotate().apply(images, {"turns": torch.full((6,), turns)})
    theirs = kornias("RandomRotation90", images, times=(turns, turns), p=1.0)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("degrees", [-15.0, 7.0])
def test_a_tilt_is_kornias(images, degrees):
    """But for the outermost pixels, where it depends on the reading whether a half is beyond the edge."""
    ours = Rotation().apply(images, {"angle": torch.full((6,), degrees)})
    theirs = kornias("RandomRotation", images, degrees=(degrees, degrees), p=1.0)
    inside = (..., slice(12, 52), slice(12, 52))
    torch.testing.assert_close(ours[inside], theirs[inside], atol=1e-4, rtol=0)


def test_a_crop_is_kornias(images):
    """Each sample at the place that kornia drew for it; fails for rows and columns exchanged, or another edge."""
    settings = COUNTERPARTS["crop"].settings
    module = Counterpart("RandomCrop", settings).build()
    theirs = module(images)
    corner = module._params["src"][:, 0] - settings["padding"]  # (N, 2), right and down
    ours = Crop().apply(images, {"right": corner[:, 0].long(), "down": corner[:, 1].long()})
    assert len(corner.unique()) > 6
    torch.testing.assert_close(ours, theirs)


def test_what_is_said_to_be_the_same_is_compared_here():
    same = {name for name, counterpart in COUNTERPARTS.items() if not counterpart.differs}
    assert same == {"crop", "flip", "grayscale", "rotate", "rotation"}
    assert COUNTERPARTS.keys() < AUGMENTATIONS.keys()


def test_every_counterpart_has_a_turn(monkeypatch, capsys):
    """Ours get bytes and theirs floats; both give the network floats."""
    given = []

    def measure(functions, rounds):
        given.extend(function() for function in functions.values())
        return dict(zip(functions, (0.001, 0.004), strict=True))

    monkeypatch.setattr(pixels, "interleaved", measure)
    assert main(["bench", "pixels", "--json", "--rounds", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kind"] == "bench pixels"
    assert [(row["what"], row["ratio"]) for row in record["metrics"]["rows"]] == [(n, 0.25) for n in COUNTERPARTS]
    assert all(frames.dtype == torch.float32 and frames.shape == (128, 3, 64, 64) for frames in given)
    assert all(frames.min() >= -1e-5 and frames.max() <= 1 + 1e-5 for frames in given)


def test_without_kornia_the_benchmark_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "kornia", None)
    assert main(["bench", "pixels"]) == 2
    assert "pip install kornia" in capsys.readouterr().err
