"""Train a classifier in a run folder, from its settings to its summary."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from clop import machine
from clop.errors import UsageError
from clop.experiments.loop import resumable, run_to_end
from clop.experiments.run_folder import RunFolder, differences
from clop.experiments.summaries import VisionSummary
from clop.experiments.trackers import check_trackers
from clop.vision import tasks
from clop.vision.methods import Clop, Plan
from clop.vision.models import find_network
from clop.vision.tasks import Task
from clop.vision.train import Trainer, VisionConfig, paper_config

KIND = "vision"


class VisionWork:
    """A classifier in training, as the loop drives it."""

    unit = "images"

    def __init__(self, config: VisionConfig, task: Task, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.trainer = Trainer(config, task, device)
        self.seconds = 0.0
        """Spent in training so far, with its tests."""
        self._rate = 0.0
        self._row: Mapping[str, float] = {}
        self._test: dict[str, float] = {}

    @property
    def title(self) -> str:
        return f"{self.config.task}, {label(self.config)}, {self.trainer.task.scale}, seed {self.config.seed}"

    @property
    def total(self) -> int:
        return self.trainer.total_images

    @property
    def done(self) -> int:
        return self.trainer.images

    @property
    def finished(self) -> bool:
        return self.trainer.done

    def step(self) -> dict[str, Any]:
        before, start = self.done, time.monotonic()
        self._row = self.trainer.advance()
        seconds = time.monotonic() - start
        self.seconds += seconds
        self._rate = (self.done - before) / seconds
        self._test |= {name: value for name, value in self._row.items() if name.startswith("test_accuracy")}
        return {"iteration": self.trainer.iteration, "images": self.done, **self._row}

    def progress(self) -> dict[str, object]:
        names = {"running_accuracy": self._row["running_accuracy"], **self._test}
        return {"epoch": f"{self._row['epoch']:.2f}", "loss": self._row["loss"]} | names

    def events(self, row: Mapping[str, Any]) -> dict[str, float]:
        named = {f"{'losses' if name == 'loss' else 'charts'}/{name}": value for name, value in row.items()}
        return named | {"charts/images_per_second": self._rate}

    def state(self) -> dict[str, Any]:
        return self.trainer.state() | {"seconds": self.seconds, "tests": dict(self._test)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.trainer.load(state)
        self.seconds, self._test = state["seconds"], dict(state["tests"])


def load_task(config: VisionConfig, data: Path | None = None) -> Task:
    """The images of a run, looked for in ``data`` in place of the folder in the settings if it is given."""
    if data is None and config.data is not None:
        data = Path(config.data)
    return tasks.load(config.task, data, config.image_size, config.train_images)


def run(
    config: VisionConfig,
    out: Path | str,
    device: torch.device | str = "cpu",
    *,
    data: Path | None = None,
    checkpoint_seconds: float = 600,
    task: Task | None = None,
    track: Sequence[str] = (),
) -> VisionSummary:
    """Train a classifier in a folder to the end and return what came of it.

    Where the folder holds a run with the same settings, that run goes on from its last checkpoint, or its summary is
    returned if it has ended. Of the checkpoints of a run that has ended the weights stay: those of a VGG take 0.4 GB,
    and the state of the optimiser takes twice as much.

    Args:
        config: The settings.
        out: The folder of the run.
        device: Where to train.
        data: The folder that holds the images now, if it is not the one in the settings.
        checkpoint_seconds: How often the state is written, besides the end and an interrupt.
        task: The images, if they are loaded already.
        track: Where else the metrics are shown: see :data:`~clop.experiments.trackers.TRACKERS`.
    """
    out = Path(out)
    check_trackers(track)
    folder = find_run(out, config, data)
    if folder is not None and (summary := read_summary(folder)) is not None:
        return summary
    task = task or load_task(config, data)  # before a folder is made, since images may be missing
    folder = folder or RunFolder.create(out, KIND, config.asdict())
    torch.set_num_threads(config.threads)
    with folder.held(), folder.beating(), resumable(folder):
        work = VisionWork(config, task, device)
        run_to_end(work, folder, checkpoint_seconds, track=track)
        summary = summarise(work)
        folder.write_summary(summary.asdict())
        _keep_weights(folder, work)
    return summary


def find_run(out: Path, config: VisionConfig, data: Path | None = None) -> RunFolder | None:
    """The run that is there already, None if there is none; a :class:`UsageError` if it has other settings."""
    if not (out / "config.json").exists():
        return None
    folder = RunFolder.open(out, KIND)
    other = differences(folder.read_config(VisionConfig.fromdict), config)
    if data is not None and "data" in other:  # the images lie elsewhere by now; the trainer compares their pixels
        other.remove("data")
    if other:
        raise UsageError(f"{out} holds a run with other settings ({', '.join(other)}); name another folder")
    return folder


def read_config(path: Path) -> VisionConfig:
    """The settings of an earlier run."""
    return RunFolder.open(path, KIND).read_config(VisionConfig.fromdict)


def read_summary(folder: RunFolder) -> VisionSummary | None:
    """What came of a run, None before its end."""
    values = folder.summary
    return None if values is None else VisionSummary.fromdict(values, folder.path / "summary.json")


def summarise(work: VisionWork) -> VisionSummary:
    """Measure the accuracies of a network after training."""
    config, task, result = work.config, work.trainer.task, work.trainer.result()
    return VisionSummary(
        task=config.task,
        method=config.method,
        changed=changed(config),
        label=label(config),
        network=config.network,
        source=task.source,
        train_images=len(task.train),
        scale=scale(config, task),
        slot=_slot(config),
        seed=config.seed,
        running_accuracy=result.running_accuracy,
        train_accuracy=result.train_accuracy,
        test_accuracy=result.test_accuracy,
        images_per_second=round(work.done / work.seconds, 1),
        seconds=round(work.seconds, 1),
        peak_memory_gb=machine.peak_memory_gb(),
    )


def _slot(config: VisionConfig) -> str | None:
    clop = config.methods.get("clop")
    return (clop.slot or find_network(config.network).stages[-1]) if isinstance(clop, Clop) else None


def _keep_weights(folder: RunFolder, work: VisionWork) -> None:
    last = folder.save({"model": work.trainer.model.state_dict(), "iteration": work.trainer.iteration}, work.done)
    for path in (folder.path / "checkpoints").glob("step-*.pt"):
        if path != last:
            path.unlink()


def changed(config: VisionConfig) -> dict[str, dict[str, Any]]:
    """By method, the settings that are not the paper's; the paper's value spelt out is no change."""
    plan = Plan(config.network, torch.Generator())
    found: dict[str, dict[str, Any]] = {}
    for name, method in config.methods.items():
        chosen = method.chosen(plan)
        for field in dataclasses.fields(method):
            value = getattr(method, field.name)
            if value not in (field.default, chosen.get(field.name, field.default)):
                found.setdefault(name, {})[field.name] = value
    return found


def label(config: VisionConfig) -> str:
    """The methods with those settings that are not the paper's, such as ``clop(alpha=0.3)``."""
    found = changed(config)
    parts = []
    for name in config.methods:
        settings = ", ".join(f"{setting}={value}" for setting, value in found.get(name, {}).items())
        parts.append(f"{name}({settings})" if settings else name)
    return "+".join(parts) or "plain"


def scale(config: VisionConfig, task: Task) -> str:
    """The size of an experiment, shown beside each of its numbers, and how it learnt if not as in the paper."""
    text = f"{config.network}, {task.scale}, {config.epochs} {'epoch' if config.epochs == 1 else 'epochs'}"
    paper = paper_config(config.task)
    if config.batch_size != paper.batch_size:
        text += f", batches of {config.batch_size}"
    if config.learning_rate != paper.learning_rate:
        text += f", learning rate {config.learning_rate:g}"
    if config.dense_init != paper.dense_init:
        text += f", dense layers as in {config.dense_init}"
    return text
