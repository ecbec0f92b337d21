"""How fast an agent learns, and what it carries over at the same training return. Functions of single runs.

A curve is a sequence of (steps, return). Running returns jump, so that a curve would reach a return earlier the noisier
it is; steps to a return are therefore read off the best rising curve through them (isotonic regression).
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from clop.report.runs import AgentRun

Curve = Sequence[tuple[float, float]]


def curve_of(run: AgentRun, split: str) -> Curve:
    """Returns of a run over its steps: on training levels the running ones, on unseen ones the tests on the way; the
    evaluations of each stage take the place of what was measured at the same steps."""
    return run.train_curve if split == "train" else run.test_curve


def return_at(curve: Curve, steps: float) -> float | None:
    """The return after so many steps, between its neighbours; None outside the curve."""
    found = float(returns_at(curve, steps))
    return None if math.isnan(found) else found


def returns_at(curve: Curve, steps: ArrayLike) -> NDArray[np.float64]:
    """The returns after each of these steps; NaN outside the curve."""
    if not curve:
        return np.full(np.shape(steps), np.nan)
    return np.interp(np.asarray(steps, dtype=np.float64), *_columns(curve), left=np.nan, right=np.nan)


def steps_to(curve: Curve, level: float) -> float | None:
    """Steps until a return is reached, None if it is not."""
    if not curve:
        return None
    xs, ys = _columns(curve)
    rising = isotonic_regression(ys).x
    if rising[-1] < level:
        return None
    first = int(np.argmax(rising >= level))
    if first == 0 or rising[first] == level:
        return float(xs[first])
    share = (level - rising[first - 1]) / (rising[first] - rising[first - 1])
    return float(xs[first - 1] + share * (xs[first] - xs[first - 1]))


def highest(curve: Curve) -> float:
    """The highest return that :func:`steps_to` finds on a curve."""
    return float(isotonic_regression(_columns(curve)[1]).x[-1])


def unseen_at_training_return(run: AgentRun, level: float, source: str) -> float | None:
    """The return on unseen levels when the return on training levels was ``level``; None if it cannot be said.

    Args:
        run: The run.
        level: Return on training levels.
        source: ``evaluations`` goes from stage to stage of the run, where both returns are of many episodes in
            evaluation mode. ``running`` takes the running return, which is that of the agent as it acts, with its
            noise, and the tests on the way.
    """
    if source == "evaluations":
        pairs = [(stage.train.mean, stage.test.mean) for stage in run.stages]
        for (low, at_low), (high, at_high) in itertools.pairwise(pairs):
            if low <= level <= high:
                return at_low if high == low else at_low + (level - low) / (high - low) * (at_high - at_low)
        return pairs[0][1] if len(pairs) == 1 and pairs[0][0] == level else None
    steps = steps_to(curve_of(run, "train"), level)
    return None if steps is None else return_at(curve_of(run, "test"), steps)


def common_training_return(runs: Sequence[AgentRun], source: str, env_steps: int | None = None) -> float | None:
    """The highest training return that every one of these runs has reached; None without runs or curves."""
    tops = []
    for run in runs:
        if source == "evaluations":
            reached = [stage.train.mean for stage in run.stages if env_steps is None or stage.env_steps <= env_steps]
        else:
            curve = [point for point in curve_of(run, "train") if env_steps is None or point[0] <= env_steps]
            reached = [highest(curve)] if curve else []
        if not reached:
            return None
        tops.append(max(reached))
    return min(tops) if tops else None


def _columns(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    xs, ys = np.array(curve, dtype=np.float64).T
    return xs, ys
