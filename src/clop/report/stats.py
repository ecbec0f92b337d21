"""Statistics of scores and their intervals: functions on arrays of seeds × games, NumPy and SciPy only.

A run that is missing is NaN. Every game counts the same, however many seeds it has. Games are fixed and seeds are a
sample: the bootstrap draws seeds anew within each game and never games, nor seeds of one game for another
(Agarwal et al., *Deep Reinforcement Learning at the Edge of the Statistical Precipice*, 2021).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit  # quantiles of Student's distribution

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]

CONFIDENCE = 0.95
MIN_SEEDS = 3
"""Below this many seeds there is no interval: see ``docs/statistics.md`` for what one would be worth."""
REPS = 50_000
_CHUNK = 4000  # repetitions at once, which keeps memory small


@dataclass(frozen=True)
class Estimate:
    """A number, its interval if there are seeds enough for one, and the number of seeds."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Seeds; of the game that has fewest, where the number is over games."""

    def excludes(self, value: float) -> bool:
        """Whether there is an interval, and the value lies outside it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


# ---- statistics over games; all take (…, seeds, games) and return (…) -------------------------------------------


def game_means(scores: Array) -> Array:
    """The mean over seeds of each game, (…, games)."""
    return scores.mean(-2) if not np.isnan(scores).any() else np.nanmean(scores, axis=-2)


def mean(scores: Array) -> Array:
    """Mean over games of their means over seeds."""
    return game_means(scores).mean(-1)


def median(scores: Array) -> Array:
    """Median over games of their means over seeds."""
    return np.median(game_means(scores), axis=-1)


def iqm(scores: Array) -> Array:
    """Interquartile mean: over the runs of all games, the mean of the middle half.

    A quarter of the runs, rounded down, is cut from either end. Where games have different numbers of seeds, a run
    weighs 1 / seeds of its game, and a run on the border of the cut counts with the part that is inside.
    """
    *outer, seeds, games = scores.shape
    flat = scores.reshape(*outer, seeds * games)
    missing = np.isnan(flat)
    if not missing.any():
        cut = seeds * games // 4
        return np.sort(flat, axis=-1)[..., cut : seeds * games - cut].mean(-1)
    weights = np.where(missing, 0.0, 1.0).reshape(scores.shape)
    weights = (weights / weights.sum(-2, keepdims=True) / games).reshape(flat.shape)
    runs = (~missing).sum(-1, keepdims=True)
    cut = (runs // 4) / runs
    order = np.argsort(flat, axis=-1)  # NaN last
    flat, weights = np.take_along_axis(flat, order, -1), np.take_along_axis(weights, order, -1)
    end = weights.cumsum(-1)
    inside = np.clip(np.minimum(end, 1 - cut) - np.maximum(end - weights, cut), 0, None)
    return (np.nan_to_num(flat) * inside).sum(-1) / inside.sum(-1)


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """How much runs fall short of ``target`` on average; beyond it nothing is gained. Less is better."""
    return target - mean(np.minimum(scores, target))


def profile(scores: Array, taus: Array) -> Array:
    """The share of runs above each score in ``taus``, (…, taus)."""
    above = np.where(np.isnan(scores)[..., None], np.nan, scores[..., None] > taus)  # (…, seeds, games, taus)
    return (above.mean(-3) if not np.isnan(above).any() else np.nanmean(above, axis=-3)).mean(-2)


# ---- the bootstrap ----------------------------------------------------------------------------------------------


def generator(seed: int, *names: str) -> np.random.Generator:
    """Random numbers of something with a name, so that an interval does not depend on what else is computed."""
    return np.random.default_rng([seed, *"\0".join(names).encode()])


def resamples(scores: ArrayLike, reps: int, rng: np.random.Generator) -> Iterator[Array]:
    """Stratified resamples, (repetitions, seeds, games) in parts: each game draws from its own seeds, with replacement.

    A game with fewer seeds draws as many as it has; the rest stays NaN.
    """
    scores = np.asarray(scores, dtype=np.float64)
    seeds, games = scores.shape
    counts = (~np.isnan(scores)).sum(0)  # (games,)
    if not counts.all():
        raise ValueError("a game without any run cannot be resampled; leave it out")
    packed = np.take_along_axis(scores, np.argsort(np.isnan(scores), axis=0, kind="stable"), 0)  # holes last
    empty = np.arange(seeds)[:, None] >= counts
    for start in range(0, reps, _CHUNK):
        size = (min(_CHUNK, reps - start), seeds, games)
        rows = (rng.random(size) * counts).astype(np.intp)
        drawn = packed.take(rows * games + np.arange(games))  # three times as fast as an index for each axis
        drawn[:, empty] = np.nan
        yield drawn


def estimate(
    statistic: Statistic, scores: ArrayLike, rng: np.random.Generator, reps: int = REPS, confidence: float = CONFIDENCE
) -> Estimate:
    """A statistic of seeds × games with its percentile interval."""
    (found,) = estimate_each([statistic], scores, rng, reps, confidence)
    return found


def estimate_each(
    statistics: Sequence[Statistic],
    scores: ArrayLike,
    rng: np.random.Generator,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
) -> list[Estimate]:
    """Several statistics of seeds × games from the same resamples: each is what :func:`estimate` gives for it alone."""
    scores = np.asarray(scores, dtype=np.float64)
    n = int((~np.isnan(scores)).sum(0).min())
    values = [float(statistic(scores)) for statistic in statistics]
    if n < MIN_SEEDS:
        return [Estimate(value, None, None, n) for value in values]
    parts = [[statistic(part) for statistic in statistics] for part in resamples(scores, reps, rng)]
    found = map(np.concatenate, zip(*parts, strict=True))
    return [Estimate(value, *_interval(one, confidence), n) for value, one in zip(values, found, strict=True)]


def profile_estimate(
    scores: ArrayLike, taus: ArrayLike, rng: np.random.Generator, reps: int = 2000, confidence: float = CONFIDENCE
) -> list[Estimate]:
    """The share of runs above each of ``taus``, with pointwise intervals."""
    scores, taus = np.asarray(scores, dtype=np.float64), np.asarray(taus, dtype=np.float64)
    n = int((~np.isnan(scores)).sum(0).min())
    values = profile(scores, taus)
    if n < MIN_SEEDS:
        return [Estimate(float(value), None, None, n) for value in values]
    parts = (half for part in resamples(scores, reps, rng) for half in np.array_split(part, 10))
    found = np.concatenate([profile(part, taus) for part in parts])  # (repetitions, taus)
    return [Estimate(float(v), *_interval(column, confidence), n) for v, column in zip(values, found.T, strict=True)]


def estimate_rows(
    statistic: Callable[[Sequence[Array]], Array],
    samples: Sequence[ArrayLike],
    rng: np.random.Generator,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """A statistic of several samples of runs on one game, each run a row of numbers that belong together.

    Args:
        statistic: Takes the samples as (…, runs, numbers of a run), returns (…).
        samples: (runs, numbers of a run) each; they are drawn independently of each other, whole rows at a time.
        rng: Where to draw from.
        reps: Repetitions.
        confidence: Of the interval.
    """
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    n = min(map(len, arrays))
    value = float(statistic(arrays))
    if n < MIN_SEEDS:
        return Estimate(value, None, None, n)
    drawn = [array[rng.integers(len(array), size=(reps, len(array)))] for array in arrays]
    return Estimate(value, *_interval(statistic(drawn), confidence), n)


def _of_replicates(value: float, found: Array, confidence: float, n: int) -> Estimate:
    return Estimate(value, *_interval(found, confidence), n) if n >= MIN_SEEDS else Estimate(value, None, None, n)


def _interval(found: Array, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(found, (tail, 1 - tail))
    return float(low), float(high)


def student_estimate(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of a few numbers with Student's interval, which few seeds of about normal scores keep."""
    values = np.asarray(values, dtype=np.float64)
    n, centre = len(values), float(values.mean())
    if n < MIN_SEEDS:
        return Estimate(centre, None, None, n)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
    return Estimate(centre, centre - half, centre + half, n)


