"""What came of each method on each game: returns, gaps, and what they are at equal training return.

Numbers of one game are means over seeds with Student's interval, differences of methods with Welch's: on so few seeds
of one game the bootstrap covers much less than it says (``docs/statistics.md``). It can be had by ``interval``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from clop.errors import UsageError, unknown_name
from clop.experiments.summaries import Stage
from clop.report import stats
from clop.report.efficiency import common_training_return, unseen_at_training_return
from clop.report.runs import AgentRun
from clop.report.stats import Estimate

INTERVALS = ("student", "bootstrap")
_REPS = 10_000  # of the bootstrap of one game, of which a table has hundreds


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one game at one scale after so many steps, which differ in their seeds."""

    game: str
    variant: str
    scale: str
    scale_key: str
    env_steps: int
    runs: tuple[AgentRun, ...]

    @property
    def stages(self) -> list[Stage]:
        return [stage for run in self.runs if (stage := run.at(self.env_steps)) is not None]

    def values(self, quantity: str) -> list[float]:
        """A number of each run, see :data:`QUANTITIES`."""
        return [QUANTITIES[quantity](stage) for stage in self.stages]

    def estimate(self, quantity: str, interval: str = "student") -> Estimate:
        """The mean over seeds of a quantity."""
        return one_game(self.values(quantity), interval, self.game, self.variant, quantity)


QUANTITIES: Mapping[str, Callable[[Stage], float]] = {
    "train": lambda stage: stage.train.mean,
    "test": lambda stage: stage.test.mean,
    "gap": lambda stage: stage.gap,
    "ratio": lambda stage: stage.test.mean / stage.train.mean if stage.train.mean else float("nan"),
    "train_success": lambda stage: 100 * stage.train.success_rate,
    "test_success": lambda stage: 100 * stage.test.success_rate,
}
"""Numbers of a run at a stage; ``gap`` is train − test, ``ratio`` test / train, successes are in percent."""


def one_game(values: Sequence[float], interval: str = "student", *names: str) -> Estimate:
    """The mean of the values of a few seeds, and its interval."""
    if interval not in INTERVALS:
        raise UsageError(unknown_name("interval", interval, INTERVALS))
    if interval == "student":
        return stats.student_estimate(values)
    return stats.estimate(stats.mean, np.array(values)[:, None], stats.generator(0, *names))


def cells(runs: Sequence[AgentRun]) -> list[Cell]:
    """Runs by game, scale, steps and method; a run that was evaluated several times is in several."""
    found: dict[tuple[str, str, int, str], list[AgentRun]] = {}
    for run in runs:
        for stage in run.stages:
            found.setdefault((run.game, run.scale_key, stage.env_steps, run.variant), []).append(run)
    return [
        Cell(game, variant, group[0].scale, key, steps, tuple(sorted(group, key=lambda run: run.seed)))
        for (game, key, steps, variant), group in sorted(
            found.items(), key=lambda item: (item[0][0], item[1][0].scale, *item[0][1:])
        )
    ]


@dataclass(frozen=True)
class Comparison:
    """A method against another on one game, at the same scale and steps."""

    cell: Cell
    base: Cell
    differences: Mapping[str, Estimate]
    """By quantity, method minus base."""
    improvement: Estimate
    """Probability that a run of the method has the higher return on unseen levels."""
    training_return: float | None
    """The highest training return that all runs of both have reached."""
    source: str
    """Of that return, see :func:`~clop.report.efficiency.unseen_at_training_return`."""
    at_equal_training: tuple[Estimate, Estimate, Estimate] | None
    """Return on unseen levels of the method, of the base, and their difference, at that training return."""
    equal_training_values: tuple[list[float], list[float]]
    """The same of each run of the method and of the base."""

    def bootstrap(self, quantity: str = "test", reps: int = stats.REPS, seed: int = 0) -> Estimate:
        """The difference of the means over seeds with the bootstrap's interval, drawn within each method.

        Args:
            quantity: One of :data:`QUANTITIES`, or ``test at equal training return``.
            reps: Repetitions.
            seed: Decides the interval.
        """
        if quantity == "test at equal training return":
            a, b = self.equal_training_values
        else:
            a, b = self.cell.values(quantity), self.base.values(quantity)
        if not a or not b:
            raise UsageError(
                f"there is no {quantity} of {self.cell.variant} and {self.base.variant} on {self.cell.game}"
            )
        rng = stats.generator(seed, "difference", self.cell.game, self.cell.variant, self.base.variant, quantity)
        samples = [np.array(values)[:, None] for values in (a, b)]
        return stats.estimate_rows(lambda s: s[0][..., 0].mean(-1) - s[1][..., 0].mean(-1), samples, rng, reps)


