"""How often intervals hold the true value, on made-up scores: ``python -m clop.report.coverage FILE``.

Seeds of a game are drawn from a known law, an interval is computed from few of them, and it is counted how often the
value that infinitely many seeds would have lies inside.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from clop.files import write_json
from clop.report import stats
from clop.report.stats import Array, Estimate

SEEDS = (3, 5, 10)
EXPERIMENTS = 1000
REPS = 1000
_GAMES = 16
_CENTRES = np.linspace(0.1, 0.9, _GAMES)
_SPREAD = 0.1
_LEAD = 0.05  # of the better method, on every game

Rng = np.random.Generator
Case = Callable[[int, Rng], tuple[Estimate, float]]


def _normal(n: int, rng: Rng, lead: float = 0.0) -> Array:
    """Sixteen games of different ease, whose seeds spread alike."""
    return _CENTRES + lead + _SPREAD * rng.standard_normal((n, _GAMES))


def _skewed(n: int, rng: Rng) -> Array:
    """Scores of one game of which most are low and a few are high."""
    return rng.exponential(1.0, (n, 1))


def _true_iqm() -> float:
    """Of so many seeds that chance no longer matters."""
    return float(stats.iqm(_normal(200_000, np.random.default_rng(1))))


def _win() -> float:
    """The probability that the better method wins, the same on every game."""
    draws = np.random.default_rng(2).standard_normal((2, 4_000_000))
    return float((_SPREAD * draws[0] + _LEAD > _SPREAD * draws[1]).mean())


def cases() -> dict[str, Case]:
    """What is computed, by name."""
    iqm, win = _true_iqm(), _win()
    centre = float(_CENTRES.mean())

    def one(n: int, rng: Rng) -> Array:
        return rng.standard_normal((n, 1))

    def boot(statistic: stats.Statistic, scores: Array, rng: Rng) -> Estimate:
        return stats.estimate(statistic, scores, rng, REPS)

    def wins(n: int, rng: Rng, games: int) -> Estimate:
        x, y = _normal(n, rng, _LEAD)[:, :games], _normal(n, rng)[:, :games]
        return stats.improvement(x, y, rng, REPS)[1]

    return {
        "one game, mean, Student": lambda n, rng: (stats.student_estimate(one(n, rng)[:, 0]), 0.0),
        "one game, mean, bootstrap": lambda n, rng: (boot(stats.mean, one(n, rng), rng), 0.0),
        "one game, skewed scores, mean, Student": lambda n, rng: (stats.student_estimate(_skewed(n, rng)[:, 0]), 1.0),
        "one game, skewed scores, mean, bootstrap": lambda n, rng: (boot(stats.mean, _skewed(n, rng), rng), 1.0),
        "one game, difference of two methods, Welch": lambda n, rng: (
            stats.welch_estimate(2 * one(n, rng)[:, 0], one(n, rng)[:, 0]),
            0.0,
        ),
        "one game, probability of improvement, bootstrap": lambda n, rng: (wins(n, rng, 1), win),
        "16 games, mean, stratified bootstrap": lambda n, rng: (boot(stats.mean, _normal(n, rng), rng), centre),
        "16 games, IQM, stratified bootstrap": lambda n, rng: (boot(stats.iqm, _normal(n, rng), rng), iqm),
        "16 games, probability of improvement, stratified bootstrap": lambda n, rng: (wins(n, rng, _GAMES), win),
    }


def coverage(name: str, case: Case, n: int, experiments: int = EXPERIMENTS) -> float:
    """The share of experiments whose interval holds the true value."""
    rng = stats.generator(0, "coverage", name, str(n))
    found = [case(n, rng) for _ in range(experiments)]
    return sum(not estimate.excludes(true) for estimate, true in found) / experiments


def main(path: Path) -> None:
    """Measure all and write the record."""
    shares = {name: {str(n): coverage(name, case, n) for n in SEEDS} for name, case in cases().items()}
    about = {"command": f"python -m clop.report.coverage {path.as_posix()}", "confidence": stats.CONFIDENCE}
    write_json(path, about | {"experiments": EXPERIMENTS, "repetitions": REPS, "coverage": shares})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