def welch_estimate(a: ArrayLike, b: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """The difference of two means with Welch's interval, for samples that need not spread alike."""
    return contrast_estimate([a, b], [1, -1], confidence)


def contrast_estimate(
    samples: Sequence[ArrayLike], weights: Sequence[float], confidence: float = CONFIDENCE
) -> Estimate:
    """A weighted sum of the means of independent samples, with Welch's interval.

    Args:
        samples: The values of each sample.
        weights: Of their means, such as (1, −1) for a difference.
        confidence: Of the interval.
    """
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    value, n = float(sum(w * x.mean() for w, x in zip(weights, arrays, strict=True))), min(map(len, arrays))
    if n < MIN_SEEDS:
        return Estimate(value, None, None, n)
    parts = [w**2 * float(x.var(ddof=1)) / len(x) for w, x in zip(weights, arrays, strict=True)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return Estimate(value, value, value, n)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, arrays, strict=True))
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return Estimate(value, value - half, value + half, n)


# ---- probability of improvement ---------------------------------------------------------------------------------


def wins(x: ArrayLike, y: ArrayLike) -> Array:
    """For each pair of runs on one game whether the first is better: 1, 0, or a half for a tie; (runs of x, of y)."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return (x[:, None] > y) + 0.5 * (x[:, None] == y)


def improvement(
    x: ArrayLike, y: ArrayLike, rng: np.random.Generator, reps: int = REPS, confidence: float = CONFIDENCE
) -> tuple[list[Estimate], Estimate]:
    """The probability that a run of one method beats a run of another, for each game and on average over games.

    Args:
        x: Scores of the method that may be better, (seeds, games).
        y: Those of the other, which may have another number of seeds.
        rng: Where to draw from.
        reps: Repetitions.
        confidence: Of the intervals.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    estimates, every = [], np.zeros(reps)
    for game in range(x.shape[1]):
        mine, other = (scores[:, game][~np.isnan(scores[:, game])] for scores in (x, y))
        pairs = wins(mine, other)
        n = min(pairs.shape)
        a, b = (rng.integers(size, size=(reps, size)) for size in pairs.shape)  # the runs that were drawn
        won = sum(pairs.take(run, axis=0) for run in a.T).ravel()  # against each run of the other, (reps × its runs)
        found = sum(won.take(run + len(other) * np.arange(reps)) for run in b.T) / pairs.size
        every += found / x.shape[1]
        estimates.append(_of_replicates(float(pairs.mean()), found, confidence, n))
    value = float(np.mean([one.value for one in estimates]))
    return estimates, _of_replicates(value, every, confidence, min(one.n for one in estimates))
