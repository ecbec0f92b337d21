"""The benchmarks by name. Their modules are imported only when they run: the list alone is instant."""

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """Where a benchmark is, and its line in the list."""

    module: str
    summary: str

    def load(self) -> Any:
        """The module; see :mod:`clop.bench.benchmark` for what it has."""
        return importlib.import_module(self.module)


BENCHES: dict[str, Entry] = {
    "layer": Entry("clop.bench.layer", "the layer against copying, channel dropout and a Python loop"),
    "train": Entry(
        "clop.bench.train", "the learner: steps per second, where the time goes, and against Stable-Baselines3"
    ),
    "return": Entry(
        "clop.bench.time_to_return", "training time to a return on unseen levels, against Stable-Baselines3"
    ),
    "evaluate": Entry("clop.bench.evaluate", "an evaluation, by protocol and number of processes"),
    "sweep": Entry("clop.bench.sweep", "a sweep whose processes are killed at random, and what a sweep costs"),
    "report": Entry("clop.bench.report", "a report on as many runs as the paper's, and that it is the same each time"),
    "methods": Entry("clop.bench.methods", "what each method costs in an update"),
    "vision": Entry("clop.bench.vision", "the classifier's training loop against a plain one"),
    "augment": Entry("clop.bench.augment", "what augmentations and CLOP cost, as the paper's table"),
    "pixels": Entry("clop.bench.pixels", "our augmentations against kornia's"),
}
