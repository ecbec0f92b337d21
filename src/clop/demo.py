"""``clop demo``: a small experiment with digits that need no download, in about two minutes on two cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clop.errors import UsageError
from clop.experiments import vision
from clop.experiments.summaries import VisionSummary
from clop.files import write_atomic
from clop.report import figures
from clop.report.tables import markdown
from clop.vision import tasks
from clop.vision.methods import METHODS
from clop.vision.train import VisionConfig, paper_config

_SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dropout": {"style": "dense", "p": 0.5},
    "batch_norm": {},
    "clop": {"alpha": 0.6},
}
_TITLES = {"train": "train", "centred": "test, centred", "filled": "test, filled"}


def run(out: Path, epochs: int, seed: int) -> str:
    """Train the small CNN on the digits with each method; leave the runs, a table and a figure; return the table.

    A run that is already there with the same settings goes on, or is taken as it is, so an interrupted demo goes on.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"the demo writes a folder, but {out} is a file; name another with --out")
    task = tasks.load("digits")
    summaries = {name: vision.run(_config(name, epochs, seed), out / f"digits-{name}", task=task) for name in _SETTINGS}
    text = table(summaries, epochs)
    write_atomic(out / "digits.md", lambda draft: draft.write_text(text))
    shown = {"train": task.train, **task.tests}
    figure = figures.accuracy_bars(
        f"Digits that change in size: {_scale(summaries, epochs)}",
        {
            _label(name).replace("(", "\n("): {_TITLES[c]: v for c, v in _accuracies(summary).items()}
            for name, summary in summaries.items()
        },
        {_TITLES[name]: [images.pixels[i, 0].numpy() for i in range(4)] for name, images in shown.items()},
    )
    figures.save(figure, out / "digits.png")
    return text


def table(summaries: Mapping[str, VisionSummary], epochs: int) -> str:
    """The accuracies of the methods, by their names."""
    columns = list(_accuracies(summaries["plain"]))
    rows = [
        [_label(name), *(f"{value:.1f}" for value in _accuracies(summary).values()), f"{summary.seconds:.0f}"]
        for name, summary in summaries.items()
    ]
    text = markdown(["method", *(_TITLES[column] for column in columns), "seconds"], rows)
    scale = _scale(summaries, epochs)
    return f"Accuracy in % of the paper's small CNN on handwritten digits, {scale}.\n\n{text}\n"


def _config(name: str, epochs: int, seed: int) -> VisionConfig:
    methods = {} if name == "plain" else {name: METHODS[name](**_SETTINGS[name])}
    threads = torch.get_num_threads()
    return paper_config("digits", epochs=epochs, seed=seed, methods=methods, test_every=0, threads=threads)


def _accuracies(summary: VisionSummary) -> dict[str, float]:
    return {"train": summary.train_accuracy, **summary.test_accuracy}


def _label(name: str) -> str:
    """The method with the numbers that the demo gives it, the paper's or not."""
    settings = ", ".join(f"{value:g}" for value in _SETTINGS[name].values() if isinstance(value, float))
    return f"{name}({settings})" if settings else name


def _scale(summaries: Mapping[str, VisionSummary], epochs: int) -> str:
    one = summaries["plain"]
    return f"{one.train_images} images, {epochs} epochs, one seed ({one.seed})"
