"""``clop demo``: a small experiment with digits that need no download, in about two minutes on two cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clop.errors import UsageError
from clop.experiments.record import RecordBuilder, RunRecord
from clop.files import write_atomic
from clop.progress import Progress
from clop.report import figures
from clop.report.tables import markdown
from clop.vision import tasks
from clop.vision.methods import METHODS
from clop.vision.train import Trainer, paper_config, train

_SETTINGS: dict[str, dict[str, Any]] = {"plain": {}, "dropout": {"p": 0.5}, "batch_norm": {}, "clop": {"alpha": 0.6}}
_TITLES = {"train": "train", "centred": "test, centred", "filled": "test, filled"}


def run(out: Path, epochs: int, seed: int) -> str:
    """Train the small CNN on the digits with each method; leave records, a table and a figure; return the table.

    A record that is already there for the same settings is taken as it is, so an interrupted demo goes on.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"the demo writes a folder, but {out} is a file; name another with --out")
    task = tasks.load("digits")
    records = {name: _run_method(name, task, out / f"digits-{name}.json", epochs, seed) for name in _SETTINGS}

    def label(name: str) -> str:
        settings = records[name].config["settings"]
        return f"{name}({', '.join(f'{value:g}' for value in settings.values())})" if settings else name

    accuracies = {
        label(name): {
            "train": record.metrics["train_accuracy"],
            **{test: record.metrics[f"test_accuracy_{test}"] for test in task.tests},
        }
        for name, record in records.items()
    }
    table = markdown(
        ["method", *(_TITLES[column] for column in ("train", *task.tests)), "seconds"],
        [
            [name, *(f"{value:.1f}" for value in values.values()), f"{record.seconds:.0f}"]
            for (name, values), record in zip(accuracies.items(), records.values(), strict=True)
        ],
    )
    scale = f"{len(task.train)} images, {epochs} epochs, one seed ({seed})"
    text = f"Accuracy in % of the paper's small CNN on handwritten digits, {scale}.\n\n{table}\n"
    write_atomic(out / "digits.md", lambda draft: draft.write_text(text))
    shown = {"train": task.train, **task.tests}
    figure = figures.accuracy_bars(
        f"Digits that change in size: {scale}",
        {name.replace("(", "\n("): {_TITLES[c]: v for c, v in values.items()} for name, values in accuracies.items()},
        {_TITLES[name]: [images.pixels[i, 0].numpy() for i in range(4)] for name, images in shown.items()},
    )
    figures.save(figure, out / "digits.png")
    return text


def _run_method(name: str, task: tasks.Task, path: Path, epochs: int, seed: int) -> RunRecord:
    settings = _SETTINGS[name]
    methods = {} if name == "plain" else {name: METHODS[name](**settings)}
    threads = torch.get_num_threads()
    config = paper_config("digits", epochs=epochs, seed=seed, methods=methods, test_every=0, threads=threads)
    asked = config.asdict() | {"method": name, "settings": settings}
    if path.exists():
        found = RunRecord.read(path)
        if found.config == asked:
            return found
        raise UsageError(f"{path} is the record of a run with other settings; name another folder with --out")
    watch = RecordBuilder("vision", asked)
    with Progress(f"digits, {name}", epochs * len(task.train), "images") as progress:

        def show(trainer: Trainer, row: Mapping[str, float]) -> None:
            progress.step(trainer.images - progress.done, epoch=f"{row['epoch']:.3g}/{epochs}", loss=row["loss"])

        result = train(config, task, on_part=show)
    record = watch.record(result.metrics())
    record.write(path)
    return record
