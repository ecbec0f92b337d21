"""``clop bench vision``: images per second of our training loop against a plain one, and what CLOP costs in it.

Each loop has a process of its own, since the C library's memory settings act on a whole process.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.bench.own_process import OwnProcess, TakeTurns
from clop.bench.timing import quartiles
from clop.vision.datasets import Images
from clop.vision.methods import Clop
from clop.vision.tasks import Task
from clop.vision.train import Trainer, paper_config

BATCH = 64
DESCRIPTION = (
    "Time training of the small CNN in turns: our loop, the same with CLOP, and a plain loop (NCHW, DataLoader, the C "
    "library's defaults), each in a process of its own. About three minutes."
)
_PLAIN, _OURS, _CLOP = "plain loop", "ours", "ours with CLOP"


@dataclass(frozen=True)
class Settings(BenchSettings):
    """How often, how long, and on how many threads."""

    rounds: int = 20
    """Number of turns of each loop."""
    batches: int = 25
    """Number of batches of 64 images in a turn."""
    threads: int | None = None
    """Number of threads torch may use (default: all cores)."""

    def asdict(self) -> dict[str, Any]:
        return super().asdict() | {"threads": self.used_threads}

    @property
    def used_threads(self) -> int:
        return self.threads or torch.get_num_threads()


@dataclass(frozen=True)
class Row:
    """A loop, and how it compares with another one in the same rounds."""

    what: str
    images_per_second: float
    """Median over rounds."""
    baseline: str | None = None
    ratio: float | None = None
    """Speed to that of the baseline, median over rounds."""
    quartiles: tuple[float, float] | None = None
    """Quartiles of that ratio."""

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def run(settings: Settings, report: Report = silent) -> Result:
    rows = measure(settings, report)
    header = ["loop", "images/s", "against", "speed, median", "quartiles"]
    cells = [
        [
            row.what,
            f"{row.images_per_second:.0f}",
            row.baseline or "",
            "" if row.ratio is None else f"{row.ratio:.3f}",
            "" if row.quartiles is None else f"{row.quartiles[0]:.3f} to {row.quartiles[1]:.3f}",
        ]
        for row in rows
    ]
    note = f"small CNN, 32 px, batches of {BATCH}, {settings.used_threads} thread(s), {settings.rounds} turns"
    return Result(rows, header, cells, note)


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All loops in turns."""
    order, batches = random.Random(0), settings.batches
    with ExitStack() as stack:
        loops = {
            name: stack.enter_context(OwnProcess(name, partial(_loop, name, batches), settings.used_threads))
            for name in (_PLAIN, _OURS, _CLOP)
        }
        seconds: dict[str, list[float]] = {name: [] for name in loops}
        for loop in loops.values():
            loop.turn()  # warm up
        for number in range(settings.rounds):
            for name in order.sample(list(loops), len(loops)):
                seconds[name].append(loops[name].turn())
            report(f"turn {number + 1} of {settings.rounds}")
    return compare(seconds, batches * BATCH, {_OURS: _PLAIN, _CLOP: _OURS})


def compare(seconds: Mapping[str, list[float]], images: int, baselines: Mapping[str, str]) -> list[Row]:
    """Medians; ratios are taken round by round, so that what else the machine does falls out."""
    rows = []
    for name, times in seconds.items():
        speed = images / statistics.median(times)
        if name not in baselines:
            rows.append(Row(name, speed))
            continue
        ratios = [theirs / ours for ours, theirs in zip(times, seconds[baselines[name]], strict=True)]
        low, middle, high = quartiles(ratios)
        rows.append(Row(name, speed, baselines[name], middle, (low, high)))
    return rows


def _loop(name: str, batches: int, take_turns: TakeTurns) -> None:
    loop = plain_loop(batches) if name == _PLAIN else _our_loop(batches, clop=name == _CLOP)

    def turn() -> float:
        start = time.perf_counter()
        loop()
        return time.perf_counter() - start

    take_turns(turn)


def _task(batches: int) -> Task:
    """Random images: the speed is that of any others."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (batches * BATCH, 1, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (batches * BATCH,), generator=generator)
    return Task("mnist-usps", 10, Images(pixels, labels), {}, source="noise")


def _our_loop(batches: int, *, clop: bool) -> Callable[[], object]:
    machine.keep_memory()
    methods = {"clop": Clop()} if clop else {}
    trainer = Trainer(paper_config("mnist-usps", epochs=10**6, test_every=0, methods=methods), _task(batches))
    trainer.part = batches
    return trainer.advance


class _PlainDataset(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, task: Task) -> None:
        self.pixels, self.labels = task.train.pixels.contiguous(), task.train.labels
        self.mean, self.std = task.mean[0], task.std[0]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return (self.pixels[index].float() / 255 - self.mean) / self.std, self.labels[index]


def plain_loop(batches: int) -> Callable[[], object]:
    """The loop of a tutorial: images made floats one by one, a DataLoader, NCHW, ReLU before pooling, the C library and
    Adam as they come."""
    loader = DataLoader(_PlainDataset(_task(batches)), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(8192, 512), nn.ReLU(), nn.Linear(512, 100), nn.ReLU(), nn.Linear(100, 10)),
    )
    optimiser = torch.optim.Adam(model.parameters(), 5e-4)

    def epoch() -> None:
        model.train()
        for images, labels in loader:
            optimiser.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimiser.step()

    return epoch
