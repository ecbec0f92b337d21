"""The data sets: where they come from, and how they become images and classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from clop.errors import UsageError
from clop.vision.decode import (
    decoded,
    list_classes,
    list_images,
    read_idx_images,
    read_idx_labels,
    read_libsvm_images,
    read_stl10,
    resized,
)
from clop.vision.download import Source, find_file, find_folder


@dataclass(frozen=True)
class Images:
    """Images as bytes, (N, C, H, W), and their classes, (N,). Several channels are fastest channels last in memory."""

    pixels: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        assert len(self.pixels) == len(self.labels)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Sets:
    """What a reader finds."""

    train: Images
    tests: dict[str, Images]
    source: str
    available: int


Reader = Callable[[Path | None, int, int | None], Sets]
"""From the user's data folder, the size of images and the number of training images wanted."""


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
_FASTAI = "https://s3.amazonaws.com/fast-ai-imageclas/"
# Hashes as torchvision and TensorFlow Datasets publish them.
MNIST_IMAGES = Source(
    "train-images-idx3-ubyte.gz", _MNIST + "train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"
)
MNIST_LABELS = Source(
    "train-labels-idx1-ubyte.gz", _MNIST + "train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"
)
USPS = Source("usps.t.bz2", _LIBSVM + "usps.t.bz2", "md5:8ea070ee2aca1ac39742fdd1ef5ed118")
IMAGENETTE = Source("imagenette2-320.tgz", _FASTAI + "imagenette2-320.tgz", "md5:3df6f0d01a2c9592104656642f5e78a3")
IMAGEWOOF = Source(
    "imagewoof2-320.tgz",
    _FASTAI + "imagewoof2-320.tgz",
    "sha256:4e4905ed7643120daaf9bf3b2ef7f3a7e8396d9bdaf254a38c6f01f618b4973d",
)
STL10 = Source(
    "stl10_binary.tar.gz",
    "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
    "md5:91f7769df0f17e558f3565bffb0c7dfb",
)

# WordNet's numbers of the classes, in the order of their labels.
IMAGENETTE_CLASSES = ["n01440764", "n02102040", "n02979186", "n03000684", "n03028079"]
IMAGENETTE_CLASSES += ["n03394916", "n03417042", "n03425413", "n03445777", "n03888257"]
IMAGEWOOF_CLASSES = ["n02086240", "n02087394", "n02088364", "n02089973", "n02093754"]
IMAGEWOOF_CLASSES += ["n02096294", "n02099601", "n02105641", "n02111889", "n02115641"]
IMAGENET_CLASSES = 1000


def mnist_usps(data: Path | None, image_size: int, train_images: int | None) -> Sets:
    """Trained on MNIST's training images, tested on the test images of USPS, which were scanned elsewhere."""
    places = ("mnist", "MNIST/raw", "MNIST")
    images = read_idx_images(path := find_file(MNIST_IMAGES, data, places))
    labels = read_idx_labels(labels_path := find_file(MNIST_LABELS, data, places))
    if len(images) != len(labels):
        raise UsageError(f"{labels_path} has {len(labels)} labels for the {len(images)} images of {path.name}")
    chosen = _chosen(len(images), train_images)
    test_images, test_labels = read_libsvm_images(find_file(USPS, data, ("usps", "USPS")))
    return Sets(
        Images(resized(images[chosen], image_size), labels[chosen]),
        {"usps": Images(resized(test_images, image_size), test_labels)},
        "mnist",
        len(images),
    )


def stl10(data: Path | None, image_size: int, train_images: int | None) -> Sets:
    """The labelled images of STL-10, from its binary files."""
    folder = find_folder(
        STL10, data, ("stl10_binary", "stl10"), lambda path: (path / "train_X.bin").is_file(), "STL-10 binary files"
    )
    for name in ("train_y.bin", "test_X.bin", "test_y.bin"):
        if not (folder / name).is_file():
            raise UsageError(f"{folder} is not complete: it has no {name}; get it from {STL10.url}")
    images, labels = read_stl10(folder / "train_X.bin", folder / "train_y.bin")
    test_images, test_labels = read_stl10(folder / "test_X.bin", folder / "test_y.bin")
    chosen = _chosen(len(images), train_images)
    return Sets(
        Images(_channels_last(resized(images[chosen], image_size)), labels[chosen]),
        {"stl10": Images(_channels_last(resized(test_images, image_size)), test_labels)},
        "stl10",
        len(images),
    )


