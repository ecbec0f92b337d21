"""Rewards divided by the spread of the discounted return, as every Procgen code that came from baselines does it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from clop.distributed import Workers
from clop.errors import UsageError

_EPSILON = 1e-8


class RewardNormaliser:
    r"""Divide rewards by the running standard deviation of the discounted return.

    Each env has a tracker :math:`G \leftarrow \gamma G + r`. All trackers of all steps so far, in all processes of the
    run, share one mean and one variance, and the reward becomes :math:`r / \sqrt{v + 10^{-8}}`, clipped but not
    centred. The variance already knows the step it divides. A tracker returns to zero at the end of an episode, after
    the division.

    The discount is 0.99 and not the agent's 0.999, as in openai/train-procgen and the code that came from it
    (mixreg, auto-drac, idaac, CLOP); cleanrl uses the agent's.

    Args:
        num_envs: How many rewards come at each step, in this process.
        gamma: Discount of the trackers.
        clip: Largest absolute value of a normalised reward.
        workers: The processes of the run; each hands in rollouts of the same shape.

    Shape:
        - rewards, dones and the result of a call: :math:`(T, E)`
    """

    def __init__(
        self, num_envs: int, gamma: float = 0.99, *, clip: float = 10.0, workers: Workers | None = None
    ) -> None:
        if num_envs < 1:
            raise UsageError(f"num_envs must be at least 1, got {num_envs}")
        if not 0 <= gamma <= 1:
            raise UsageError(f"gamma is a discount and must lie in [0, 1], got {gamma}")
        if not clip > 0:
            raise UsageError(f"clip must be positive, got {clip}")
        self.gamma = gamma
        self.clip = clip
        self.workers = workers or Workers()
        self.trackers: NDArray[np.float64] = np.zeros(num_envs)
        # The moments start as those of a ten-thousandth of a sample, so that the first division is defined.
        self.mean, self.variance, self.count = 0.0, 1.0, 1e-4

    def __call__(self, rewards: ArrayLike, dones: ArrayLike) -> NDArray[np.float32]:
        """Normalise the rewards of some steps; ``dones`` says which of them ended an episode."""
        raw = np.asarray(rewards, dtype=np.float64)
        ended = np.asarray(dones, dtype=bool)
        envs = len(self.trackers)
        if not (raw.ndim == 2 and raw.shape == ended.shape and raw.shape[1] == envs):
            raise UsageError(f"rewards and dones must have the shape (T, {envs}), got {raw.shape} and {ended.shape}")
        trackers = np.empty_like(raw)
        for step, (reward, end) in enumerate(zip(raw, ended, strict=True)):
            trackers[step] = self.trackers = self.gamma * self.trackers + reward
            self.trackers[end] = 0
        deviations = np.sqrt(self._variances(trackers) + _EPSILON)
        return np.clip(raw / deviations[:, None], -self.clip, self.clip).astype(np.float32)

    def _variances(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The running variance after each step, (T,), which all processes reach together in two messages."""
        size = values.shape[1] * self.workers.size
        means = self._sum(values.sum(1)) / size
        spreads = self._sum(((values - means[:, None]) ** 2).sum(1))
        variances = np.empty(len(values))
        for step, (mean, spread) in enumerate(zip(means.tolist(), spreads.tolist(), strict=True)):
            self._merge(mean, spread, size)
            variances[step] = self.variance
        return variances

    def _sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.workers.sum(torch.from_numpy(values)).numpy()

    def _merge(self, mean: float, spread: float, size: int) -> None:
        """Take more values into the moments, by their mean and their squared distances from it (Chan et al., 1979)."""
        count = self.count + size
        delta = mean - self.mean
        spread += self.variance * self.count + delta**2 * self.count * size / count
        self.mean += delta * size / count
        self.variance = spread / count
        self.count = count

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs to go on with the same numbers: numbers and one tensor."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "count": self.count,
            "trackers": torch.from_numpy(self.trackers.copy()),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state` of a normaliser with as many envs."""
        trackers = state["trackers"].numpy().astype(np.float64)
        if trackers.shape != self.trackers.shape:
            raise UsageError(f"the saved state is one of {len(trackers)} envs, but here are {len(self.trackers)}")
        self.trackers = trackers
        self.mean, self.variance, self.count = float(state["mean"]), float(state["variance"]), float(state["count"])
