"""What came of a run, as it is written to ``summary.json`` and read by reports. Needs no torch.

The files of a run state their format. Only the present one is read, since a guess at what an older file means would
end up in a table.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from clop.errors import UsageError

FORMAT_VERSION = 2
"""Of ``config.json`` and ``summary.json``."""


def check_version(values: Mapping[str, Any], path: Path) -> None:
    """A :class:`UsageError` unless a file is of the present format; the first one stated none."""
    found = values.get("version", 1)
    if found != FORMAT_VERSION:
        raise UsageError(
            f"{path} is of format {found} and this clop reads format {FORMAT_VERSION}; use the clop that made the run, "
            "whose commit is in config.json, or train anew in another folder"
        )


@dataclass(frozen=True)
class _Summary:
    """What all summaries have in common."""

    def asdict(self) -> dict[str, Any]:
        """Plain names and numbers, and the format, as written to a file."""
        return {"version": FORMAT_VERSION} | dataclasses.asdict(self)

    @classmethod
    def fromdict(cls, values: Mapping[str, Any], path: Path) -> Self:
        """The inverse of :meth:`asdict`; ``path`` is the file that errors name."""
        check_version(values, path)
        try:
            return cls(**{name: value for name, value in values.items() if name != "version"})
        except TypeError as error:
            raise UsageError(f"{path} is damaged, or of another version of clop: {error}") from None


@dataclass(frozen=True)
class EvaluationSummary:
    """What an evaluation of an agent found, without its episodes."""

    protocol: str
    """Name of the protocol with its switch."""
    game: str
    distribution_mode: str
    split: str
    """``train`` or ``test``"""
    level_text: str
    """Which levels these are, in words."""
    backend: str
    seed: int
    episodes: int
    mean: float
    standard_error: float | None
    """Of the mean over episodes; None for a single one."""
    normalised_mean: float | None
    """None for a game whose range of returns is not published."""
    success_rate: float
    """Share of episodes that the game counts as solved."""
    mean_length: float


@dataclass(frozen=True)
class Stage:
    """What an agent had reached at an earlier end of a run that has grown since."""

    env_steps: int
    train: EvaluationSummary
    test: EvaluationSummary
    seconds: float
    """Of training until then."""

    @property
    def gap(self) -> float:
        """Mean return on training levels minus that on unseen ones."""
        return self.train.mean - self.test.mean


@dataclass(frozen=True)
class AgentSummary(_Summary):
    """What came of training an agent."""

    game: str
    method: str
    """The methods' names joined with ``+``."""
    notes: dict[str, str | float]
    """Settings the scores depend on that the methods chose, and what they cost beyond the counted steps."""
    preset_name: str
    seed: int
    env_steps: int
    train: EvaluationSummary
    test: EvaluationSummary
    gap: float
    """Mean return on training levels minus that on unseen ones."""
    steps_per_second: float
    seconds: float
    """Of training, with neither tests nor evaluations."""
    peak_memory_gb: float | None
    """Of all processes together; some systems do not say."""
    ended: str = "complete"
    earlier: tuple[Stage, ...] = ()
    """Earlier ends of a run that has grown, the first one first."""

    def asdict(self) -> dict[str, Any]:
        values = super().asdict()
        if not self.earlier:  # a run that has not grown is written as before there was growing
            del values["earlier"]
        return values

    @classmethod
    def fromdict(cls, values: Mapping[str, Any], path: Path) -> Self:
        summary = super().fromdict(values, path)
        try:
            train, test = _evaluations(values)
            earlier = tuple(
                Stage(**{**stage, **dict(zip(("train", "test"), _evaluations(stage), strict=True))})
                for stage in values.get("earlier", ())
            )
        except (TypeError, KeyError) as error:
            raise UsageError(f"{path} is damaged, or of another version of clop: {error}") from None
        return dataclasses.replace(summary, train=train, test=test, earlier=earlier)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All ends of the run, this one last."""
        return (*self.earlier, Stage(self.env_steps, self.train, self.test, self.seconds))

    @property
    def has_unseen(self) -> bool:
        """Whether training left levels to test on; it has all of them where ``num_levels`` is 0."""
        return self.train.level_text != self.test.level_text

    @property
    def method_text(self) -> str:
        return method_text(self.method, self.notes)


def _evaluations(values: Mapping[str, Any]) -> list[EvaluationSummary]:
    return [EvaluationSummary(**values[split]) for split in ("train", "test")]


def method_text(method: str, notes: Mapping[str, object]) -> str:
    """A method's name, with what has to stand beside a score of it."""
    text = "; ".join(f"{name} {value}" for name, value in notes.items())
    return f"{method} ({text})" if text else method


@dataclass(frozen=True)
class VisionSummary(_Summary):
    """What came of training a classifier. Accuracies are in percent."""

    task: str
    method: str
    """The methods' names joined with ``+``."""
    changed: dict[str, dict[str, Any]]
    """By method, the settings that are not the paper's."""
    label: str
    """The same as text, such as ``clop(alpha=0.3)``; for display, as is ``scale``."""
    network: str
    source: str
    """The data set that was found."""
    train_images: int
    scale: str
    slot: str | None
    """The stage that CLOP follows, None without it."""
    seed: int
    running_accuracy: float
    """Over the last epoch, in training mode; the others are in evaluation mode."""
    train_accuracy: float
    test_accuracy: dict[str, float]
    """By test set."""
    images_per_second: float | None
    """Of training. None in a record that was made before this was measured."""
    seconds: float
    peak_memory_gb: float | None
    """None in a record that was made before this was measured."""
    ended: str = "complete"
