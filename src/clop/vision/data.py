"""Classification tasks: training images, and one or more test sets that differ from them in a known way."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clop.errors import UsageError, one_of


@dataclass(frozen=True)
class Images:
    """Images as bytes, (N, C, H, W), and their classes, (N,)."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Task:
    """What to learn and where it is tested. ``mean`` and ``std`` scale pixels in [0, 1] for the network."""

    classes: int
    train: Images
    tests: dict[str, Images]
    mean: float = 0.5
    std: float = 0.5

    @property
    def channels(self) -> int:
        return self.train.pixels.shape[1]

    @property
    def image_size(self) -> int:
        return self.train.pixels.shape[-1]


def load(name: str) -> Task:
    """A task by its name."""
    if name not in _TASKS:
        raise UsageError(one_of("task", name, _TASKS))
    return _TASKS[name]()


def digits() -> Task:
    """Handwritten digits that change in size: trained small in the centre of the frame, tested so and filling it.

    The 1797 digits of 8×8 pixels that scikit-learn brings (UCI, Alpaydin and Kaynak, 1998); every third is for testing.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            'the digits come with scikit-learn, which is not installed: pip install "clop[vision]"'
        ) from None
    bunch = load_digits()
    small = torch.from_numpy(bunch.images / 16.0).float()[:, None]  # (N, 1, 8, 8) in [0, 1]
    labels = torch.from_numpy(bunch.target).long()
    centred = F.pad(_drawn(small, 20), (6, 6, 6, 6))
    filled = _drawn(small, 32)
    held_out = torch.arange(len(labels)) % 3 == 2
    return Task(
        classes=10,
        train=Images(centred[~held_out], labels[~held_out]),
        tests={
            "centred": Images(centred[held_out], labels[held_out]),
            "filled": Images(filled[held_out], labels[held_out]),
        },
    )


def _drawn(images: Tensor, size: int) -> Tensor:
    resized = F.interpolate(images, (size, size), mode="bilinear", align_corners=False)
    return (resized * 255).round().to(torch.uint8)


_TASKS: dict[str, Callable[[], Task]] = {"digits": digits}
