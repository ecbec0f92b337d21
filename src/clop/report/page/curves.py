"""Curves of methods on one game: means over seeds with intervals, and each seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clop.report import stats
from clop.report.runs import AgentRun

MOST_POINTS = 80
"""Of a curve of training returns; tests are shown where they were made."""


Line = Sequence[tuple[int, float]]
"""Steps and return of one run."""


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
    seeds: Sequence[Line]
    """Each run, also those that the mean is not over because they ended elsewhere."""


def training_curve(runs: Sequence[AgentRun], points: int = MOST_POINTS) -> Curve:
    """Running returns of training; the mean is over the steps that its runs have, at equal distances."""

    def line(run: AgentRun) -> Line:
        return [(p.env_steps, p.train_return) for p in run.curve if p.train_return is not None]

    seeds = [found for run in runs if (found := line(run))]
    averaged = [found for run in _cohort(runs) if (found := line(run))]
    return Curve(_at_grid(averaged, points), seeds)


def unseen_curve(runs: Sequence[AgentRun]) -> Curve:
    """Returns on unseen levels: tests while training, and evaluations at each stage in their place."""

    def line(run: AgentRun) -> Line:
        tests = {p.env_steps: p.test_return for p in run.curve if p.test_return is not None}
        return sorted((tests | {stage.env_steps: stage.test.mean for stage in run.stages}).items())

    averaged = [dict(line(run)) for run in _cohort(runs)]
    # Where one of them has no test, a mean would be over others, and jump.
    steps = sorted(set.intersection(*(set(found) for found in averaged)))
    return Curve([_point(at, [found[at] for found in averaged]) for at in steps], [line(run) for run in runs])


def _cohort(runs: Sequence[AgentRun]) -> list[AgentRun]:
    """The runs that a mean is over: of those that ended at the same step the most, and of equally many the longest."""
    by_end: dict[int, list[AgentRun]] = {}
    for run in runs:
        by_end.setdefault(run.end.env_steps, []).append(run)
    return max(by_end.items(), key=lambda item: (len(item[1]), item[0]))[1]


def _at_grid(lines: Sequence[Line], points: int) -> list[Point]:
    if not lines:
        return []
    first, last = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    if first > last:
        return []
    grid = np.unique(np.linspace(first, last, points).round().astype(np.int64))
    columns = [np.array(line, np.float64).T for line in lines]
    values = np.array([np.interp(grid, steps, returns) for steps, returns in columns])  # (runs, points)
    return [_point(int(at), column.tolist()) for at, column in zip(grid, values.T, strict=True)]


def _point(steps: int, values: Sequence[float]) -> Point:
    found = stats.student_estimate(values)
    return Point(steps, found.value, found.low, found.high, len(values))