def compare(cell: Cell, base: Cell, *, across_scales: bool = False) -> Comparison:
    """A method against another, such as ``clop`` against ``ppo``; with other settings only if that is asked."""
    same_scale = across_scales or cell.scale_key == base.scale_key
    if not same_scale or (cell.game, cell.env_steps) != (base.game, base.env_steps):
        raise UsageError(f"{cell.variant} and {base.variant} are to be compared on one game, scale and number of steps")
    differences = {
        name: stats.welch_estimate(cell.values(name), base.values(name)) for name in ("train", "test", "gap", "ratio")
    }
    rng = stats.generator(0, "improvement", cell.game, cell.variant, base.variant)
    mine, other = (np.array(each.values("test"))[:, None] for each in (cell, base))
    (improvement,), _ = stats.improvement(mine, other, rng, _REPS)
    level, source, a, b = _at_equal_training(cell, base)
    found = (stats.student_estimate(a), stats.student_estimate(b), stats.welch_estimate(a, b)) if a else None
    return Comparison(cell, base, differences, improvement, level, source, found, (a, b))


def _at_equal_training(cell: Cell, base: Cell) -> tuple[float | None, str, list[float], list[float]]:
    """The training return in common, where it comes from, and what each run had on unseen levels there."""
    both = [*cell.runs, *base.runs]
    for source in ("evaluations", "running"):
        level = common_training_return(both, source, cell.env_steps)
        if level is None:
            continue
        columns = [[unseen_at_training_return(run, level, source) for run in each.runs] for each in (cell, base)]
        a, b = ([value for value in column if value is not None] for column in columns)
        if len(a) == len(cell.runs) and len(b) == len(base.runs):
            return level, source, a, b
    return None, "", [], []


def compare_all(every: Sequence[Cell], method: str, base: str = "ppo") -> list[Comparison]:
    """A method against another wherever both were run."""
    bases = {(cell.game, cell.scale_key, cell.env_steps): cell for cell in every if cell.variant == base}
    return [
        compare(cell, bases[where])
        for cell in every
        if cell.variant == method and (where := (cell.game, cell.scale_key, cell.env_steps)) in bases
    ]


def percent_change(cell: Cell, base: Cell, quantity: str) -> Estimate | None:
    """100 × (method − base) / base of the means over seeds, as in the paper; its interval is the bootstrap's.

    None where the base is not positive: a percentage of it would have the wrong sign.
    """
    if mean(base.values(quantity)) <= 0:
        return None

    def change(samples: Sequence[stats.Array]) -> stats.Array:
        a, b = (sample[..., 0].mean(-1) for sample in samples)
        with np.errstate(divide="ignore", invalid="ignore"):
            return 100 * (a - b) / b

    rng = stats.generator(0, "percent", cell.game, cell.variant, base.variant, quantity)
    return stats.estimate_rows(change, [np.array(each.values(quantity))[:, None] for each in (cell, base)], rng, _REPS)


def gap_percent_of_train(cell: Cell) -> Estimate | None:
    """100 × (test − train) / train of the means over seeds, as in the paper: negative is overfitting. None where the
    training return is not positive."""
    if mean(cell.values("train")) <= 0:
        return None

    def share(samples: Sequence[stats.Array]) -> stats.Array:
        means = samples[0].mean(-2)  # a run keeps its two returns together
        with np.errstate(divide="ignore", invalid="ignore"):
            return 100 * (means[..., 1] - means[..., 0]) / means[..., 0]

    rows = np.array([[stage.train.mean, stage.test.mean] for stage in cell.stages])
    return stats.estimate_rows(share, [rows], stats.generator(0, "gap", cell.game, cell.variant), _REPS)
