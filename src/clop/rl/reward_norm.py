"""Rewards divided by the spread of the discounted return, as every Procgen code that came from baselines does it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from clop.errors import UsageError

_EPSILON = 1e-8


class RewardNormaliser:
    r"""Divide rewards by the running standard deviation of the discounted return.

    Each env has a tracker :math:`G \leftarrow \gamma G + r`. All trackers of all steps so far share one mean and one
    variance, and the reward becomes :math:`r / \sqrt{v + 10^{-8}}`, clipped but not centred. The variance already
    knows the step it divides. A tracker returns to zero at the end of an episode, after the division.

    The discount is 0.99 and not the agent's 0.999, as in openai/train-procgen and the code that came from it
    (mixreg, auto-drac, idaac, CLOP); cleanrl uses the agent's.

    Args:
        num_envs: How many rewards come at each step.
        gamma: Discount of the trackers.
        clip: Largest absolute value of a normalised reward.

    Shape:
        - rewards, dones and the result of a call: :math:`(E,)`
    """

    def __init__(self, num_envs: int, gamma: float = 0.99, *, clip: float = 10.0) -> None:
        if num_envs < 1:
            raise UsageError(f"num_envs must be at least 1, got {num_envs}")
        if not 0 <= gamma <= 1:
            raise UsageError(f"gamma is a discount and must lie in [0, 1], got {gamma}")
        if not clip > 0:
            raise UsageError(f"clip must be positive, got {clip}")
        self.gamma = gamma
        self.clip = clip
        self.trackers: NDArray[np.float64] = np.zeros(num_envs)
        # The moments start as those of a ten-thousandth of a sample, so that the first division is defined.
        self.mean, self.variance, self.count = 0.0, 1.0, 1e-4

    def __call__(self, rewards: ArrayLike, dones: ArrayLike) -> NDArray[np.float32]:
        """Normalise the rewards of one step; ``dones`` says which of them ended an episode."""
        raw = np.asarray(rewards, dtype=np.float64)
        ended = np.asarray(dones, dtype=bool)
        if not raw.shape == ended.shape == self.trackers.shape:
            expected = self.trackers.shape
            raise UsageError(f"rewards and dones must have the shape {expected}, got {raw.shape} and {ended.shape}")
        self.trackers = self.gamma * self.trackers + raw
        self._merge(self.trackers)
        scaled = np.clip(raw / np.sqrt(self.variance + _EPSILON), -self.clip, self.clip)
        self.trackers[ended] = 0
        return scaled.astype(np.float32)

    def _merge(self, values: NDArray[np.float64]) -> None:
        """Take more values into mean and variance (Chan et al., 1979)."""
        size = values.size
        count = self.count + size
        delta = float(values.mean()) - self.mean
        spread = self.variance * self.count + float(values.var()) * size + delta**2 * self.count * size / count
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
