"""Random changes of pixels, for agents and classifiers: batched, on the images' device, each sample its own.

Drawing and applying are separate, so that a draw can be held over a rollout, replayed and tested without an image.
Chance is drawn on the CPU and moved. Defaults are the constants of DrAC's Procgen code (Raileanu et al., 2021); what
RAD's (Laskin et al., 2020) and the CLOP authors' have otherwise is in :data:`RAD_CODE` and :data:`CLOP_CODE`. Lengths
are in pixels of an image of side 64 and grow with it.

Not kornia's: on frames, most of its augmentations take two to four times as long, none gives the bytes that rollouts
store, and box and jitter are not those of the published numbers (``clop bench pixels``; table in docs/methods.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from clop.augment.base import Augmentation, Draw
from clop.augment.geometric import Crop, Cutout, CutoutColor, Flip, Rotate, Rotation, Translate
from clop.augment.photometric import ColorJitter, Grayscale, RandomConv
from clop.errors import UsageError, unknown_name

__all__ = [
    "AUGMENTATIONS",
    "CLOP_CODE",
    "RAD_CODE",
    "Augmentation",
    "ColorJitter",
    "Constants",
    "Crop",
    "Cutout",
    "CutoutColor",
    "Draw",
    "Flip",
    "Grayscale",
    "Name",
    "RandomConv",
    "Rotate",
    "Rotation",
    "Translate",
    "augmentation",
    "fitting",
]

Name = Literal[
    "crop",
    "grayscale",
    "cutout",
    "cutout_color",
    "flip",
    "rotate",
    "random_conv",
    "color_jitter",
    "translate",
    "rotation",
]
Constants = Literal["drac", "rad", "clop"]

AUGMENTATIONS: Mapping[str, type[Augmentation]] = MappingProxyType(
    {
        "crop": Crop,
        "grayscale": Grayscale,
        "cutout": Cutout,
        "cutout_color": CutoutColor,
        "flip": Flip,
        "rotate": Rotate,
        "random_conv": RandomConv,
        "color_jitter": ColorJitter,
        "translate": Translate,
        "rotation": Rotation,
    }
)
RAD_CODE: Mapping[str, Augmentation] = MappingProxyType({"grayscale": Grayscale(p=0.5)})
"""What RAD's Procgen code has otherwise than DrAC's."""
CLOP_CODE: Mapping[str, Augmentation] = MappingProxyType(
    {
        "grayscale": Grayscale(p=0.5),
        "cutout": Cutout(pivot_row=0, pivot_column=0),
        "cutout_color": CutoutColor(pivot_row=0, pivot_column=0),
        "flip": Flip(p=0.2),
        "rotate": Rotate(p=0.3),
        "random_conv": RandomConv(shared=True),
    }
)
"""As the CLOP authors' code has them, for its comparison in hard mode."""


def augmentation(name: str, constants: Constants = "drac", **settings: Any) -> Augmentation:
    """The augmentation of that name, with some settings changed.

    Args:
        name: One of :data:`AUGMENTATIONS`.
        constants: ``drac`` for those of DrAC's code, ``rad`` for RAD's, ``clop`` for the CLOP authors'.
        settings: Fields of its class.
    """
    if name not in AUGMENTATIONS:
        raise UsageError(unknown_name("augmentation", name, AUGMENTATIONS))
    if constants == "clop" and name not in CLOP_CODE:
        raise UsageError(f"the CLOP authors' code has no {name} that works; it has {', '.join(CLOP_CODE)}")
    others = {"drac": {}, "rad": RAD_CODE, "clop": CLOP_CODE}[constants]
    return replace(others[name] if name in others else AUGMENTATIONS[name](), **settings)


def fitting(shape: Sequence[int], constants: Constants = "drac") -> list[str]:
    """Names of the augmentations of that code that take images of shape (C, H, W)."""
    known = CLOP_CODE if constants == "clop" else AUGMENTATIONS
    return [name for name in known if AUGMENTATIONS[name].fits(shape)]
