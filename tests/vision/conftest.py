"""Tiny files in the formats of the data sets, and small tasks."""

import bz2
import gzip
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from clop.vision.datasets import Images
from clop.vision.tasks import Task


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of the test's own: nothing is read from the user's, or left in it."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CLOP_CACHE", str(folder))
    return folder


def write_idx(path, array):
    """MNIST's format: magic number, sizes, bytes."""
    header = struct.pack(f">{array.ndim + 1}I", 2048 + array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def write_libsvm(path, images, labels):
    """USPS's format: labels from 1 and values in [-1, 1], as text."""
    lines = [
        f"{label + 1} " + " ".join(f"{i + 1}:{value / 127.5 - 1:.3f}" for i, value in enumerate(image.flatten())) + " "
        for image, label in zip(images, labels, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bz2.compress(("\n".join(lines) + "\n").encode()))


def write_class_folder(folder, classes, count=2, size=(20, 12)):
    """Images of one colour for each class, as JPEG files."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            colour = (25 * number, 255 - 25 * number, 10 * i)
            Image.new("RGB", size, colour).save(folder / name / f"{name}_{i}.JPEG", quality=95)


@pytest.fixture
def write():
    """The writers of the formats."""
    return SimpleNamespace(idx=write_idx, libsvm=write_libsvm, class_folder=write_class_folder)


@pytest.fixture
def mnist_usps(tmp_path):
    """A folder with 30 digits of MNIST and 20 of USPS."""
    rng = np.random.default_rng(0)
    write_idx(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", rng.integers(0, 256, (30, 28, 28)))
    write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte.gz", np.arange(30) % 10)
    write_libsvm(tmp_path / "usps" / "usps.t.bz2", rng.integers(0, 256, (20, 16, 16)), np.arange(20) % 10)
    return tmp_path


def _noise_task(count=70, channels=1, size=8, flip=False):
    """Random images and classes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (count, channels, size, size), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (count,), generator=generator)
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    images = Images(pixels, labels)
    return Task("digits", 10, images, {"noise": Images(pixels[:20], labels[:20])}, flip=flip, source="noise")


@pytest.fixture
def noise_task():
    return _noise_task


@pytest.fixture
def tiny():
    return _noise_task()
