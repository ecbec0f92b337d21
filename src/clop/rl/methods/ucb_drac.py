"""UCB-DrAC: DrAC whose augmentation a bandit chooses, once for each iteration (Raileanu et al., 2021)."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from clop.augment import Augmentation, fitting
from clop.errors import UsageError
from clop.rl.encoders.base import Slots
from clop.rl.methods.augmented import FlipAxis, game_augmentation
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.methods.drac import Divergence, disagreement, sum_of
from clop.rl.rollout import Batch, Rollout

ARMS = ("crop", "random_conv", "grayscale", "flip", "rotate", "cutout", "cutout_color", "color_jitter")
"""Of the authors, on square frames of three colours; on others, those of them that fit."""

Init = Literal["reference", "sweep"]


@dataclass(frozen=True)
class UcbDrac:
    """DrAC whose augmentation a bandit chooses (Raileanu et al., 2021)."""

    alpha_r: float = 0.1
    """Weight of DrAC's term."""
    init: Init = "reference"
    """``reference``: every augmentation counts as tried once with a return of 0 (the authors' code); where returns
    exceed 0.3 it never leaves the first one, crop. ``sweep``: each is tried once first."""
    exploration: float = 0.1
    """Weight of the bonus for what is little tried."""
    window: int = 10
    """How many returns of an augmentation are remembered."""
    kl: Divergence = "exact"
    """``exact``: the divergence of the policies. ``sample``: the log-probability of one action, as in
    the method drac."""
    flip_axis: FlipAxis = "horizontal"
    """With the augmentation flip: ``horizontal`` swaps left and right, ``vertical`` top and bottom, as DrAC's code does
    by mistake."""

    def __post_init__(self) -> None:
        if min(self.alpha_r, self.exploration) < 0:
            raise UsageError(
                f"ucb_drac.alpha_r and exploration must not be negative, got {self.alpha_r} and {self.exploration}"
            )
        if self.window < 1:
            raise UsageError(f"ucb_drac.window must be at least 1, got {self.window}")

    def build(self) -> "UcbDracMethod":
        return UcbDracMethod(self)


class UcbDracMethod(Method):
    """Before each update the last choice is judged by the rollout that followed it, and the next is made.

    In a run of several processes the returns are averaged over all of them, so all choose alike.
    """

    incompatible: ClassVar[Mapping[str, str]] = {"drac": "ucb_drac chooses the augmentation that drac fixes"}
    augmentations: Mapping[str, Augmentation]
    """Of the arms that fit the frames."""

    def __init__(self, config: UcbDrac) -> None:
        self.config = config
        self.bandit = Bandit(len(ARMS), config.init, config.exploration, config.window)
        self.arm: int | None = None

    def fill(self, slots: Slots, settings: Settings) -> None:
        fits = fitting(settings.spec.input_shape)
        self.augmentations = {
            name: game_augmentation(name, settings, self.config.flip_axis) for name in ARMS if name in fits
        }
        self.bandit.allowed = [arm for arm, name in enumerate(ARMS) if name in fits]

    def prepare(self, rollout: Rollout, ctx: Context) -> None:
        mean = ctx.workers.sum(rollout.returns.double().mean().to(ctx.device)).item() / ctx.workers.size
        if self.arm is not None:
            self.bandit.credit(self.arm, mean)
        self.arm = self.bandit.choose()

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        assert self.arm is not None
        if self.config.alpha_r == 0:
            return None, {}
        augmentation = self.augmentations[ARMS[self.arm]]
        terms = disagreement(ctx.model, batch, views[0].output, augmentation, self.config.kl, ctx.generator)
        return self.config.alpha_r * sum_of(terms), terms

    def metrics(self) -> dict[str, float]:
        counts = zip(ARMS, self.histogram, strict=True)
        return {f"arm_{name}": float(count) for name, count in counts if name in self.augmentations}

    @property
    def histogram(self) -> list[int]:
        """Iterations that each arm was used in, the one at hand included."""
        return [count + (arm == self.arm) for arm, count in enumerate(self.bandit.credits)]

    def notes(self) -> dict[str, str | float]:
        counts = zip(ARMS, self.histogram, strict=True)
        return {"init": self.config.init, "arms": ", ".join(f"{name} {count}" for name, count in counts if count)}

    def state(self) -> dict[str, Any]:
        return {"bandit": self.bandit.state(), "arm": self.arm}

    def load(self, state: Mapping[str, Any]) -> None:
        self.bandit.load(state["bandit"])
        self.arm = state["arm"]


class Bandit:
    r"""The authors' upper confidence bounds: :math:`\arg\max_k\; Q_k + c \sqrt{\ln n / n_k}`, of equals the first.

    :math:`Q_k` is the mean of the last returns of arm k; the counts :math:`n_k` forget nothing. With ``reference``,
    :math:`n` and all :math:`n_k` start at 1 and all :math:`Q_k` at 0; with ``sweep``, all at 0, and what was never
    tried is tried first.
    """

    def __init__(self, arms: int, init: Init, exploration: float, window: int) -> None:
        self.init, self.exploration = init, exploration
        self.credits = [0] * arms
        self.windows: list[deque[float]] = [deque(maxlen=window) for _ in range(arms)]
        self.allowed: Sequence[int] = range(arms)
        """Arms to choose from; the others keep their places, so that a state fits whatever is allowed."""

    def credit(self, arm: int, reward: float) -> None:
        self.credits[arm] += 1
        self.windows[arm].append(reward)

    def choose(self) -> int:
        untried = [arm for arm in self.allowed if not self.credits[arm]]
        if self.init == "sweep" and untried:
            return untried[0]
        bounds = self.bounds()
        return self.allowed[bounds.index(max(bounds))]

    def bounds(self) -> list[float]:
        """Of the arms that are allowed; with ``sweep``, once each was tried."""
        start = 1 if self.init == "reference" else 0
        log = math.log(start + sum(self.credits))
        return [
            (sum(window) / len(window) if window else 0.0) + self.exploration * math.sqrt(log / (start + count))
            for window, count in ((self.windows[arm], self.credits[arm]) for arm in self.allowed)
        ]

    def state(self) -> dict[str, Any]:
        return {"credits": list(self.credits), "windows": [list(window) for window in self.windows]}

    def load(self, state: Mapping[str, Any]) -> None:
        self.credits = list(state["credits"])
        for window, values in zip(self.windows, state["windows"], strict=True):
            window.clear()
            window.extend(values)
