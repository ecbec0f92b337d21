"""Mixreg: PPO on mixtures of two transitions (Wang et al., 2020)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from clop.errors import UsageError
from clop.rl.methods.base import Context, Method, Settings
from clop.rl.network import as_input
from clop.rl.rollout import Batch
from clop.seeds import numpy_generator


@dataclass(frozen=True)
class Mixreg:
    """PPO on mixtures of transitions; advantages are normalised after mixing (Wang et al., 2020)."""

    beta: float = 0.2
    """Both parameters of the Beta law of the mixing weight; 0 mixes nothing."""
    logp: Literal["mixed", "dominant"] = "mixed"
    """The old log-probability. ``mixed``: a mixture too, as in the authors' code, although the action is that of the
    heavier transition. ``dominant``: that transition's, with which the first ratios are nearer to 1."""
    mixobs: bool = False
    """Whether to mix frames only, and take all else from the heavier transition (the authors' ablation)."""
    truncate: bool = False
    """Whether to cut mixed frames down to bytes, as the authors' code does."""

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise UsageError(f"mixreg.beta must not be negative, got {self.beta}")

    def build(self) -> "MixregMethod":
        return MixregMethod(self)


class MixregMethod(Method):
    """Rollouts and evaluation stay as they are; each minibatch is mixed with itself in another order."""

    def __init__(self, config: Mixreg) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        ppo = settings.ppo
        if ppo.advantage_norm == "batch":  # normalised before, mixed advantages would have a variance below 1
            ppo = replace(ppo, advantage_norm="minibatch")
        self.advantage_norm = ppo.advantage_norm
        return replace(settings, ppo=ppo)

    def transform(self, batch: Batch, ctx: Context) -> Batch:
        if self.config.beta == 0:
            return batch
        pairs = draw_pairs(len(batch), self.config.beta, ctx.generator)
        dominant, other, weight = (column.to(ctx.device, non_blocking=True) for column in pairs)
        return self.mix(batch[dominant], batch[other], weight)

    def mix(self, heavy: Batch, light: Batch, weight: Tensor) -> Batch:
        """``weight`` (N,) times the first and the rest of the second; what cannot be mixed is the first's."""
        mixed = heavy.replace(obs=mix_frames(heavy.obs, light.obs, weight, self.config.truncate))
        if self.config.mixobs:
            return mixed
        columns = ["values", "returns", "advantages"] + ["log_probs"] * (self.config.logp == "mixed")
        return mixed.replace(**{n: torch.lerp(getattr(light, n), getattr(heavy, n), weight) for n in columns})

    def notes(self) -> dict[str, str | float]:
        return {"advantage_norm": self.advantage_norm}


def draw_pairs(count: int, beta: float, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Places of the heavier and the lighter transition of each pair, and the weight of the heavier, in [0.5, 1].

    Every place has one partner; the one that weighs less may be heavier elsewhere, or nowhere.
    """
    weight = torch.from_numpy(numpy_generator(generator).beta(beta, beta, count))
    return order_pairs(weight.to(torch.float32), torch.randperm(count, generator=generator))


def order_pairs(weight: Tensor, partner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The heavier of each place and its partner first; ``weight`` (N,) is that of the place."""
    place, first = torch.arange(len(weight)), weight > 0.5
    return torch.where(first, place, partner), torch.where(first, partner, place), torch.maximum(weight, 1 - weight)


def mix_frames(heavy: Tensor, light: Tensor, weight: Tensor, truncate: bool) -> Tensor:
    """Float (N, C, H, W) in [0, 1]; or bytes (N, H, W, C), cut off, if the frames are bytes and to be cut."""
    column = weight[:, None, None, None]
    if truncate and heavy.dtype == torch.uint8:
        return torch.lerp(light.float(), heavy.float(), column).to(torch.uint8)
    return torch.lerp(as_input(light), as_input(heavy), column)
