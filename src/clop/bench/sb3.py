"""Stable-Baselines3's PPO on our games, with its own network or with ours, for comparisons on equal terms."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from clop.rl.config import TrainConfig
from clop.rl.envs.gym_vector import GamesVectorEnv
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec
from clop.rl.network import FEATURES, Network, Output
from clop.rl.settings import NetworkConfig, PPOConfig
from clop.sb3 import SB3Games


class Impala(BaseFeaturesExtractor):
    """Encoder and dense layer of our network, in torch's default memory format as SB3 has its images."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, FEATURES)
        channels, height, width = observation_space.shape  # as it hands them over
        spec = EnvSpec((height, width, channels), num_actions=1)
        network = Network(NetworkConfig(), spec).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.encoder, self.neck = network.encoder, network.neck

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.neck(self.encoder(x))
        return features


POLICIES: dict[str, dict[str, Any]] = {
    "impala": {"features_extractor_class": Impala, "net_arch": []},
    "nature": {},  # its own: DQN's network, without padding, and a dense layer of 512
}
"""Arguments of its ``CnnPolicy``, by encoder."""


def make_ppo(levels: LevelSet, config: PPOConfig, encoder: str) -> PPO:
    """Its PPO with our settings and, as its users have it, rewards normalised by ``VecNormalize``; its defaults
    elsewhere."""
    games = VecNormalize(SB3Games(GamesVectorEnv(levels, config.num_envs, seed=1)), norm_obs=False, gamma=config.gamma)
    return PPO(
        "CnnPolicy",
        games,
        n_steps=config.num_steps,
        batch_size=config.batch_size // config.num_minibatches,
        n_epochs=config.update_epochs,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_coef,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef,
        max_grad_norm=config.max_grad_norm,
        policy_kwargs=POLICIES[encoder],
        seed=0,
        device="cpu",
    )


class SB3Agent:
    """Its policy as an :class:`~clop.rl.agent.Agent` that our protocols evaluate."""

    uses_batch_statistics = False

    def __init__(self, model: PPO) -> None:
        self.policy = model.policy

    @contextmanager
    def playing(self, seed: int) -> Iterator[None]:
        self.policy.set_training_mode(False)  # it chooses its mode anew when it trains on
        yield

    def __call__(self, obs: Tensor) -> Output:
        with torch.no_grad():
            distribution: Any = self.policy.get_distribution(obs.permute(0, 3, 1, 2)).distribution
        return Output(distribution.logits)


class SB3Work:
    """Its PPO in training with the settings of a run of ours, driven like our
    :class:`~clop.experiments.agents.AgentWork`."""

    def __init__(self, config: TrainConfig, encoder: str) -> None:
        self.config = config
        self.model = make_ppo(config.levels, config.ppo, encoder)
        self.seconds = 0.0
        """Spent in training so far."""
        if config.ppo.schedule == "linear":  # its own schedule knows the end of one call of learn alone
            self.model.lr_schedule = lambda _: config.ppo.learning_rate * max(0.0, 1 - self.done / self.total)

    @property
    def total(self) -> int:
        return self.config.total_timesteps

    @property
    def done(self) -> int:
        return self.model.num_timesteps

    @property
    def finished(self) -> bool:
        return self.done >= self.total

    def step(self) -> None:
        """One rollout, played and learnt."""
        start = time.monotonic()
        self.model.learn(self.config.ppo.batch_size, reset_num_timesteps=False)
        self.seconds += time.monotonic() - start

    def agent(self) -> Any:
        return SB3Agent(self.model)
