"""Our games and network as Stable-Baselines3 takes them, for a comparison of speed on equal terms."""

from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from clop.rl.envs.vector import VectorGames
from clop.rl.games import NUM_ACTIONS
from clop.rl.network import FEATURES, Network, NetworkConfig


class SB3Games(VecEnv):
    """The 200 levels of the easy protocol."""

    def __init__(self, game: str, num_envs: int) -> None:
        self.games = VectorGames(game, num_envs, num_levels=200, rand_seed=1)
        frame = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
        super().__init__(num_envs, frame, gymnasium.spaces.Discrete(NUM_ACTIONS))
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
    """The trunk and the dense layer of our network, in torch's default memory format as SB3 has its images."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, FEATURES)
        network = Network(NetworkConfig()).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.trunk, self.neck = network.trunk, network.neck

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.neck(self.trunk(x))
        return features
