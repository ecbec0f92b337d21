"""Train a classifier in a run folder: checkpoints, exact resume, metrics, progress, and a summary at the end."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clop import machine
from clop.errors import UsageError
from clop.experiments.loop import resumable, run_to_end
from clop.experiments.run_folder import RunFolder
from clop.vision import tasks
from clop.vision.methods import Clop, Plan
from clop.vision.models import num_stages
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

    def advance(self) -> dict[str, Any]:
        before, start = self.done, time.monotonic()
        self._row = self.trainer.advance()
        seconds = time.monotonic() - start
        self.seconds += seconds
        self._rate = (self.done - before) / seconds
        self._test |= {name: value for name, value in self._row.items() if name.startswith("test_accuracy")}
        return {"iteration": self.trainer.iteration, "images": self.done, **self._row}

    def shown(self) -> dict[str, object]:
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


def load_task(config: VisionConfig) -> Task:
    """The images of a run."""
    folder = None if config.data is None else Path(config.data)
    return tasks.load(config.task, folder, config.image_size, config.train_images)


def train_classifier(
    config: VisionConfig,
    folder: RunFolder,
    task: Task,
    device: torch.device | str = "cpu",
    checkpoint_seconds: float = 600,
) -> dict[str, Any]:
    """Train to the end, from the start or from the folder's last checkpoint, and write what came of it.

    A run that has ended already is not trained again. Of its checkpoints the weights stay: those of a VGG take 0.4 GB
    and what the optimiser knows of them twice as much.
    """
    if (summary := folder.summary) is not None:
        return summary
    torch.set_num_threads(config.threads)
    with resumable(folder):
        work = VisionWork(config, task, device)
        run_to_end(work, folder, checkpoint_seconds)
        accuracies = work.trainer.result().metrics()
    summary = {
        "task": config.task,
        "method": config.method,
        "label": label(config),
        "network": config.network,
        "scale": scale(config, task),
        "position": _position(config),
        "seed": config.seed,
        **accuracies,
        "images_per_second": round(work.done / work.seconds, 1),
        "seconds": round(work.seconds, 1),
        "peak_memory_gb": machine.peak_memory_gb(),
        "ended": "complete",
    }
    folder.write_summary(summary)
    _keep_weights(folder, work)
    return summary


def _position(config: VisionConfig) -> int | None:
    """The stage after which CLOP comes, None without it."""
    clop = config.methods.get("clop")
    return (clop.position or num_stages(config.network)) if isinstance(clop, Clop) else None


def _keep_weights(folder: RunFolder, work: VisionWork) -> None:
    last = folder.save({"model": work.trainer.model.state_dict(), "iteration": work.trainer.iteration}, work.done)
    for path in (folder.path / "checkpoints").glob("step-*.pt"):
        if path != last:
            path.unlink()


def open_run(path: Path, data_folder: Path | None = None) -> tuple[RunFolder, VisionConfig]:
    """An earlier run and its settings, with the images in another folder if one is named."""
    folder = RunFolder.open(path, KIND)
    config = folder.read_config(VisionConfig.fromdict)
    if data_folder is not None:
        config = dataclasses.replace(config, data=str(data_folder))
    return folder, config


def create_or_open(path: Path, config: VisionConfig) -> RunFolder:
    """A new run, or the one that is there if it has the same settings, so that the same command goes on with it."""
    if not (path / "config.json").exists():
        return RunFolder.create(path, KIND, config.asdict())
    folder, found = open_run(path, None if config.data is None else Path(config.data))
    if found != config:
        raise UsageError(f"{path} holds a run with other settings; name another folder with --out")
    return folder


def label(config: VisionConfig) -> str:
    """The methods with those settings that are not the paper's, such as ``clop(alpha=0.3)``."""
    plan = Plan(config.network, torch.Generator())
    parts = []
    for name, method in config.methods.items():
        chosen = method.chosen(plan)
        changed = [
            f"{field.name}={value}"
            for field in dataclasses.fields(method)
            if (value := getattr(method, field.name)) not in (field.default, chosen.get(field.name, field.default))
        ]
        parts.append(f"{name}({', '.join(changed)})" if changed else name)
    return "+".join(parts) or "plain"


def scale(config: VisionConfig, task: Task) -> str:
    """The size of an experiment, said beside each of its numbers, and how it learnt if not as in the paper."""
    text = f"{config.network}, {task.scale}, {config.epochs} {'epoch' if config.epochs == 1 else 'epochs'}"
    paper = paper_config(config.task)
    if config.batch_size != paper.batch_size:
        text += f", batches of {config.batch_size}"
    if config.learning_rate != paper.learning_rate:
        text += f", learning rate {config.learning_rate:g}"
    return text
