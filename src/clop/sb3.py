"""CLOP in Stable-Baselines3: a policy for its on-policy algorithms, an extractor for the others, and our games.

>>> from stable_baselines3 import PPO
>>> from clop.sb3 import ClopCnnPolicy, make_vec_env
>>> envs = make_vec_env("starpilot", num_envs=8, num_levels=50)  # doctest: +SKIP
>>> PPO(ClopCnnPolicy, envs, policy_kwargs=dict(alpha=0.5, encoder="impala")).learn(100_000)  # doctest: +SKIP

Stable-Baselines3 shares one features extractor between actor and critic, and gives copies of it the same arguments. A
CLOP inside the extractor would therefore reach the critic too. Here the extractor ends at the feature map, and what
follows it permutes the map for the actor alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from clop.errors import UsageError, unknown_name
from clop.layer import CLOP
from clop.rl.encoders import check_map, find_encoder
from clop.rl.encoders.base import Builder
from clop.rl.envs.gym_vector import make_vec
from clop.rl.network import FEATURES, Neck
from clop.rl.settings import Mode, NetworkConfig


class MapExtractor(BaseFeaturesExtractor):
    """Frames to the last feature map (N, C, H, W) of an encoder, which :class:`ClopCnnPolicy` goes on from.

    Args:
        observation_space: Of images, channels first.
        encoder: ``impala``, ``small`` or ``nature``.
        width: Multiplier of the convolutions' channels.
    """

    def __init__(self, observation_space: Space[Any], encoder: str = "impala", width: float = 1) -> None:
        if not isinstance(observation_space, Box) or len(observation_space.shape) != 3:
            raise UsageError(f"expected frames with three dimensions, got {observation_space}")
        config = NetworkConfig(encoder=encoder, width=width)
        check_map(config, observation_space.shape)
        build = Builder(config, num_actions=0, generator=torch.Generator())
        encode = find_encoder(encoder)(build, observation_space.shape)
        channels, height, columns = encode.map_shape
        super().__init__(observation_space, channels * height * columns)
        self.config, self.map_shape = config, encode.map_shape
        self.encoder = encode

    def forward(self, observations: Tensor) -> Tensor:
        return self.encoder(observations.contiguous(memory_format=torch.channels_last))


class ClopExtractor(MapExtractor):
    """The encoder, CLOP and a dense layer: 256 features, for any algorithm of Stable-Baselines3.

    All that reads the features sees the permuted map while the algorithm learns: the critic too. With PPO and A2C,
    :class:`ClopCnnPolicy` spares it.

    Args:
        observation_space: Of images, channels first.
        alpha: Probability that a visited position swaps.
        encoder: ``impala``, ``small`` or ``nature``.
        width: Multiplier of the convolutions' channels.
        layer: Further settings of :class:`~clop.CLOP`, such as ``{"variant": "raster"}``.

    Example:
        >>> extractor = dict(features_extractor_class=ClopExtractor, features_extractor_kwargs=dict(alpha=0.5))
        >>> DQN("CnnPolicy", env, policy_kwargs=extractor)  # doctest: +SKIP
    """

    def __init__(
        self,
        observation_space: Space[Any],
        alpha: float = 0.5,
        encoder: str = "impala",
        width: float = 1,
        layer: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(observation_space, encoder, width)
        self._features_dim = FEATURES
        self.clop = CLOP(alpha, **(layer or {}))
        self.neck = Neck(self.config, self.map_shape)

    def forward(self, observations: Tensor) -> Tensor:
        return self.neck(self.clop(super().forward(observations)))


class ClopCnnPolicy(ActorCriticCnnPolicy):
    """The policy of PPO and A2C with CLOP on the map that the actor reads; the critic reads the clean one.

    Stable-Baselines3 collects in evaluation mode and updates in training mode, so that CLOP acts in updates alone,
    unless ``rollout_mode`` is ``train``. ``predict`` never permutes.

    Args:
        observation_space: Of images.
        action_space: Any that the algorithm takes.
        lr_schedule: Learning rate by remaining progress.
        alpha: Probability that a visited position swaps.
        encoder: ``impala``, ``small`` or ``nature``.
        width: Multiplier of the convolutions' channels.
        topology: What actor and critic share: encoder and dense layer (``shared``), the encoder (``split``), or
            nothing (``decoupled``).
        rollout_mode: ``train`` lets CLOP act while collecting too, as the paper's authors have it.
        layer: Further settings of :class:`~clop.CLOP`, such as ``{"variant": "raster"}``.
        others: What ``CnnPolicy`` takes, but for its features extractor.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        lr_schedule: Any,
        *,
        alpha: float = 0.5,
        encoder: str = "impala",
        width: float = 1,
        topology: Literal["shared", "split", "decoupled"] = "shared",
        rollout_mode: Mode = "eval",
        layer: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        for name in others:
            if name.startswith("features_extractor"):
                raise UsageError(
                    f"ClopCnnPolicy has its own features extractor; choose its encoder, and leave out {name}"
                )
            if name == "share_features_extractor":
                raise UsageError('leave out share_features_extractor; for a network each say topology="decoupled"')
        self.settings: dict[str, Any] = {
            "alpha": alpha,
            "encoder": encoder,
            "width": width,
            "topology": topology,
            "rollout_mode": rollout_mode,
            "layer": layer,
        }
        _check(topology, rollout_mode)
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch=others.pop("net_arch", []),
            features_extractor_class=MapExtractor,
            features_extractor_kwargs={"encoder": encoder, "width": width},
            share_features_extractor=topology != "decoupled",
            **others,
        )

    @property
    def clop(self) -> CLOP:
        """The layer; its ``alpha`` may be set between updates."""
        return self._branches.clop

    @property
    def _branches(self) -> "_Branches":
        branches = self.mlp_extractor
        assert isinstance(branches, _Branches)
        return branches

    def _build_mlp_extractor(self) -> None:
        extractor = self.features_extractor
        assert isinstance(extractor, MapExtractor)
        layer = CLOP(self.settings["alpha"], **(self.settings["layer"] or {}))
        shared = self.settings["topology"] == "shared"
        # The base class calls it an extractor of numbers; it takes whatever the features are.
        self.mlp_extractor = _Branches(extractor, layer, shared, self.net_arch, self.activation_fn)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        # After the weights are drawn: their orthogonal initialisation takes no other order.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Action, value and log probability; Stable-Baselines3 calls it while collecting, and nowhere else."""
        with self._permuting(self.clop.training or self.settings["rollout_mode"] == "train"):
            return super().forward(obs, deterministic)

    @contextmanager
    def _permuting(self, training: bool) -> Iterator[None]:
        before = self.clop.training
        self.clop.train(training)
        try:
            yield
        finally:
            self.clop.train(before)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        theirs = super()._get_constructor_parameters()
        ours = {name: value for name, value in theirs.items() if not name.startswith("features_extractor")}
        return ours | self.settings


