"""``clop bench methods``: what each method costs in an update, beside what the passes of its definition explain."""

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from clop import machine
from clop.bench.benchmark import BenchSettings, Report, Result, silent
from clop.bench.iteration import forward_and_backward, iteration_times
from clop.bench.timing import quartiles
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
from clop.rl.methods import METHODS
from clop.rl.ppo import Learner
from clop.rl.settings import PPOConfig

DESCRIPTION = (
    "Time updates with each method in turns with plain PPO's, beside what the forward and backward passes of its "
    "definition explain. About ten minutes."
)
_NUM_STEPS, _EPOCHS = 2, 3  # 128 frames, one micro-batch
_FORWARD, _BOTH = 1, 3  # costs of a pass through a network without and with its gradient


@dataclass(frozen=True)
class Settings(BenchSettings):
    """What is played, and how often."""

    game: str = field(default="starpilot", metadata={"positional": True})
    """Game to play."""
    rounds: int = 9
    """Number of turns of each method."""


@dataclass(frozen=True)
class Passes:
    """Passes that the definition of a method demands for each image of the rollout, in one update."""

    both: int = _EPOCHS
    """Passes forward and backward."""
    forward: int = 0
    """Passes forward alone."""

    @property
    def cost(self) -> float:
        """As a multiple of PPO's."""
        return (self.both * _BOTH + self.forward * _FORWARD) / (_EPOCHS * _BOTH)


PASSES: dict[str, Passes] = {
    "drac": Passes(both=2 * _EPOCHS),  # clean and augmented
    "ucb_drac": Passes(both=2 * _EPOCHS),
    "rand_fm": Passes(forward=_EPOCHS),  # the clean features, without gradient
    "daac": Passes(both=1 + 9),  # an epoch of the policy network, nine of the value network
    "idaac": Passes(both=2 + 9),  # and the partner of each image in the policy network
}
"""Passes of the methods that demand others than PPO."""

LAYERED = ("batch_norm",)
"""Methods that are layers of their own all over the network, so that each pass takes longer by definition."""


@dataclass(frozen=True)
class Row:
    """What a method costs, and what its definition explains."""

    method: str
    ratio: float
    """Seconds of an update over PPO's, median over rounds."""
    quartiles: tuple[float, float]
    """Quartiles of that ratio."""
    passes: Passes = Passes()
    layers: float = 1.0
    """Seconds of a bare pass through the method's network over one through PPO's; measured where the method is
    layers."""

    @property
    def explained(self) -> float:
        """The same ratio by the passes of the definition alone."""
        return self.passes.cost * self.layers

    @property
    def excess(self) -> float:
        return self.ratio / self.explained

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"explained": self.explained, "excess": self.excess}


def run(settings: Settings, report: Report = silent) -> Result:
    machine.keep_memory()
    torch.set_num_threads(1)
    rows = measure(settings, report)
    header = ["method", "passes", "by its passes", "time / PPO's", "quartiles", "beyond them"]
    cells = [
        [
            row.method,
            f"{row.passes.both} + {row.passes.forward}",
            f"{row.explained:.2f}",
            f"{row.ratio:.2f}",
            f"{row.quartiles[0]:.2f} to {row.quartiles[1]:.2f}",
            f"{row.excess:.2f}",
        ]
        for row in rows
    ]
    note = (
        f"updates on {settings.game}, one thread, medians of {settings.rounds} rounds; passes of an image, with a "
        "gradient and without, by definition: PPO's are 3 + 0; batch norm's through its own layers, as timed bare"
    )
    return Result(rows, header, cells, note)


def measure(settings: Settings, report: Report = silent) -> list[Row]:
    """All methods in turns, in this process, on as many threads as torch has.

    PPO takes a turn before and after each of them: the speed of a machine drifts within a round.
    """
    ppo = PPOConfig(num_steps=_NUM_STEPS, num_minibatches=1, update_epochs=_EPOCHS)
    learners = {
        name: build_learner(TrainConfig.preset("procgen-easy", settings.game, name, ppo=ppo))
        for name in ("ppo", *METHODS)
    }
    for learner in learners.values():
        learner.iterate()  # warm up

    def seconds(name: str) -> float:
        return iteration_times(learners[name]).learn

    order = random.Random(0)
    ratios: dict[str, list[float]] = {name: [] for name in METHODS}
    layers: dict[str, list[float]] = {name: [] for name in LAYERED}
    for number in range(settings.rounds):
        for name, costs in layers.items():
            before, own, after = (bare_pass(learners[which]) for which in ("ppo", name, "ppo"))
            costs.append(2 * own / (before + after))
        before = seconds("ppo")
        for name in order.sample(list(METHODS), len(METHODS)):
            own, after = seconds(name), seconds("ppo")
            ratios[name].append(2 * own / (before + after))
            before = after
        report(f"turn {number + 1} of {settings.rounds}")
    return [row(name, values, layers.get(name, ())) for name, values in ratios.items()]


def row(method: str, ratios: Sequence[float], layers: Sequence[float] = ()) -> Row:
    """The row for the ratios of all rounds; ``layers`` are those of bare passes, where the method is layers."""
    low, middle, high = quartiles(ratios)
    return Row(method, middle, (low, high), PASSES.get(method, Passes()), quartiles(layers)[1] if layers else 1.0)


def bare_pass(learner: Learner) -> float:
    """Seconds of one pass of the rollout's frames through the network and back, with nothing around it."""
    network, frames = learner.model.train(), learner.rollout.flat(learner.rollout.obs).to(learner.device)
    start = time.perf_counter()
    forward_and_backward(network, frames)
    seconds = time.perf_counter() - start
    network.zero_grad()
    return seconds
