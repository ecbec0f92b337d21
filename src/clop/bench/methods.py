"""``clop bench methods``: what each method costs in an update, beside what the passes of its definition explain."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from clop.bench.train import take_turns
from clop.rl.methods import METHODS
from clop.rl.ppo import PPOConfig
from clop.rl.train import build_learner, preset_config

_NUM_STEPS, _EPOCHS = 4, 3
_FORWARD, _BOTH = 1, 3  # costs of a pass through a network without and with its gradient


@dataclass(frozen=True)
class Passes:
    """Passes that the definition of a method demands for each image of the rollout, in one update."""

    both: int = _EPOCHS
    """Forward and backward."""
    forward: int = 0
    """Forward alone."""

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
"""Of methods that demand others than PPO."""


@dataclass(frozen=True)
class Row:
    method: str
    ratio: float
    """Seconds of an update over PPO's: the median of paired turns."""
    explained: float
    """The same ratio by the passes of the definition alone."""

    @property
    def excess(self) -> float:
        return self.ratio / self.explained

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"excess": self.excess}


def run(game: str, rounds: int, on_round: Callable[[int], None] = lambda _: None) -> list[Row]:
    """All methods and PPO in turns, in this process, on as many threads as torch has."""
    ppo = PPOConfig(num_steps=_NUM_STEPS, minibatches=1, epochs=_EPOCHS)
    configs = {"ppo": {}, **{name: {name: config()} for name, config in METHODS.items()}}
    learners = {
        name: build_learner(preset_config(game, "procgen-easy", ppo=ppo, methods=methods))
        for name, methods in configs.items()
    }
    turns = take_turns(learners, rounds, on_round)
    return [
        Row(name, statistics.median(turn[name][2] / turn["ppo"][2] for turn in turns), PASSES.get(name, Passes()).cost)
        for name in METHODS
    ]