def _channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def imagenette(data: Path | None, image_size: int, train_images: int | None) -> Sets:
    return _ten_classes("imagenette", IMAGENETTE, IMAGENETTE_CLASSES, data, image_size, train_images)


def imagewoof(data: Path | None, image_size: int, train_images: int | None) -> Sets:
    return _ten_classes("imagewoof", IMAGEWOOF, IMAGEWOOF_CLASSES, data, image_size, train_images)


def imagenet(data: Path | None, image_size: int, train_images: int | None) -> Sets:
    """Class folders in ``train`` and ``val``, as ImageNet is usually kept."""
    names = ("imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
    folder = find_folder(None, data, names, _has_splits, "ImageNet with class folders in train and val")
    classes = list_classes(folder / "train")
    if len(classes) != IMAGENET_CLASSES:
        raise UsageError(f"{folder / 'train'} has {len(classes)} class folders, expected {IMAGENET_CLASSES}")
    return _class_folders(folder, "imagenet", classes, image_size, train_images)


def _ten_classes(
    name: str, source: Source, classes: Sequence[str], data: Path | None, image_size: int, train_images: int | None
) -> Sets:
    """One of fastai's subsets of ImageNet. Of its sizes the largest is preferred, and one below the images' is not."""
    sizes = ["", "-320", *(["-160"] if image_size <= 160 else []), "-subset"]
    folder = find_folder(
        source, data, [f"{name}2{size}" for size in sizes] + [name], _has_splits, f"{name} with its train and val"
    )
    return _class_folders(folder, name, classes, image_size, train_images)


def _has_splits(folder: Path) -> bool:
    return (folder / "train").is_dir() and (folder / "val").is_dir()


def _class_folders(folder: Path, name: str, classes: Sequence[str], image_size: int, train_images: int | None) -> Sets:
    files = list_images(folder / "train", classes)
    tests = list_images(folder / "val", classes)
    some = files.at(_chosen(len(files), train_images).tolist())
    source = folder.resolve().name
    return Sets(
        Images(decoded(some, image_size, f"{name}-train"), torch.from_numpy(some.labels)),
        {name: Images(decoded(tests, image_size, f"{name}-val"), torch.from_numpy(tests.labels))},
        source if name in source else name,
        len(files),
    )


def digits(data: Path | None, image_size: int, train_images: int | None) -> Sets:
    """Handwritten digits that change in size: trained small in the centre of the frame, tested so and filling it.

    The 1797 digits of 8×8 pixels that scikit-learn brings (UCI, Alpaydin and Kaynak, 1998); every third is for testing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            'the digits come with scikit-learn, which is not installed: pip install "clop[vision]"'
        ) from None
    if image_size < 16:
        raise UsageError(f"the digits are drawn in a frame of at least 16 pixels, got {image_size}")
    bunch = load_digits()
    small = torch.from_numpy(bunch.images / 16.0).float()[:, None]  # (N, 1, 8, 8) in [0, 1]
    labels = torch.from_numpy(bunch.target).long()
    drawn = 5 * image_size // 8
    before = (image_size - drawn) // 2
    after = image_size - drawn - before
    centred = F.pad(_drawn(small, drawn), (before, after, before, after))
    filled = _drawn(small, image_size)
    held_out = torch.arange(len(labels)) % 3 == 2
    train = torch.nonzero(~held_out)[:, 0]
    chosen = train[_chosen(len(train), train_images)]
    return Sets(
        Images(centred[chosen], labels[chosen]),
        {
            "centred": Images(centred[held_out], labels[held_out]),
            "filled": Images(filled[held_out], labels[held_out]),
        },
        "digits",
        len(train),
    )


def _drawn(images: Tensor, size: int) -> Tensor:
    scaled = F.interpolate(images, (size, size), mode="bilinear", align_corners=False)
    return (scaled * 255).round().to(torch.uint8)


def _chosen(available: int, wanted: int | None) -> Tensor:
    """Which training images, in ascending order."""
    if wanted is None or wanted == available:
        return torch.arange(available)
    if wanted > available:
        raise UsageError(f"train_images is {wanted}, but there are {available}")
    return torch.randperm(available, generator=torch.Generator().manual_seed(0))[:wanted].sort().values
