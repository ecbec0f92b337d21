"""Random changes of pixels, for agents and classifiers: batched, on the images' device, each sample its own.

Drawing and applying are separate, so that a draw can be held over a rollout, replayed and tested without an image.
Chance is drawn on the CPU and moved. Defaults are the constants of RAD's and DrAC's Procgen code (Laskin et al., 2020;
Raileanu et al., 2021); those of the CLOP authors' code are in :data:`CLOP_CODE`. Lengths are in pixels of an image of
side 64 and grow with it.

Not kornia's: on frames of bytes its crop, flip, rotation by quarter turns, jitter and erasing take 2 to 8 times as
long, its grey and its other rotations as long as ours, and box and jitter are not those of the published numbers.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from clop.errors import UsageError, one_of

Name = Literal[
    "crop", "grayscale", "cutout", "cutout-color", "flip", "rotate", "random-conv", "color-jitter", "translate", "tilt"
]
Constants = Literal["rad", "clop"]
Draw = dict[str, Tensor]
"""What was drawn, by name: a row for each sample, or one value for all. Empty if nothing is to be changed."""

_SIDE = 64  # of the images that lengths are given for
_APPLIED = "applied"
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Augmentation(ABC):
    """One kind of change. Call it on images, or draw first and apply then.

    Shape:
        - images and the result: :math:`(N, C, H, W)`, C being 1 or 3, in any memory format, which is kept; uint8, or
          floats in [0, 1]
    """

    p: float = 1.0
    """Probability that a sample is changed at all."""

    keeps_bytes: ClassVar[bool] = True
    """Whether bytes stay bytes; if not, they become floats."""

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise UsageError(f"the p of an augmentation is a probability and must lie in [0, 1], got {self.p}")

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
        return {name: value.to(device, non_blocking=True) for name, value in drawn.items()}

    def apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        """The changed images; ``images`` stay as they are."""
        _check(images)
        if not self.keeps_bytes:
            images = _as_floats(images)
        if not drawn:
            return images
        changed = self._apply(images, drawn)
        return torch.where(_column(drawn[_APPLIED]), changed, images) if _APPLIED in drawn else changed

    @abstractmethod
    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw: ...

    @abstractmethod
    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor: ...


# ---- where pixels are ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crop(Augmentation):
    """A window of the image's size, out of the image continued beyond its edges."""

    pad: int = 12
    """Pixels by which the image is continued on each side; the window starts anywhere in 0 to 2 * pad."""
    beyond: Literal["edge", "zero"] = "edge"
    """What is there: the nearest pixel of the edge, or nothing."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return {
            name: _integers(-pad, pad, count, generator)
            for name, pad in (("down", _scaled(self.pad, shape[1])), ("right", _scaled(self.pad, shape[2])))
        }

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        height, width = images.shape[2:]
        rows = torch.arange(height, device=images.device) + drawn["down"][:, None]  # (N, H)
        columns = torch.arange(width, device=images.device) + drawn["right"][:, None]
        positions = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None]
        moved = _taken(images, positions)
        if self.beyond == "edge":
            return moved
        inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
        return _painted(moved, *inside, outside=True)


@dataclass(frozen=True)
class Translate(Augmentation):
    """A shift by whole pixels along both axes; what moves in is black."""

    most: int = 4
    """Pixels, up to which the shift is uniform in either direction."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return Crop(pad=self.most)._draw(count, shape, generator)

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return Crop(pad=self.most, beyond="zero")._apply(images, drawn)


@dataclass(frozen=True)
class Flip(Augmentation):
    """The mirror image."""

    p: float = 0.5
    flip_axis: Literal["horizontal", "vertical"] = "horizontal"
    """``horizontal`` swaps left and right, ``vertical`` top and bottom, as DrAC's code does by mistake."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return {"flipped": torch.ones(count, dtype=torch.bool)}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return images.flip(3 if self.flip_axis == "horizontal" else 2)


@dataclass(frozen=True)
class Rotate(Augmentation):
    """Quarter turns of square images, counter-clockwise; with the default ``p`` uniform over all four."""

    p: float = 0.75

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        if shape[1] != shape[2]:
            raise ValueError(f"quarter turns need square images, got {shape[1]} x {shape[2]} pixels; tilt takes others")
        return {"turns": _integers(1, 3, count, generator)}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        height, width = images.shape[2:]
        plain = torch.arange(height * width, device=images.device).view(height, width)
        return _taken(images, torch.stack([plain.rot90(k) for k in range(4)])[drawn["turns"]])


@dataclass(frozen=True)
class Tilt(Augmentation):
    """A turn by any small angle around the centre, bilinear; what turns in is black."""

    degrees: float = 15.0
    """Up to which the angle is uniform in either direction."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return {"angle": _uniform(-self.degrees, self.degrees, count, generator)}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        ratio = images.shape[2] / images.shape[3]
        angle = torch.deg2rad(drawn["angle"])
        cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        rows = ((cosine, -sine * ratio, zero), (sine / ratio, cosine, zero))  # in a frame that goes from -1 to 1
        theta = torch.stack([torch.stack(row, 1) for row in rows], 1)
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        floats = _as_floats(images)
        return _as_like(F.grid_sample(floats, grid.to(floats.dtype), align_corners=False), images)


