"""Scores: normalised returns of methods on games, by seed, with the statistics over them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clop.errors import UsageError, unknown_name
from clop.report import stats
from clop.report.runs import AgentRun, Runs
from clop.report.stats import Estimate
from clop.rl.games import GAMES, normalised_return

AGGREGATES: Mapping[str, stats.Statistic] = {
    "mean": stats.mean,
    "median": stats.median,
    "IQM": stats.iqm,
    "optimality gap": stats.optimality_gap,
}
"""Statistics over games, see :mod:`clop.report.stats`."""


@dataclass(frozen=True)
class Scores:
    """Scores by method, each (seeds, games); a run that is missing is NaN.

    Statistics over games are of the games that every method has, so that methods are compared on the same ones:
    :attr:`common`, and :attr:`holes` says what is missing.
    """

    games: tuple[str, ...]
    by_method: Mapping[str, NDArray[np.float64]]
    problems: tuple[str, ...] = ()
    """Runs that were found and are not in here, and why."""

    def __post_init__(self) -> None:
        for method, scores in self.by_method.items():
            if scores.ndim != 2 or scores.shape[1] != len(self.games):
                raise UsageError(
                    f"scores of {method} must be seeds × games with {len(self.games)} games, got shape {scores.shape}"
                )

    @classmethod
    def from_runs(
        cls, paths: Iterable[Path | str], split: str = "test", *, steps: int | None = None, raw: bool = False
    ) -> "Scores":
        """Of the runs in these folders and below, which must be of one scale.

        Args:
            paths: Runs, sweeps, or folders of them.
            split: ``train`` or ``test``.
            steps: After so many steps; the most that all runs have by default.
            raw: Returns as they are, instead of normalised by the range of the game.
        """
        found = Runs.find(paths)
        scales = {run.scale_key: run.scale for run in found.agents}
        if len(scales) > 1:
            raise UsageError(f"scores are of one scale, got {len(scales)}: {'; '.join(sorted(scales.values()))}")
        scores = cls.of(found.agents, split, steps=steps, raw=raw)
        lines = [f"{problem.path}: {problem.kind}, {problem.text}" for problem in found.problems]
        return cls(scores.games, scores.by_method, (*lines, *scores.problems))

    @classmethod
    def of(
        cls, runs: Sequence[AgentRun], split: str = "test", *, steps: int | None = None, raw: bool = False
    ) -> "Scores":
        """Of these runs, see :meth:`from_runs`."""
        if split not in ("train", "test"):
            raise UsageError(unknown_name("split", split, ("train", "test")))
        if not runs:
            raise UsageError("there is no finished run of an agent to score")
        if not raw and (unknown := sorted({run.game for run in runs if run.game not in GAMES})):
            raise UsageError(f"no range of returns is known for {', '.join(unknown)}; take raw=True")
        if steps is None:
            steps = common_steps(runs)
        games = tuple(sorted({run.game for run in runs}))
        values: dict[str, dict[str, dict[int, float]]] = {}
        problems = []
        for run in runs:
            stage = run.at(steps)
            if stage is None:
                problems.append(f"{run.path}: not evaluated at {steps} steps")
                continue
            score = getattr(stage, split).mean
            if not raw:
                score = float(normalised_return(score, run.game, run.mode))
            values.setdefault(run.variant, {}).setdefault(run.game, {})[run.seed] = score
        by_method = {}
        for method, of_games in values.items():
            seeds = sorted({seed for of_seeds in of_games.values() for seed in of_seeds})
            by_method[method] = np.array([[of_games.get(g, {}).get(s, np.nan) for g in games] for s in seeds])
        return cls(games, by_method, tuple(problems))

    # ---- what there is ----------------------------------------------------------------------------------------

    @property
    def methods(self) -> list[str]:
        return list(self.by_method)

    @cached_property
    def common(self) -> tuple[str, ...]:
        """The games that every method has at least one seed of."""
        return self._games_of(self.methods)

    def _games_of(self, methods: Sequence[str]) -> tuple[str, ...]:
        there = [~np.isnan(self.by_method[method]).all(0) for method in methods]  # (games,) each
        return tuple(game for game, every in zip(self.games, np.all(there, axis=0), strict=True) if every)

    @property
    def holes(self) -> list[str]:
        """Seeds that are missing, in words, such as ``clop on maze: 2 of 5 seeds``."""
        lines = []
        for method, scores in self.by_method.items():
            present = (~np.isnan(scores)).sum(0)
            lines += [
                f"{method} on {game}: {count} of {len(scores)} seeds"
                for game, count in zip(self.games, present.tolist(), strict=True)
                if count < len(scores)
            ]
        return lines

    def of_method(self, method: str, games: Sequence[str] | None = None) -> NDArray[np.float64]:
        """The scores of a method, (seeds, games)."""
        if method not in self.by_method:
            raise UsageError(unknown_name("method", method, self.by_method))
        columns = [self.games.index(game) for game in (self.common if games is None else games)]
        if not columns:
            raise UsageError("there is no game that every method was run on")
        return self.by_method[method][:, columns]

    # ---- statistics -------------------------------------------------------------------------------------------

    def mean(self, reps: int = stats.REPS, seed: int = 0) -> dict[str, Estimate]:
        """Mean over games, by method."""
        return self.aggregates({"mean": stats.mean}, reps, seed)["mean"]

    def median(self, reps: int = stats.REPS, seed: int = 0) -> dict[str, Estimate]:
        """Median over games of the mean over seeds, by method."""
        return self.aggregates({"median": stats.median}, reps, seed)["median"]

    def iqm(self, reps: int = stats.REPS, seed: int = 0) -> dict[str, Estimate]:
        """Interquartile mean of all runs, by method."""
        return self.aggregates({"IQM": stats.iqm}, reps, seed)["IQM"]

    def optimality_gap(self, target: float = 1.0, reps: int = stats.REPS, seed: int = 0) -> dict[str, Estimate]:
        """How far runs fall short of ``target``, by method; less is better."""
        gap = {"gap": lambda scores: stats.optimality_gap(scores, target)}
        return self.aggregates(gap, reps, seed)["gap"]

    def aggregates(
        self, statistics: Mapping[str, stats.Statistic] = AGGREGATES, reps: int = stats.REPS, seed: int = 0
    ) -> dict[str, dict[str, Estimate]]:
        """Statistics over games, by their names and by method; all from the same resamples, so that one alone is what
        it is among others."""
        found: dict[str, dict[str, Estimate]] = {name: {} for name in statistics}
        for method in self.by_method:
            rng = stats.generator(seed, "aggregates", method)
            each = stats.estimate_each(list(statistics.values()), self.of_method(method), rng, reps)
            for name, one in zip(statistics, each, strict=True):
                found[name][method] = one
        return found

    def profile(self, taus: ArrayLike, reps: int = 2000, seed: int = 0) -> dict[str, list[Estimate]]:
        """The share of runs above each score, by method."""
        return {
            method: stats.profile_estimate(self.of_method(method), taus, stats.generator(seed, "profile", method), reps)
            for method in self.by_method
        }

    def improvement(self, x: str, y: str, reps: int = stats.REPS, seed: int = 0) -> "Improvement":
        """The probability that a run of ``x`` beats a run of ``y`` on the same game."""
        for name in (x, y):
            self.of_method(name)  # a wrong name is found here
        games = self._games_of((x, y))
        rng = stats.generator(seed, "improvement", x, y)
        each, over = stats.improvement(self.of_method(x, games), self.of_method(y, games), rng, reps)
        return Improvement(x, y, dict(zip(games, each, strict=True)), over)


@dataclass(frozen=True)
class Improvement:
    """Probabilities that one method beats another."""

    x: str
    y: str
    by_game: Mapping[str, Estimate]
    over_games: Estimate


def common_steps(runs: Sequence[AgentRun]) -> int:
    """The most steps after which every run was evaluated; of the most runs, if there are none in common."""
    counts: dict[int, int] = {}
    for run in runs:
        for stage in run.stages:
            counts[stage.env_steps] = counts.get(stage.env_steps, 0) + 1
    return max(counts, key=lambda steps: (counts[steps], steps))
