"""Dropout in the agent, in the two ways the Procgen literature uses it."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clop.errors import UsageError
from clop.rl.methods.base import Context, Method, Plan


@dataclass(frozen=True)
class Dropout:
    """Dropout of features (Srivastava et al., 2014)."""

    p: float = 0.1
    """Probability that a value is dropped."""
    style: Literal["actor", "coinrun"] = "actor"
    """``actor``: each value of the map the policy reads, anew for each sample and pass (the CLOP authors' baseline).
    ``coinrun``: after every convolution, one mask for the whole batch, kept for an iteration (Cobbe et al., 2019)."""

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise UsageError(f"dropout.p is a probability and must lie in [0, 1), got {self.p}")

    def build(self) -> "DropoutMethod":
        return DropoutMethod(self)


class DropoutMethod(Method):
    def __init__(self, config: Dropout) -> None:
        self.config = config
        self.masks: list[SharedMask] = []

    def configure(self, plan: Plan) -> None:
        plan.act_in("train")
        if self.config.style == "actor":
            plan.put("actor_in", SampleDropout(self.config.p, plan.generator))
        else:
            plan.conv_post.append(self._mask)

    def _mask(self, name: str, channels: int, size: int) -> nn.Module:
        self.masks.append(SharedMask(self.config.p, channels, size))
        return self.masks[-1]

    def begin_iteration(self, ctx: Context) -> None:
        for mask in self.masks:
            mask.redraw(ctx.generator)

    def state(self) -> dict[str, Any]:
        return {"masks": [mask.kept.cpu() for mask in self.masks]}

    def load(self, state: Any) -> None:
        for mask, kept in zip(self.masks, state["masks"], strict=True):
            mask.kept.copy_(kept)


class SampleDropout(nn.Module):
    """Inverted dropout of single values that draws from a given generator."""

    def __init__(self, p: float, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self.generator = p, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = torch.empty(x.shape).bernoulli_(1 - self.p, generator=self.generator).to(x.device)
        return x * kept.mul_(1 / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p:g}"


class SharedMask(nn.Module):
    """A mask over (channels, size, size), the same for all samples until it is drawn anew."""

    kept: Tensor

    def __init__(self, p: float, channels: int, size: int) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("kept", torch.ones(channels, size, size), persistent=False)

    def redraw(self, generator: torch.Generator) -> None:
        if self.p > 0:
            mask = torch.empty(self.kept.shape).bernoulli_(1 - self.p, generator=generator)
            self.kept.copy_(mask / (1 - self.p))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept if self.training and self.p > 0 else x

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
