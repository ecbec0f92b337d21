"""Curves of methods on one game: means over seeds with intervals, and each seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clop.report import stats
from clop.report.runs import AgentRun

MOST_POINTS = 80
"""Of a curve of training returns; tests are shown where they were made."""


@dataclass(frozen=True)
class Point:
    """Over seeds, after so many steps."""

    steps: int
    value: float
    low: float | None
    high: float | None
    n: int

    def plain(self) -> list[float | int | None]:
        """For JavaScript, rounded to what can be seen."""
        return [self.steps, *(None if x is None else round(x, 2) for x in (self.value, self.low, self.high)), self.n]


@dataclass(frozen=True)
class Curve:
    """One method and split on one game."""

    mean: Sequence[Point]
    seeds: Sequence[Sequence[tuple[int, float]]]
    """Steps and return of each run."""


def training_curve(runs: Sequence[AgentRun], points: int = MOST_POINTS) -> Curve:
    """Running returns of training; over the steps that all runs have, at equal distances."""
    lines = [[(p.env_steps, p.train_return) for p in run.curve if p.train_return is not None] for run in runs]
    return _at_grid([line for line in lines if line], points)


def unseen_curve(runs: Sequence[AgentRun]) -> Curve:
    """Returns on unseen levels: tests while training, and evaluations at each stage in their place."""
    found = []
    for run in runs:
        tests = {p.env_steps: p.test_return for p in run.curve if p.test_return is not None}
        found.append(sorted((tests | {stage.env_steps: stage.test.mean for stage in run.stages}).items()))
    steps = sorted({at for line in found for at, _ in line})
    columns = {at: [value for line in found for when, value in line if when == at] for at in steps}
    most = max((len(values) for values in columns.values()), default=0)
    # A mean over some of the runs would jump where others have no test.
    return Curve([_point(at, values) for at, values in columns.items() if len(values) == most], found)


def _at_grid(lines: Sequence[Sequence[tuple[int, float]]], points: int) -> Curve:
    if not lines:
        return Curve([], [])
    first, last = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    if first > last:
        return Curve([], lines)
    grid = np.unique(np.linspace(first, last, points).round().astype(np.int64))
    columns = [np.array(line, np.float64).T for line in lines]
    values = np.array([np.interp(grid, steps, returns) for steps, returns in columns])  # (runs, points)
    return Curve([_point(int(at), column.tolist()) for at, column in zip(grid, values.T, strict=True)], lines)


def _point(steps: int, values: Sequence[float]) -> Point:
    found = stats.student_estimate(values)
    return Point(steps, found.value, found.low, found.high, len(values))
