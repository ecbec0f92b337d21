"""Where the time of one iteration of a learner goes, and how short it could be."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clop.rl.network import Network
from clop.rl.ppo import Learner


class Times(NamedTuple):
    """Seconds of one iteration."""

    env: float
    """In the games."""
    act: float
    learn: float

    @property
    def total(self) -> float:
        return sum(self)


def iteration_times(learner: Learner) -> Times:
    """Of one iteration as it is."""
    if not isinstance(learner.games, _TimedGames):
        learner.games = _TimedGames(learner.games)  # type: ignore[assignment]
        learner.collect = _Timed(learner.collect)  # type: ignore[method-assign]
    games: Any = learner.games
    collect: Any = learner.collect
    games.seconds = collect.seconds = 0.0
    start = time.perf_counter()
    learner.iterate()
    total = time.perf_counter() - start
    return Times(games.seconds, collect.seconds - games.seconds, total - collect.seconds)


def bare_times(learner: Learner) -> Times:
    """Of the env steps and of the passes through the network that one iteration has, with nothing around them: no
    losses, no shuffling, no step of the optimiser. Actions are random."""
    config, games, model, rollout = learner.config, learner.games, learner.model, learner.rollout
    actions = torch.randint(games.spec.num_actions, (rollout.steps, rollout.envs)).numpy()
    frames = rollout.obs.numpy()
    start = time.perf_counter()
    for t in range(rollout.steps):
        games.observe(out=frames[t])
        games.step(actions[t])
    played = time.perf_counter()
    model.eval()
    with torch.no_grad():
        for t in range(rollout.steps + 1):  # the last for the value of what comes after
            model(rollout.obs[t % rollout.steps])
    acted = time.perf_counter()
    model.train()
    for _ in range(config.update_epochs):
        for minibatch in rollout.flat(rollout.obs).split(len(rollout) // config.num_minibatches):
            for part in minibatch.split(config.micro_batch):
                forward_and_backward(model, part)
            model.zero_grad()
    return Times(played - start, acted - played, time.perf_counter() - acted)


def forward_and_backward(network: Network, frames: Tensor) -> None:
    """One pass through the network and back; the gradient is added to that of its parameters."""
    output = network(frames)
    (output.known_logits.sum() + output.known_value.sum()).backward()


class _Timed:
    """A function that notes the time spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return self._function(*arguments, **named)
        finally:
            self.seconds += time.perf_counter() - start


class _TimedGames:
    """Games that note the time spent in them."""

    def __init__(self, games: Any) -> None:
        self._games, self.observe, self.step = games, _Timed(games.observe), _Timed(games.step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._games, name)

    @property
    def seconds(self) -> float:
        return self.observe.seconds + self.step.seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        self.observe.seconds = self.step.seconds = value