@dataclass(frozen=True)
class Cutout(Augmentation):
    """A black box. Its size decides its place too: rows pivot + h up to pivot + 2 h, and so for columns."""

    smallest: int = 7
    largest: int = 21
    pivot_row: int = 12
    pivot_column: int = 24

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return {
            name: _integers(_scaled(self.smallest, side), _scaled(self.largest, side), count, generator)
            for name, side in (("height", shape[1]), ("width", shape[2]))
        }

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return _painted(images, *self._box(images, drawn))

    def _box(self, images: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Whether each row and each column is in it, (N, H) and (N, W)."""
        sides = []
        for size, pivot, side in (
            (drawn["height"], self.pivot_row, images.shape[2]),
            (drawn["width"], self.pivot_column, images.shape[3]),
        ):
            place, start = torch.arange(side, device=images.device), (_scaled(pivot, side) + size)[:, None]
            sides.append((place >= start) & (place < start + size[:, None]))
        return sides[0], sides[1]


@dataclass(frozen=True)
class CutoutColor(Cutout):
    """The box of cutout in one random colour."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        colour = _integers(0, 254, (count, shape[0]), generator)
        return super()._draw(count, shape, generator) | {"colour": colour.to(torch.uint8)}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        colour = drawn["colour"]
        if images.dtype != torch.uint8:
            colour = _as_floats(colour).to(images.dtype)
        return _painted(images, *self._box(images, drawn), colour=colour)


# ---- which colours they have -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Grayscale(Augmentation):
    """Luma in all three channels; bytes are rounded."""

    def _draw(self, count: int, shape: tuple[int, int, int], generator: Generator | None) -> Draw:
        return {"gray": torch.ones(count, dtype=torch.bool)}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        if images.shape[1] == 1:
            return images
        is_bytes = images.dtype == torch.uint8
        floats = images.float() if is_bytes else images
        gray = torch.tensordot(floats, floats.new_tensor(_LUMA), ([1], [0]))  # (N, H, W)
        gray = gray.round_().to(torch.uint8) if is_bytes else gray
        result = torch.empty_like(images)
        for channel in result.unbind(1):  # faster than one copy to all
            channel.copy_(gray)
        return result


@dataclass(frozen=True)
class ColorJitter(Augmentation):
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
            name: _uniform(1 - self.strength, 1 + self.strength, count, generator)
            for name in ("brightness", "contrast", "saturation")
        }
        drawn["turn"] = _uniform(-self.hue, self.hue, count, generator) * (255 / 360)
        return drawn | {"contrast_first": torch.rand((), generator=generator) < 0.5}

    def _apply(self, images: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        x = _as_floats(images).contiguous()  # planes, each of which is read by itself
        steps = [self._contrast, self._colour]
        for step in steps if drawn["contrast_first"] else reversed(steps):
            x = step(x, drawn)
        return _as_like(x, images)

    def _contrast(self, x: Tensor, drawn: Mapping[str, Tensor]) -> Tensor:
        return torch.lerp(x.mean((2, 3), keepdim=True), x, _column(drawn["contrast"]).to(x.dtype)).clamp_(0, 1)

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


# ---- by name ---------------------------------------------------------------------------------------------------------

AUGMENTATIONS: Mapping[str, type[Augmentation]] = MappingProxyType(
    {
        "crop": Crop,
        "grayscale": Grayscale,
        "cutout": Cutout,
        "cutout-color": CutoutColor,
        "flip": Flip,
        "rotate": Rotate,
        "random-conv": RandomConv,
        "color-jitter": ColorJitter,
        "translate": Translate,
        "tilt": Tilt,
    }
)
CLOP_CODE: Mapping[str, Augmentation] = MappingProxyType(
    {
        "grayscale": Grayscale(p=0.5),
        "cutout": Cutout(pivot_row=0, pivot_column=0),
        "cutout-color": CutoutColor(pivot_row=0, pivot_column=0),
        "flip": Flip(p=0.2),
        "rotate": Rotate(p=0.3),
        "random-conv": RandomConv(shared=True),
    }
)
"""As the CLOP authors' code has them, for its comparison in hard mode."""


def augmentation(name: str, constants: Constants = "rad", **settings: Any) -> Augmentation:
    """The augmentation of that name, with some settings changed.

    Args:
        name: One of :data:`AUGMENTATIONS`.
        constants: ``rad`` for those of RAD's and DrAC's code, ``clop`` for those of the CLOP authors'.
        settings: Fields of its class.
    """
    if name not in AUGMENTATIONS:
        raise UsageError(one_of("augmentation", name, AUGMENTATIONS))
    if constants == "clop" and name not in CLOP_CODE:
        raise UsageError(f"the CLOP authors' code has no {name} that works; it has {', '.join(CLOP_CODE)}")
    return replace(CLOP_CODE[name] if constants == "clop" else AUGMENTATIONS[name](), **settings)


# ---- pixels ----------------------------------------------------------------------------------------------------------


def _check(images: Tensor) -> None:
    if images.dim() != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"expected images of shape (N, C, H, W) with C = 1 or 3, got {tuple(images.shape)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"expected images of bytes, or of floats in [0, 1], got {images.dtype}")


def _scaled(length: int, side: int) -> int:
    return round(length * side / _SIDE)


def _integers(least: int, most: int, shape: int | tuple[int, ...], generator: Generator | None) -> Tensor:
    """Uniform, both ends included."""
    return torch.randint(least, most + 1, (shape,) if isinstance(shape, int) else shape, generator=generator)


def _uniform(least: float, most: float, count: int, generator: Generator | None) -> Tensor:
    return torch.rand(count, generator=generator).mul_(most - least).add_(least)


def _column(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _taken(images: Tensor, positions: Tensor) -> Tensor:
    """The pixels at these places of the flattened image, (N, H, W)."""
    count, channels, height, width = images.shape
    if images.is_contiguous(memory_format=torch.channels_last):
        # Whole pixels in one go, which is three times as fast as value by value.
        starts = torch.arange(0, count * height * width, height * width, device=images.device)
        pixels = images.permute(0, 2, 3, 1).reshape(-1, channels)
        taken = pixels.index_select(0, (positions + starts[:, None, None]).flatten())
        return taken.view(count, height, width, channels).permute(0, 3, 1, 2)
    flat = positions.flatten(1)[:, None].expand(-1, channels, -1)
    return images.flatten(2).gather(2, flat).view(count, channels, height, width)


def _painted(
    images: Tensor, rows: Tensor, columns: Tensor, *, colour: Tensor | None = None, outside: bool = False
) -> Tensor:
    """Paint the box of these rows, (N, H), and columns, (N, W), or all around it: in a colour, (N, C), or black.

    By products with 0 and 1, which are exact, and on bytes ten times as fast as masks.
    """
    count, channels, height, width = images.shape
    rows, columns = rows.to(images.dtype), columns.to(images.dtype)
    nhwc = images.is_contiguous(memory_format=torch.channels_last)
    if nhwc:
        pixels = images.permute(0, 2, 3, 1).reshape(count, height, width * channels)
        box = rows[:, :, None] * columns.repeat_interleave(channels, 1)[:, None]
        colour = None if colour is None else colour.repeat(1, width)[:, None]
    else:
        pixels = images
        box = (rows[:, :, None] * columns[:, None])[:, None]
        colour = None if colour is None else colour[:, :, None, None]
    kept = box if outside else 1 - box
    painted = pixels * kept if colour is None else (pixels * kept).add_((1 - kept) * colour)
    return painted.view(count, height, width, channels).permute(0, 3, 1, 2) if nhwc else painted


def _as_floats(images: Tensor) -> Tensor:
    return images.to(torch.float32).mul_(1 / 255) if images.dtype == torch.uint8 else images


def _as_like(result: Tensor, images: Tensor) -> Tensor:
    """In the dtype and memory format of the images; bytes are rounded."""
    if images.dtype == torch.uint8:
        result = (result * 255).round_()
    return result.to(images.dtype, memory_format=_order(images))


def _order(images: Tensor) -> torch.memory_format:
    nhwc = images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if nhwc else torch.contiguous_format
