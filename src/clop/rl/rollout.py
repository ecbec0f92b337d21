"""What the agent has lived through: one rollout of T steps in E environments, and the minibatches cut from it."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor


def gae(
    rewards: Tensor, values: Tensor, dones: Tensor, last_value: Tensor, gamma: float, gae_lambda: float
) -> tuple[Tensor, Tensor]:
    r"""Generalised advantage estimation (Schulman et al., 2016): advantages and returns.

    .. math::
        \delta_t = r_t + \gamma (1 - d_t) V_{t+1} - V_t, \quad A_t = \delta_t + \gamma \lambda (1 - d_t) A_{t+1},
        \quad R_t = A_t + V_t

    A time limit of Procgen arrives as ``done`` and counts as a true end, as in all published agents. Where a limit is
    no part of the game, the value of what would have come is in the last reward already.

    Shape:
        - rewards, values, dones and both results: :math:`(T, E)`; last_value: :math:`(E,)`
    """
    advantages = torch.empty_like(rewards)
    alive = 1 - dones.to(rewards.dtype)
    following = torch.zeros_like(last_value)
    next_value = last_value
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * alive[t] * next_value - values[t]
        following = delta + gamma * gae_lambda * alive[t] * following
        advantages[t] = following
        next_value = values[t]
    return advantages, advantages + values


@dataclass(frozen=True)
class Batch:
    """Transitions, N of them. A method may return a changed copy; the rollout stays as it is."""

    obs: Tensor  # uint8 (N, H, W, C), or what a method made of it
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor
    dones: Tensor
    level_seeds: Tensor
    episode_steps: Tensor
    index: Tensor  # places in the flattened rollout
    extra: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.actions)

    def replace(self, **columns: Any) -> "Batch":
        return replace(self, **columns)

    def to(self, device: torch.device) -> "Batch":
        """On another device; the same object if it is there already."""
        if self.obs.device == device:
            return self
        columns = {
            f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self) if f.name != "extra"
        }
        return Batch(**columns, extra={name: c.to(device, non_blocking=True) for name, c in self.extra.items()})

    def __getitem__(self, index: Tensor | slice) -> "Batch":
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "extra"}
        return Batch(**columns, extra={name: column[index] for name, column in self.extra.items()})


_COLUMNS = [column.name for column in fields(Batch) if column.name not in ("index", "extra")]


class Rollout:
    """T steps of E environments, in memory that is allocated once; frames stay bytes unless a method changes them.

    Each row is aligned: the frame, the level it shows, its step in the episode, the action taken on it, what the policy
    and the critic said of it, and the reward and end that the action led to.
    """

    def __init__(
        self,
        steps: int,
        envs: int,
        obs_shape: tuple[int, int, int],
        frames: Literal["bytes", "floats"] = "bytes",
    ) -> None:
        def column(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(steps, envs, *shape, dtype=dtype)

        self.steps, self.envs = steps, envs
        height, width, channels = obs_shape
        as_floats = frames == "floats"
        self.obs = column(torch.float32, channels, height, width) if as_floats else column(torch.uint8, *obs_shape)
        self.actions = column(torch.int64)
        self.log_probs = column(torch.float32)
        self.values = column(torch.float32)
        self.rewards = column(torch.float32)
        self.dones = column(torch.bool)
        self.level_seeds = column(torch.int64)
        self.episode_steps = column(torch.int64)
        self.advantages = column(torch.float32)
        self.returns = column(torch.float32)
        self.extra: dict[str, Tensor] = {}
        """Columns a method adds, (T, E, …)."""

    def __len__(self) -> int:
        return self.steps * self.envs

    def finish(self, last_value: Tensor, gamma: float, gae_lambda: float) -> Self:
        """Fill advantages and returns; advantages are raw, to be normalised where they are used."""
        self.advantages, self.returns = gae(self.rewards, self.values, self.dones, last_value, gamma, gae_lambda)
        return self

    def flat(self, column: Tensor) -> Tensor:
        """(T, E, …) as (T * E, …)."""
        return column.flatten(0, 1)

    def to(self, device: torch.device) -> "Rollout":
        """What minibatches are cut from, on another device; the same object if it is there already."""
        if self.obs.device == device:
            return self
        moved = copy.copy(self)
        for name in _COLUMNS:
            setattr(moved, name, getattr(self, name).to(device, non_blocking=True))
        moved.extra = {name: column.to(device, non_blocking=True) for name, column in self.extra.items()}
        return moved

    def batch(self, index: Tensor) -> Batch:
        """The transitions at these places of the flattened rollout."""
        index = index.to(self.obs.device, non_blocking=True)
        # index_select copies whole rows, where [index] goes from byte to byte: five times as fast on frames.
        columns = {name: self.flat(getattr(self, name)).index_select(0, index) for name in _COLUMNS}
        extra = {name: self.flat(column).index_select(0, index) for name, column in self.extra.items()}
        return Batch(**columns, index=index, extra=extra)

    def shuffled(self, num_minibatches: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Places of one epoch: all of them once, in a fresh random order, in equal parts."""
        order = torch.randperm(len(self), generator=generator)
        yield from order.split(len(self) // num_minibatches)
