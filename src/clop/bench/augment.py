"""``clop bench augment``: what augmentations of the input and CLOP cost, as the paper's Table 7 has it.

One forward pass over the training images in training mode, from stored bytes to logits. The methods take turns on each
piece of the data, so that what else the machine does falls on all of them alike.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.progress import Progress
from clop.report.published import augmentation_costs
from clop.vision.methods import METHODS
from clop.vision.tasks import Task, load
from clop.vision.train import Trainer, batches, paper_config

DESCRIPTION = (
    "Time one forward pass in training mode over MNIST (small CNN) and Imagenette (VGG9, 96 px) without a method, with "
    "each augmentation of the input and with CLOP, in turns. About ten minutes."
)
METHOD_NAMES = ("plain", "crop", "rotation", "cutout", "random_conv", "clop")
_PIECE = 4  # batches in a turn


@dataclass(frozen=True)
class Settings(BenchSettings):
    """Which images, through which network, and how often."""

    data: Path | None = None
    """Folder that holds the data sets; what is missing is downloaded to the cache."""
    images: int | None = None
    """Number of images of each data set (default: all)."""
    image_size: int = 96
    """Pixels of a side of Imagenette; paper: 224."""
    network: str = "vgg9"
    """Network for Imagenette; paper: vgg11."""
    passes: int = 1
    """Number of passes over the images with each method."""
    threads: int | None = None
    """Number of threads torch may use (default: all cores)."""

    def asdict(self) -> dict[str, Any]:
        values = super().asdict() | {"threads": self.used_threads}
        del values["data"]  # the same images, wherever they are
        return values

    @property
    def used_threads(self) -> int:
        return self.threads or torch.get_num_threads()


@dataclass(frozen=True)
class Row:
    """One method on one data set."""

    dataset: str
    method: str
    seconds: float
    """Seconds of one pass over the images."""
    ratio: float
    """Ratio to the seconds of the plain network."""
    scale: str
    paper_seconds: float | None
    paper_ratio: float | None

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def run(settings: Settings, report: Report = silent) -> Result:
    machine.keep_memory()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    rows = measure(settings, report)
    header = ["data", "method", "seconds", "ratio to plain", "paper: seconds", "paper: ratio", "scale"]
    cells = [
        [
            row.dataset,
            row.method,
            f"{row.seconds:.2f}",
            f"{row.ratio:.3f}",
            "" if row.paper_seconds is None else f"{row.paper_seconds:g}",
            "" if row.paper_ratio is None else f"{row.paper_ratio:.3f}",
            row.scale,
        ]
        for row in rows
    ]
    note = f"one forward pass in training mode, {settings.used_threads} thread(s); the paper's was on a GPU"
    return Result(rows, header, cells, note)


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All methods on both data sets."""
    configs = {  # all of them, so that a mistake is reported before anything is timed
        "mnist": paper_config("mnist-usps"),
        "imagenette": paper_config("imagenette", network=settings.network, image_size=settings.image_size),
    }
    tasks = {
        dataset: load(config.task, settings.data, config.image_size, settings.images)
        for dataset, config in configs.items()
    }
    rows = []
    for dataset, task in tasks.items():
        report(f"{dataset}: {configs[dataset].network}, {len(task.train)} images, {settings.passes} pass(es)")
        with Progress(f"{dataset}, each method", settings.passes * len(task.train), "images") as progress:
            rows += time_methods(dataset, task, configs[dataset].network, settings.passes, progress.step)
    return rows


def time_methods(
    dataset: str, task: Task, network: str, passes: int = 1, on_images: Callable[[int], None] = lambda _: None
) -> list[Row]:
    """All methods on the images of a task; ``on_images`` is called with the number of images after each turn."""
    trainers = {
        name: Trainer(
            paper_config(
                task.name,
                network=network,
                image_size=task.image_size,
                methods={} if name == "plain" else {name: METHODS[name]()},
            ),
            task,
        )
        for name in METHOD_NAMES
    }
    first = next(iter(trainers.values())).model
    for trainer in trainers.values():
        if trainer.model is not first:
            trainer.model.load_state_dict(first.state_dict())
        _forward(trainer, torch.arange(min(len(task.train), trainer.config.batch_size)))  # warm up
    order = random.Random(0)
    seconds = dict.fromkeys(trainers, 0.0)
    for _ in range(passes):
        for piece in torch.arange(len(task.train)).split(_PIECE * paper_config(task.name).batch_size):
            for name in order.sample(list(trainers), len(trainers)):
                start = time.perf_counter()
                _forward(trainers[name], piece)
                seconds[name] += (time.perf_counter() - start) / passes
            on_images(len(piece))
    return compare(dataset, seconds, f"{network}, {task.scale}")


def compare(dataset: str, seconds: Mapping[str, float], scale: str) -> list[Row]:
    """Ratios to the plain network, ours and the paper's."""
    paper = augmentation_costs(dataset)
    return [
        Row(
            dataset,
            name,
            value,
            value / seconds["plain"],
            scale,
            paper.get(name),
            paper[name] / paper["plain"] if name in paper else None,
        )
        for name, value in seconds.items()
    ]


@torch.no_grad()
def _forward(trainer: Trainer, order: torch.Tensor) -> None:
    trainer.model.train()
    for pixels, labels in batches(trainer.task.train, order, trainer.config.batch_size, trainer.device):
        trainer.model(trainer.batch(pixels, labels).images)
