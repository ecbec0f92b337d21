"""Augmentations that change the colours of pixels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from clop.augment.base import Augmentation, Draw
from clop.augment.pixels import as_column, as_floats, as_like, draw_uniform

_LUMA = (0.299, 0.587, 0.114)


class _Colours(Augmentation):
    """A change of red, green and blue, or of one grey."""

    takes: ClassVar[str] = "images of 1 or 3 channels"

    @classmethod
    def fits(cls, shape: Sequence[int]) -> bool:
        return shape[0] in (1, 3)


@dataclass(frozen=True)
class Grayscale(_Colours):
    """Luma in all three channels; bytes are rounded."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return {"gray": torch.ones(count, dtype=torch.bool)}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        if images.shape[1] == 1:
            return images
        red, green, blue = images.unbind(1)
        gray = (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])  # (N, H, W), floats
        gray = gray.round_().to(torch.uint8) if images.dtype == torch.uint8 else gray
        result = torch.empty_like(images)
        for channel in result.unbind(1):  # faster than one copy to all
            channel.copy_(gray)
        return result


@dataclass(frozen=True)
class ColorJitter(_Colours):
    """Random brightness, contrast, saturation and hue; bytes are rounded.

    In the colours' hue, saturation and value: value times brightness, saturation times its factor, hue shifted; before
    or after that, as one coin for the whole draw says, contrast around the mean of each channel of each sample. One
    channel has no hue and no saturation.
    """

    strength: float = 0.4
    """Factors are uniform in 1 - strength to 1 + strength."""
    hue: float = 0.5
    """Shifts are uniform up to this in either direction, in units of 255 degrees, as in the code."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        drawn = {
            name: draw_uniform(1 - self.strength, 1 + self.strength, count, generator)
            for name in ("brightness", "contrast", "saturation")
        }
        drawn["turn"] = draw_uniform(-self.hue, self.hue, count, generator) * (255 / 360)
        return drawn | {"contrast_first": torch.rand((), generator=generator) < 0.5}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        x = as_floats(images).contiguous()  # planes, each of which is read by itself
        steps = [self._contrast, self._colour]
        for step in steps if drawn["contrast_first"] else reversed(steps):
            x = step(x, drawn)
        return as_like(x, images)

    def _contrast(self, x: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return torch.lerp(x.mean((2, 3), keepdim=True), x, as_column(drawn["contrast"]).to(x.dtype)).clamp_(0, 1)

    def _colour(self, x: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        factor = {name: drawn[name].to(x.dtype)[:, None, None] for name in ("brightness", "saturation", "turn")}
        if x.shape[1] == 1:
            return (x * factor["brightness"][:, None]).clamp_(0, 1)
        red, green, blue = x.unbind(1)
        value, least = torch.maximum(torch.maximum(red, green), blue), torch.minimum(torch.minimum(red, green), blue)
        chroma = value - least
        per_chroma = chroma.clamp_min(1e-12).reciprocal_()  # of grey pixels the numerators are 0
        # Hue in sixths of a turn, counted from the brightest channel.
        hue = torch.where(
            value == red,
            (green - blue).mul_(per_chroma),
            torch.where(value == green, (blue - red).mul_(per_chroma).add_(2), (red - green).mul_(per_chroma).add_(4)),
        ).add_(6 * factor["turn"])
        saturation = chroma.div_(value.clamp_min(1e-12)).mul_(factor["saturation"]).clamp_(0, 1)
        value = value.mul_(factor["brightness"]).clamp_(0, 1)
        chroma = saturation.mul_(value)
        result = torch.empty_like(x)
        for channel, offset in zip(result.unbind(1), (5, 3, 1), strict=True):
            place = (hue + offset).remainder_(6)  # less of the chroma is taken away the nearer the hue
            channel.copy_(value - torch.minimum(place, 4 - place).clamp_(0, 1).mul_(chroma))
        return result


@dataclass(frozen=True)
class RandomConv(Augmentation):
    """A random 3 x 3 convolution from all channels to as many, black beyond the edges; floats of any range.

    Weights are normal with variance 2 / (fan-in + fan-out) (Glorot and Bengio, 2010); there is no bias.
    """

    shared: bool = False
    """One filter for all samples instead of one each."""

    keeps_bytes: ClassVar[bool] = False

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        channels = shape[0]
        weights = torch.randn(1 if self.shared else count, channels, channels, 3, 3, generator=generator)
        return {"filters": weights.mul_(math.sqrt(2 / (2 * 9 * channels)))}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        filters = drawn["filters"].to(images.dtype)
        if len(filters) == 1:
            return F.conv2d(images, filters[0], padding=1)
        count, channels, height, width = images.shape
        grouped = images.reshape(1, count * channels, height, width)
        return F.conv2d(grouped, filters.flatten(0, 1), padding=1, groups=count).view(images.shape)
