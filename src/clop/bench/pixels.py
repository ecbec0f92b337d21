"""``clop bench pixels``: our augmentations against kornia's, from the bytes of a rollout to what the network takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Generator, Tensor

from clop import machine
from clop.augment import Augmentation, augmentation
from clop.bench.benchmark import Report, Result, silent
from clop.bench.comparison import ComparisonSettings, Row, result
from clop.bench.timing import interleaved
from clop.errors import UsageError
from clop.rl.methods.augmented import augment_frames
from clop.rl.network import as_input

FRAMES = 128  # a micro-batch
DESCRIPTION = (
    "Time augmentations of a micro-batch of frames, from bytes to the floats that the network takes, in turns with "
    "kornia's. About a minute."
)
Settings = ComparisonSettings


@dataclass(frozen=True)
class Counterpart:
    """What kornia has for one of ours."""

    name: str
    """Name of its class."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    differs: str = ""
    """The difference, where it is not the same change with the same law."""

    def build(self) -> Any:
        try:
            from kornia import augmentation as kornia
        except ImportError:
            raise UsageError(
                "this benchmark compares with kornia, which is not installed: pip install kornia"
            ) from None
        return getattr(kornia, self.name)(**self.settings)

    @property
    def text(self) -> str:
        return f"{self.name}, {self.differs}" if self.differs else self.name


COUNTERPARTS: Mapping[str, Counterpart] = MappingProxyType(
    {
        "crop": Counterpart("RandomCrop", {"size": (64, 64), "padding": 12, "padding_mode": "replicate"}),
        "grayscale": Counterpart("RandomGrayscale", {"p": 1.0}),
        "cutout": Counterpart("RandomErasing", {"p": 1.0, "scale": (0.012, 0.108)}, "size and place by another law"),
        "flip": Counterpart("RandomHorizontalFlip", {"p": 0.5}),
        "rotate": Counterpart("RandomRotation90", {"times": (0, 3), "p": 1.0}),
        "color_jitter": Counterpart(
            "ColorJitter",
            {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.354},
            "each factor by another formula",
        ),
        "translate": Counterpart(
            "RandomTranslate",
            {"translate_x": (-1 / 16, 1 / 16), "translate_y": (-1 / 16, 1 / 16), "p": 1.0},
            "by parts of a pixel",
        ),
        "rotation": Counterpart("RandomRotation", {"degrees": 15.0, "p": 1.0}),
    }
)
"""Kornia has no random convolution and no box in a random colour."""


def run(settings: Settings, report: Report = silent) -> Result:
    machine.keep_memory()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return result(measure(settings, report))


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """Each of ours in turns with kornia's on the same frames, on as many threads as torch has."""
    generator = Generator().manual_seed(0)
    frames = torch.randint(256, (FRAMES, 64, 64, 3), dtype=torch.uint8, generator=generator)
    rows = []
    for name, counterpart in COUNTERPARTS.items():
        functions = {
            "ours": partial(_ours, frames, augmentation(name), generator),
            "kornia": partial(_kornias, frames, counterpart.build()),
        }
        seconds = interleaved(functions, settings.rounds)
        rows.append(Row(name, 1e3 * seconds["ours"], counterpart.text, 1e3 * seconds["kornia"]))
        report(f"measured {name} against {counterpart.text}")
    return rows


def _ours(frames: Tensor, change: Augmentation, generator: Generator) -> Tensor:
    return as_input(augment_frames(frames, change, generator))


def _kornias(frames: Tensor, change: Any) -> Any:
    return change(as_input(frames))
