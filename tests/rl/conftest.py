"""Games without a game engine, a small network, a way to make learners of them, and one to watch them."""

import numpy as np
import pytest
import torch
from torch import nn

from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import Episodes, Frames, Step
from clop.rl.methods.base import Method, Settings
from clop.rl.network import Network, Output, as_input
from clop.rl.ppo import Learner
from clop.rl.settings import NetworkConfig, PPOConfig


class NoiseGames:
    """What :class:`clop.rl.envs.vector.VectorGames` has, and noise for frames; each draw follows from seed and step."""

    def __init__(self, num_envs: int, seed: int = 0, end: float = 0.2) -> None:
        self.num_envs, self.seed, self.end = num_envs, seed, end
        self.clock = 0
        self.level_seeds = np.arange(num_envs, dtype=np.int32)
        self.steps, self.returns = np.zeros(num_envs, np.int32), np.zeros(num_envs)
        self.told: list[tuple[Frames, np.ndarray, Step]] = []
        """Frames, actions and what they led to, for a test to look up."""

    def _draw(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.clock, purpose])

    def observe(self, out=None):
        frames = self._draw(0).integers(0, 256, (self.num_envs, 64, 64, 3), np.uint8)
        if out is not None:
            np.copyto(out, frames)
        return Frames(frames if out is None else out, self.level_seeds.copy(), self.steps.copy())

    def step(self, actions):
        draw, before = self._draw(1), self.observe()
        rewards = (draw.random(self.num_envs) * (1 + actions % 3)).astype(np.float32)
        dones = draw.random(self.num_envs) < self.end
        self.steps += 1
        self.returns += rewards
        ended = np.flatnonzero(dones)
        finished = Episodes(
            ended, self.returns[ended], self.steps[ended], self.level_seeds[ended], np.ones(len(ended), bool)
        )
        self.returns[ended] = self.steps[ended] = 0
        self.level_seeds[ended] += self.num_envs
        self.clock += 1
        self.told.append((before, actions.copy(), step := Step(rewards, dones, finished)))
        return step

    def state(self):
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in ("level_seeds", "steps", "returns")}
        return {"clock": self.clock, **arrays}

    def restore(self, state):
        self.clock = state["clock"]
        for name in ("level_seeds", "steps", "returns"):
            setattr(self, name, state[name].numpy().copy())


class SmallNetwork(nn.Module):
    """A dense layer over a coarse picture, with the interface of the real network and a hundredth of its cost."""

    def __init__(self, config, spec, slots, generator) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * 8 * 8, 64)
        self.policy_head, self.value_head = nn.Linear(64, spec.num_actions), nn.Linear(64, 1)
        for head in (self.policy_head, self.value_head):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, obs, *, policy=True, value=True, actions=None):
        x = nn.functional.avg_pool2d(as_input(obs), 8).flatten(1)
        features = self.dense(x).relu()
        return Output(
            self.policy_head(features) if policy else None,
            self.value_head(features).squeeze(-1) if value else None,
            features,
        )

    def groups(self):
        return {"all": list(self.parameters())}


def make_learner(
    method=None,
    games=None,
    *,
    seed=0,
    network=None,
    total_timesteps=10_000,
    workers=None,
    small=False,
    mode="eval",
    **ppo,
) -> Learner:
    """A learner with a rollout of 4 steps in 4 games and one pass over it, unless told otherwise."""
    settings = {"num_envs": 4, "num_steps": 4, "update_epochs": 1, "num_minibatches": 1, "micro_batch": 64} | ppo
    games = games or NoiseGames(settings["num_envs"])
    asked = Settings(LevelSet("bigfish"), PPOConfig(**settings), network or NetworkConfig(), rollout_mode=mode)
    make = SmallNetwork if small else Network
    return Learner(asked, method or Method(), lambda _: games, total_timesteps, seed, workers=workers, network=make)


def sharpen(learner: Learner, factor: float = 100.0) -> Learner:
    """Give the policy opinions: at the start it is uniform and nothing that happens before its head is seen."""
    with torch.no_grad():
        learner.model.policy_head.weight.mul_(factor)
    return learner


class Watching(Method):
    """Keeps the minibatches that the forward passes see, and what came out."""

    def __init__(self):
        self.batches, self.outputs = [], []

    def views(self, batch, phase, ctx):
        self.batches.append(batch)
        views = super().views(batch, phase, ctx)
        self.outputs.append(views[0].output)
        return views

    @property
    def ratios(self):
        """Of the first pass."""
        batch, output = self.batches[0], self.outputs[0]
        return (output.log_prob(batch.actions) - batch.log_probs).exp().detach()


@pytest.fixture(name="make_learner")
def _make_learner():
    return make_learner


@pytest.fixture(name="noise_games")
def _noise_games():
    return NoiseGames


@pytest.fixture(name="sharpen")
def _sharpen():
    return sharpen


@pytest.fixture
def watching():
    return Watching()


@pytest.fixture
def vector():
    """All numbers of some tensors, one after another."""
    return lambda tensors: torch.cat([tensor.detach().flatten() for tensor in tensors])
