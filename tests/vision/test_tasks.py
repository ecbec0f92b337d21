"""Tasks: what is trained and tested on, from files in their usual decode."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from clop.errors import UsageError
from clop.vision import datasets, decode, tasks
from clop.vision.tasks import TASKS

REAL = Path(os.environ.get("CLOP_TEST_DATA", "no real data sets"))
real = pytest.mark.skipif(not REAL.is_dir(), reason="CLOP_TEST_DATA names no folder with real data sets")


# ---- digits ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return tasks.load("digits")


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


def test_fewer_images_are_the_same_for_everyone_and_of_all_classes(digits):
    """Fails if the first images are taken, which in class folders are of one class, or if seeds see different ones."""
    some = tasks.load("digits", train_images=200)
    assert torch.equal(some.train.pixels, tasks.load("digits", train_images=200).train.pixels)
    assert len(some.train.labels.unique()) == 10
    assert some.scale == "200 of 1198 images of digits, 32 px"
    assert digits.scale == "1198 images of digits, 32 px"
    assert some.train.labels.bincount().min() > 8
    with pytest.raises(UsageError, match="train_images is 5000, but there are 1198"):
        tasks.load("digits", train_images=5000)


def test_digits_come_in_any_size():
    task = tasks.load("digits", image_size=17)
    assert task.train.pixels.shape[2:] == (17, 17)
    assert task.tests["filled"].pixels.shape[2:] == (17, 17)


# ---- MNIST to USPS ---------------------------------------------------------------------------------------------------


def test_mnist_is_trained_on_and_usps_tested(mnist_usps):
    task = tasks.load("mnist-usps", mnist_usps)
    assert task.train.pixels.shape == (30, 1, 32, 32)
    assert task.train.labels.tolist() == [i % 10 for i in range(30)]
    assert task.tests["usps"].pixels.shape == (20, 1, 32, 32)
    assert not task.flip, "a mirrored digit is another one"
    assert tasks.load("mnist-usps", mnist_usps, image_size=16, train_images=7).scale == "7 of 30 images of mnist, 16 px"


def test_labels_that_do_not_fit_the_images_are_refused(mnist_usps, write):
    write.idx(mnist_usps / "mnist" / "train-labels-idx1-ubyte.gz", np.zeros(29))
    with pytest.raises(UsageError, match="29 labels for the 30 images"):
        tasks.load("mnist-usps", mnist_usps)


@real
def test_the_real_mnist_and_usps_are_read_whole():
    task = tasks.load("mnist-usps", REAL)
    assert len(task.train) == 60_000
    assert len(task.tests["usps"]) == 2007
    assert task.tests["usps"].labels.bincount().tolist() == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]


# ---- class folders ---------------------------------------------------------------------------------------------------


def write_imagenette(folder, write, classes=datasets.IMAGENETTE_CLASSES, count=2):
    write.class_folder(folder / "train", classes, count)
    write.class_folder(folder / "val", classes, 1)


@pytest.mark.parametrize("name", ["imagenette2", "imagenette2-320", "imagenette2-160", "imagenette2-subset"])
def test_imagenette_is_found_in_any_of_its_sizes(name, tmp_path, write):
    write_imagenette(tmp_path / name, write)
    task = tasks.load("imagenette", tmp_path, image_size=16)
    assert len(task.train) == 20
    assert task.tests["imagenette"].labels.tolist() == list(range(10))
    assert task.source == name
    assert task.flip


def test_images_are_not_enlarged_if_larger_files_can_be_had(tmp_path, write, monkeypatch):
    write_imagenette(tmp_path / "imagenette2-160", write)
    monkeypatch.setattr("clop.vision.download._download", lambda *_: (_ for _ in ()).throw(UsageError("downloaded")))
    with pytest.raises(UsageError, match="downloaded"):
        tasks.load("imagenette", tmp_path, image_size=224)


def test_a_limit_takes_images_of_all_classes_and_decodes_no_others(tmp_path, write, monkeypatch):
    write_imagenette(tmp_path / "imagenette2", write, count=10)
    reads, read = [], decode.read_image
    monkeypatch.setattr(decode, "read_image", lambda path, size: reads.append(path) or read(path, size))
    task = tasks.load("imagenette", tmp_path, image_size=8, train_images=40)
    assert len([path for path in reads if path.parts[-3] == "train"]) == len(task.train) == 40
    assert len(task.train.labels.unique()) == 10
    assert task.scale == "40 of 100 images of imagenette2, 8 px"


def test_imagewoof_is_not_taken_for_imagenette(tmp_path, write):
    write_imagenette(tmp_path / "imagenette2", write, datasets.IMAGEWOOF_CLASSES)
    with pytest.raises(UsageError, match="does not hold the classes that are expected"):
        tasks.load("imagenette", tmp_path, image_size=8)


def test_imagenet_needs_its_classes_and_says_where_to_put_them(tmp_path, write, monkeypatch):
    with pytest.raises(UsageError, match=f"cannot be downloaded freely; put it into {tmp_path / 'imagenet'}"):
        tasks.load("imagenet", tmp_path)
    write_imagenette(tmp_path / "imagenet", write, ["a", "b", "c"])
    with pytest.raises(UsageError, match="has 3 class folders, expected 1000"):
        tasks.load("imagenet", tmp_path, image_size=8)
    monkeypatch.setattr(datasets, "IMAGENET_CLASSES", 3)
    task = tasks.load("imagenet", tmp_path, image_size=8)
    assert task.train.labels.tolist() == [0, 0, 1, 1, 2, 2]


@real
def test_the_real_imagenette_subset_is_read(capsys):
    task = tasks.load("imagenette", REAL, image_size=8, train_images=50)
    assert task.scale == "50 of 2000 images of imagenette2-subset, 8 px"
    assert task.tests["imagenette"].labels.bincount().tolist() == [100] * 10


# ---- STL-10 ----------------------------------------------------------------------------------------------------------


def test_stl10_is_read_from_its_binary_files(tmp_path):
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for split, count in (("train", 20), ("test", 10)):
        (folder / f"{split}_X.bin").write_bytes(bytes(range(256)) * (count * 3 * 96 * 96 // 256))
        (folder / f"{split}_y.bin").write_bytes(bytes(i % 10 + 1 for i in range(count)))
    task = tasks.load("stl10", tmp_path)
    assert task.train.pixels.shape == (20, 3, 96, 96)
    assert task.train.pixels.is_contiguous(memory_format=torch.channels_last)
    assert task.tests["stl10"].labels.tolist() == list(range(10))
    (folder / "test_y.bin").unlink()
    with pytest.raises(UsageError, match=r"is not complete: it has no test_y\.bin"):
        tasks.load("stl10", tmp_path)


# ---- names and protocols ---------------------------------------------------------------------------------------------


def test_the_protocols_are_the_papers():
    assert {name: (task.network, task.image_size, task.epochs) for name, task in TASKS.items()} == {
        "mnist-usps": ("small_cnn", 32, 30),
        "imagenette": ("vgg11", 224, 90),
        "imagewoof": ("vgg11", 224, 90),
        "imagenet": ("vgg16", 224, 90),
        "stl10": ("vgg9", 96, 90),
        "digits": ("small_cnn", 32, 15),
    }


def test_unknown_tasks_are_told_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        tasks.load("digit")


def test_the_fingerprint_tells_other_images_apart(mnist_usps, write):
    first = tasks.load("mnist-usps", mnist_usps).fingerprint()
    assert tasks.load("mnist-usps", mnist_usps).fingerprint() == first
    write.idx(mnist_usps / "mnist" / "train-images-idx3-ubyte.gz", np.zeros((30, 28, 28)))
    assert tasks.load("mnist-usps", mnist_usps).fingerprint() != first
