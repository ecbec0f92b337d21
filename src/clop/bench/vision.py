"""``clop bench vision``: images per second of our training loop against a plain one, what CLOP costs in it, and what
share of the machine's peak a VGG reaches.

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
from torch.utils.flop_counter import FlopCounterMode

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.bench.own_process import OwnProcess, TakeTurns
from clop.bench.peak import take_peaks
from clop.bench.timing import quartiles
from clop.vision.datasets import Images
from clop.vision.methods import Clop
from clop.vision.models import build
from clop.vision.tasks import Task
from clop.vision.train import Trainer, VisionConfig, paper_config

BATCH = 64
_VGG_SIZE = 96
DESCRIPTION = (
    "Time training of the small CNN in turns: our loop, the same with CLOP, and a plain loop (NCHW, DataLoader, the C "
    "library's defaults); and that of VGG9 on photographs beside the machine's peak. Each has a process of its own. "
    "About five minutes."
)
_PLAIN, _OURS, _CLOP, _VGG, _PEAK = "plain loop", "ours", "ours with CLOP", "ours, VGG9 at 96 px", "peak"


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
    share_of_peak: float | None = None
    """Of the speed of matrix products in the same rounds, median over rounds."""

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


def run(settings: Settings, report: Report = silent) -> Result:
    rows = measure(settings, report)
    header = ["loop", "images/s", "against", "speed, median", "quartiles", "of peak"]
    cells = [
        [
            row.what,
            f"{row.images_per_second:.0f}",
            row.baseline or "",
            "" if row.ratio is None else f"{row.ratio:.3f}",
            "" if row.quartiles is None else f"{row.quartiles[0]:.3f} to {row.quartiles[1]:.3f}",
            "" if row.share_of_peak is None else f"{row.share_of_peak:.0%}",
        ]
        for row in rows
    ]
    note = f"small CNN, 32 px, or VGG9; batches of {BATCH}, {settings.used_threads} thread(s), {settings.rounds} turns"
    return Result(rows, header, cells, note)


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All loops in turns."""
    order, batches = random.Random(0), settings.batches
    bodies = {name: partial(_loop, name, batches) for name in (_PLAIN, _OURS, _CLOP, _VGG)} | {_PEAK: take_peaks}
    with ExitStack() as stack:
        loops = {
            name: stack.enter_context(OwnProcess(name, body, settings.used_threads)) for name, body in bodies.items()
        }
        turns: dict[str, list[Any]] = {name: [] for name in loops}
        for loop in loops.values():
            loop.turn()  # warm up
        for number in range(settings.rounds):
            for name in order.sample(list(loops), len(loops)):
                turns[name].append(loops[name].turn())
            report(f"turn {number + 1} of {settings.rounds}")
    peaks = [turn["gflops"] for turn in turns.pop(_PEAK)]
    vgg = turns.pop(_VGG)
    rows = compare(turns, batches * BATCH, {_OURS: _PLAIN, _CLOP: _OURS})
    return [*rows, share_of_peak(vgg, peaks, vgg_gflop())]


def share_of_peak(seconds: list[float], peaks: list[float], gflop: float) -> Row:
    """VGG9, a batch a turn."""
    shares = [BATCH * gflop / took / peak for took, peak in zip(seconds, peaks, strict=True)]
    return Row(_VGG, BATCH / statistics.median(seconds), share_of_peak=statistics.median(shares))


def vgg_gflop() -> float:
    """Operations to learn from one photograph, in billions."""
    model, image = build("vgg9", 3, 10, _VGG_SIZE), torch.zeros(1, 3, _VGG_SIZE, _VGG_SIZE)
    with FlopCounterMode(display=False) as counted:
        model(image).sum().backward()
    return counted.get_total_flops() / 1e9


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
    if name == _VGG:
        loop = vgg_loop()
    else:
        loop = plain_loop(batches) if name == _PLAIN else our_loop(batches, clop=name == _CLOP)

    def turn() -> float:
        start = time.perf_counter()
        loop()
        return time.perf_counter() - start

    take_turns(turn)


def _task(batches: int, name: str = "mnist-usps", channels: int = 1, size: int = 32) -> Task:
    """Random images: the speed is that of any others."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (batches * BATCH, channels, size, size), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (batches * BATCH,), generator=generator)
    return Task(name, 10, Images(pixels, labels), {}, source="noise")


def our_loop(batches: int, *, clop: bool = False) -> Callable[[], object]:
    methods = {"clop": Clop()} if clop else {}
    return _training(paper_config("mnist-usps", epochs=10**6, test_every=0, methods=methods), _task(batches), batches)


def vgg_loop() -> Callable[[], object]:
    config = paper_config("imagenette", network="vgg9", image_size=_VGG_SIZE, epochs=10**6, test_every=0)
    return _training(config, _task(1, "imagenette", 3, _VGG_SIZE), 1)


def _training(config: VisionConfig, task: Task, batches: int) -> Callable[[], object]:
    machine.keep_memory()
    trainer = Trainer(config, task)
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
