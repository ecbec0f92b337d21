"""Classification tasks: training images, and one or more test sets that differ from them in a known way."""

import zlib
from dataclasses import dataclass
from pathlib import Path

from clop.errors import UsageError, unknown_name
from clop.vision import datasets
from clop.vision.datasets import Images, Reader


@dataclass(frozen=True)
class Task:
    """What to learn and where it is tested. ``mean`` and ``std`` scale pixels in [0, 1] for the network."""

    name: str
    classes: int
    train: Images
    tests: dict[str, Images]
    mean: tuple[float, ...] = (0.5,)
    """Of each channel, or one for all."""
    std: tuple[float, ...] = (0.5,)
    flip: bool = False
    """Whether training images are mirrored at random, as part of the protocol and not of a method."""
    source: str = "digits"
    """The data set that was found, such as ``imagenette2-subset``."""
    available: int | None = None
    """Training images there are, of which the task has some; None stands for all."""

    @property
    def channels(self) -> int:
        return self.train.pixels.shape[1]

    @property
    def image_size(self) -> int:
        return self.train.pixels.shape[-1]

    @property
    def scale(self) -> str:
        """How much of the data there is to learn from, in a few words."""
        count = len(self.train)
        some = f"{count} of {self.available}" if self.available not in (None, count) else str(count)
        return f"{some} images of {self.source}, {self.image_size} px"

    def fingerprint(self) -> str:
        """Differs for other images: a run goes on only with those it began with. Looks at 64 of them, for speed."""
        parts = [self.train.labels, self.train.pixels[:: max(1, len(self.train) // 64)]]
        parts += [images.labels for images in self.tests.values()]
        sums = [f"{zlib.crc32(part.contiguous().numpy().tobytes()):08x}" for part in parts]
        return "-".join([str(len(self.train)), *sums])


_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Recipe:
    """The paper's protocol for a task."""

    read: Reader
    classes: int
    network: str
    image_size: int
    epochs: int
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD
    flip: bool = True


def recipe(name: str) -> Recipe:
    """The protocol of a task by its name."""
    if name not in TASKS:
        raise UsageError(unknown_name("task", name, TASKS))
    return TASKS[name]


def load(name: str, data: Path | None = None, image_size: int | None = None, train_images: int | None = None) -> Task:
    """A task by its name.

    Args:
        name: One of :data:`TASKS`.
        data: The folder that holds the data set; what is not there is looked for in the cache, then downloaded.
        image_size: Height and width; the paper's if not given.
        train_images: How many of the training images, drawn once and the same for every seed; all if not given.
    """
    protocol = recipe(name)
    size = protocol.image_size if image_size is None else image_size
    if size < 1:
        raise UsageError(f"image_size must be at least 1, got {size}")
    if train_images is not None and train_images < 1:
        raise UsageError(f"train_images must be at least 1, got {train_images}")
    found = protocol.read(data, size, train_images)
    return Task(
        name=name,
        classes=protocol.classes,
        train=found.train,
        tests=found.tests,
        mean=protocol.mean,
        std=protocol.std,
        flip=protocol.flip,
        source=found.source,
        available=found.available,
    )


TASKS: dict[str, Recipe] = {
    "mnist-usps": Recipe(datasets.mnist_usps, 10, "small_cnn", 32, 30, mean=(0.5,), std=(0.5,), flip=False),
    "imagenette": Recipe(datasets.imagenette, 10, "vgg11", 224, 90),
    "imagewoof": Recipe(datasets.imagewoof, 10, "vgg11", 224, 90),
    "imagenet": Recipe(datasets.imagenet, datasets.IMAGENET_CLASSES, "vgg16", 224, 90),
    "stl10": Recipe(datasets.stl10, 10, "vgg9", 96, 90),
    "digits": Recipe(datasets.digits, 10, "small_cnn", 32, 15, mean=(0.5,), std=(0.5,), flip=False),
}
"""The tasks by name. That of the digits is ours, the others are the paper's."""
