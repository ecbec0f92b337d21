"""Augmentation: what draws, then applies."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from clop.augment.pixels import as_column, as_floats, check_images
from clop.errors import UsageError

Draw = dict[str, Tensor]
"""What was drawn, by name: a row for each sample, or one value for all. Empty if nothing is to be changed."""

_APPLIED = "applied"


@dataclass(frozen=True)
class Augmentation(ABC):
    """One kind of change. Call it on images, or draw first and apply then.

    Shape:
        - images and the result: :math:`(N, C, H, W)`, in any memory format, which is kept; uint8, or floats in [0, 1]
    """

    p: float = 1.0
    """Probability that a sample is changed at all."""

    keeps_bytes: ClassVar[bool] = True
    """Whether bytes stay bytes; if not, they become floats."""
    takes: ClassVar[str] = "images of any shape"
    """What :meth:`fits` asks for, in words."""

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise UsageError(f"the p of an augmentation is a probability and must lie in [0, 1], got {self.p}")

    @classmethod
    def fits(cls, shape: Sequence[int]) -> bool:
        """Whether images of shape (C, H, W) can be changed so."""
        return True

    def __call__(self, images: Tensor, *, generator: Generator | None = None) -> Tensor:
        drawn = self.draw(len(images), images.shape[1:], generator=generator, device=images.device)
        return self.apply(images, drawn)

    def draw(
        self,
        count: int,
        shape: Sequence[int],
        *,
        generator: Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> Draw:
        """All that chance decides for ``count`` images of shape (C, H, W); at ``p`` = 0 nothing is drawn."""
        if self.p == 0:
            return {}
        channels, height, width = shape
        drawn = self._draw(count, (channels, height, width), generator)
        if self.p < 1:
            drawn[_APPLIED] = torch.rand(count, generator=generator) < self.p
        # A value for all stays on the CPU, where it is asked for without waiting for the device.
        return {name: value.to(device, non_blocking=True) if value.dim() else value for name, value in drawn.items()}

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """The changed images; ``images`` stay as they are."""
        check_images(images)
        if not self.keeps_bytes:
            images = as_floats(images)
        if not drawn:
            return images
        if not self.fits(images.shape[1:]):
            raise ValueError(
                f"{type(self).__name__} takes {self.takes}, got {tuple(images.shape)}; clop.augment.fitting names "
                "those that take others"
            )
        changed = self._apply(images, drawn)
        return torch.where(as_column(drawn[_APPLIED]), changed, images) if _APPLIED in drawn else changed

    @abstractmethod
    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw: ...

    @abstractmethod
    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor: ...