class _Branches(nn.Module):
    """What follows the map: dense layers for actor and critic, CLOP before the actor's, then the layers of net_arch."""

    def __init__(self, extractor: MapExtractor, layer: CLOP, shared: bool, net_arch: Any, activation: Any) -> None:
        super().__init__()
        self.clop = layer
        self.neck = Neck(extractor.config, extractor.map_shape)
        self.critic_neck = None if shared else Neck(extractor.config, extractor.map_shape)
        self.mlp = MlpExtractor(FEATURES, net_arch, activation, device="cpu")  # moved with the whole policy
        self.latent_dim_pi, self.latent_dim_vf = self.mlp.latent_dim_pi, self.mlp.latent_dim_vf

    def forward(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        permuted = self.clop(maps)
        features = self.neck(permuted)
        if permuted is maps and self.critic_neck is None:  # the same dense layer on the same map
            return self.mlp.forward_actor(features), self.mlp.forward_critic(features)
        return self.mlp.forward_actor(features), self.forward_critic(maps)

    def forward_actor(self, maps: Tensor) -> Tensor:
        return self.mlp.forward_actor(self.neck(self.clop(maps)))

    def forward_critic(self, maps: Tensor) -> Tensor:
        return self.mlp.forward_critic((self.critic_neck or self.neck)(maps))


def _check(topology: str, rollout_mode: str) -> None:
    for name, value, known in (
        ("topology", topology, ("shared", "split", "decoupled")),
        ("rollout_mode", rollout_mode, ("train", "eval")),
    ):
        if value not in known:
            raise UsageError(unknown_name(name, value, known))


def make_vec_env(game: str, num_envs: int = 64, split: str = "train", num_levels: int = 200, **more: Any) -> "SB3Games":
    """Our games as Stable-Baselines3 takes them; the arguments are those of :func:`clop.rl.make_vec`."""
    return SB3Games(make_vec(game, num_envs, split, num_levels, **more))


class SB3Games(VecEnv):
    """A vector environment of Gymnasium as one of Stable-Baselines3, which has no wrapper for them.

    The last frame of an episode is handed on where there is one; Procgen has none, and its episodes never count as
    truncated. Returns and lengths of episodes are in ``info``, as by ``Monitor``.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        if envs.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise UsageError("expected a vector environment that begins the next episode in the same step (SAME_STEP)")
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._actions: Any = None
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)

    def reset(self) -> Any:
        obs, _ = self.envs.reset(seed=self._seeds[0])
        self._returns[:], self._lengths[:] = 0, 0
        self._reset_seeds()
        return obs

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        obs, rewards, terminations, truncations, info = self.envs.step(self._actions)
        dones = terminations | truncations
        self._returns += rewards
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for env in np.flatnonzero(dones):
            infos[env]["episode"] = {"r": float(self._returns[env]), "l": int(self._lengths[env])}
            infos[env]["TimeLimit.truncated"] = bool(truncations[env] and not terminations[env])
            final = info["final_obs"][env] if "final_obs" in info else None
            if final is not None:
                infos[env]["terminal_observation"] = final
        self._returns[dones], self._lengths[dones] = 0, 0
        return obs, rewards, dones, infos

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise UsageError("the games step together; none of them can be changed alone")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **named: Any) -> list[Any]:
        raise UsageError("the games step together; none of them can be called alone")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """As if by ``Monitor``, which says the same of episodes."""
        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))
