"""Whether what a file says can go into a table. A :class:`~clop.errors.UsageError` says what is wrong with it."""

import math
from collections.abc import Mapping
from typing import Any

from clop.errors import UsageError
from clop.experiments.summaries import AgentSummary, VisionSummary

_ROWS = {
    "bench augment": ("dataset", "method", "seconds", "ratio", "scale"),
    "bench methods": ("method", "ratio"),
}
"""What tables and claims take from a row of a benchmark, by its kind."""


def check_agent(config: Mapping[str, Any], summary: AgentSummary) -> None:
    """The numbers of an agent are numbers, and those of the run that its config describes."""
    _check_same(config, summary, "game", str)
    _check_same(config, summary, "seed", int)
    for stage in summary.stages:
        _check_type("env_steps", stage.env_steps, int)
        numbers = {"seconds": stage.seconds}
        for split in ("train", "test"):
            found = getattr(stage, split)
            numbers |= {f"{split}.mean": found.mean, f"{split}.success_rate": found.success_rate}
        _check_numbers(numbers)


def check_classifier(config: Mapping[str, Any], summary: VisionSummary) -> None:
    """The same of a classifier."""
    _check_same(config, summary, "task", str)
    _check_same(config, summary, "seed", int)
    _check_type("test_accuracy", summary.test_accuracy, dict)
    if not summary.test_accuracy:
        raise UsageError("test_accuracy is empty")
    tests = {f"test_accuracy of {name}": value for name, value in summary.test_accuracy.items()}
    training = {"running_accuracy": summary.running_accuracy, "train_accuracy": summary.train_accuracy}
    _check_numbers(tests | training | {"epochs": config["epochs"]})


def check_record(record: Mapping[str, Any]) -> None:
    """A record of a benchmark or of a measurement of heat has what is read from it."""
    if record["kind"] == "saliency":
        for name in ("networks", "frames", "source"):
            if name not in record["metrics"]:
                raise UsageError(f"lacks {name!r}")
    for row in record["metrics"].get("rows", []):
        for name in _ROWS.get(record["kind"], ()):
            if name not in row:
                raise UsageError(f"lacks {name!r} in a row")


def _check_same(config: Mapping[str, Any], summary: AgentSummary | VisionSummary, name: str, kind: type) -> None:
    _check_type(name, config[name], kind)
    if config[name] != getattr(summary, name):
        raise UsageError(
            f"config.json has {name} {config[name]!r} and summary.json {getattr(summary, name)!r}: of two runs"
        )


def _check_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {value!r}, expected {'an' if kind is int else 'a'} {kind.__name__}")


def _check_numbers(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"{name} is {value!r}, expected a number")
