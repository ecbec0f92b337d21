"""``clop bench augment``: what augmentations of the input and CLOP cost, as the paper's Table 7 has it.

One forward pass over the training images in training mode, from stored bytes to logits. The methods take turns on each
piece of the data, so that what else the machine does falls on all of them alike.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from clop.report.published import augmentation_costs
from clop.vision.methods import METHODS
from clop.vision.tasks import Task
from clop.vision.train import Trainer, batches, paper_config

METHOD_NAMES = ("plain", "crop", "rotation", "cutout", "random_conv", "clop")
_PIECE = 4  # batches in a turn


@dataclass(frozen=True)
class Row:
    """One method on one data set."""

    dataset: str
    method: str
    seconds: float
    """Of one pass over the images."""
    ratio: float
    """To the plain network."""
    scale: str
    paper_seconds: float | None
    paper_ratio: float | None

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def run(
    dataset: str, task: Task, network: str, passes: int = 1, on_images: Callable[[int], None] = lambda _: None
) -> list[Row]:
    """All methods on the images of a task; the number of images done is handed over after each turn."""
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
