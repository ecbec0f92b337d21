"""What the methods with augmented frames share: which augmentation a game gets, and how it meets frames."""

from typing import Literal

from torch import Generator, Tensor

from clop import augment
from clop.augment import Augmentation, Constants
from clop.errors import UsageError
from clop.rl.games import best_augmentation
from clop.rl.methods.base import Settings

FlipAxis = Literal["horizontal", "vertical"]


def game_augmentation(
    name: str | None, settings: Settings, flip_axis: FlipAxis, constants: Constants = "drac", p: float | None = None
) -> Augmentation:
    """The augmentation of that name, or the one that DrAC does best with in the game; it fits the game's frames."""
    name = name or best_augmentation(settings.game)
    changes = ({"flip_axis": flip_axis} if name == "flip" else {}) | ({} if p is None else {"p": p})
    augmentation = augment.augmentation(name, constants, **changes)
    shape = channels, height, width = settings.spec.input_shape
    if not augmentation.fits(shape):
        raise UsageError(
            f"{name} takes {augmentation.takes}, but {settings.game} shows {channels} channels of {height}×{width}; "
            f"use one of {', '.join(augment.fitting(shape, constants))}"
        )
    return augmentation


def name_of(augmentation: Augmentation) -> str:
    return next(name for name, kind in augment.AUGMENTATIONS.items() if type(augmentation) is kind)


def augment_frames(
    frames: Tensor, augmentation: Augmentation, generator: Generator, drawn: augment.Draw | None = None
) -> Tensor:
    """Changed frames, in the layout that goes with their dtype; a given draw is replayed."""
    images = as_images(frames)
    if drawn is None:
        drawn = draw_for(frames, augmentation, generator)
    images = augmentation.apply(images, drawn)
    return images if images.is_floating_point() else images.permute(0, 2, 3, 1)


def draw_for(frames: Tensor, augmentation: Augmentation, generator: Generator) -> augment.Draw:
    images = as_images(frames)
    return augmentation.draw(len(images), images.shape[1:], generator=generator, device=images.device)


def as_images(frames: Tensor) -> Tensor:
    """uint8 (N, H, W, C) or float (N, C, H, W) as (N, C, H, W), without a copy."""
    return frames if frames.is_floating_point() else frames.permute(0, 3, 1, 2)
