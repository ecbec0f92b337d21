"""Stable-Baselines3's PPO on our games, with its own network or with ours, for comparisons on equal terms."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import Tensor

from clop.rl.config import TrainConfig
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec
from clop.rl.network import FEATURES, Network, Output
from clop.rl.settings import NetworkConfig, PPOConfig


class SB3Games(VecEnv):
    """Our games as it takes them."""

    def __init__(self, levels: LevelSet, num_envs: int) -> None:
        self.games = levels.open(num_envs, seed=1)
        spec = self.games.spec
        frame = gymnasium.spaces.Box(0, 255, spec.obs_shape, np.uint8)
        super().__init__(num_envs, frame, gymnasium.spaces.Discrete(spec.num_actions))
        self._actions: Any = None

    def reset(self) -> Any:
        return self.games.observe().obs

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        step = self.games.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for env, value, length in zip(*step.finished[:3], strict=True):
            infos[env]["episode"] = {"r": float(value), "l": int(length)}
        for env, frame in step.cut_off:
            infos[env] |= {"TimeLimit.truncated": True, "terminal_observation": frame}
        return self.games.observe().obs, step.rewards, step.dones, infos

    def close(self) -> None:
        self.games.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **named: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


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
    games = VecNormalize(SB3Games(levels, config.num_envs), norm_obs=False, gamma=config.gamma)
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
