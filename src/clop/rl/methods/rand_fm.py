"""Network randomisation with feature matching (Lee et al., 2020)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from clop.errors import UsageError
from clop.rl.encoders.base import Slots
from clop.rl.methods.base import Context, Method, Phase, Settings, Stage, View
from clop.rl.network import Output, as_input
from clop.rl.rollout import Batch


@dataclass(frozen=True)
class RandFm:
    """A random filter over the frames, new for each iteration (Lee et al., 2020)."""

    beta: float = 0.002
    """Weight of the term that asks filtered and clean frames to have the same features."""
    clean: float = 0.1
    """Probability that an iteration plays and learns on clean frames."""
    evaluation: Literal["mc", "clean", "random"] = "mc"
    """``mc``: the mean policy over fresh filters (the paper). ``clean``: no filter. ``random``: that of the last
    iteration (the Procgen port of the mixreg authors)."""
    samples: int = 10
    """Filters of the evaluation ``mc``, drawn for each step; it takes as many passes."""

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise UsageError(f"rand_fm.beta must not be negative, got {self.beta}")
        if not 0 <= self.clean <= 1:
            raise UsageError(f"rand_fm.clean is a probability and must lie in [0, 1], got {self.clean}")
        if self.samples < 1:
            raise UsageError(f"rand_fm.samples must be at least 1, got {self.samples}")

    def build(self) -> "RandFmMethod":
        return RandFmMethod(self)


class RandFmMethod(Method):
    """Filter and flag are drawn before a rollout and kept for its update, so the first ratios are 1."""

    def __init__(self, config: RandFm) -> None:
        self.config = config
        self.layer = RandomFilter()

    def configure(self, settings: Settings) -> Settings:
        return settings.act_in("train")  # the layer does nothing in evaluation mode

    def fill(self, slots: Slots, settings: Settings) -> None:
        self.channels = settings.spec.obs_shape[-1]
        slots.put("input", lambda _: self.layer)

    def begin_iteration(self, ctx: Context) -> None:
        if self.config.clean == 1 and self.config.beta == 0:
            return  # no filter is ever used, so none is drawn
        self.layer.weight = draw_filter(self.channels, ctx.generator).to(ctx.device)
        self.layer.on = torch.rand((), generator=ctx.generator).item() >= self.config.clean

    def act(self, obs: Tensor, stage: Stage, ctx: Context) -> Output:
        act = super().act
        if stage == "rollout" or self.config.evaluation == "clean":
            return act(obs, stage, ctx)
        frames = as_input(obs)
        if self.config.evaluation == "random":
            return act(self.layer.filtered(frames) if self.layer.on else frames, stage, ctx)
        filters = [
            draw_filter(self.channels, ctx.generator).to(ctx.device, non_blocking=True)
            for _ in range(self.config.samples)
        ]
        return mean_policy([act(convolve(frames, weight), stage, ctx) for weight in filters])

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        seen = views[0].output.features
        if self.config.beta == 0 or seen is None:
            return None, {}
        on = self.layer.on
        with self.layer.switched(not on), torch.set_grad_enabled(not on):
            other = ctx.model(batch.obs, value=False).features
        filtered, clean = (seen, other) if on else (other, seen)
        term = feature_matching(filtered, clean)
        return self.config.beta * term, {"feature_matching": term, "filtered": torch.tensor(float(on))}

    def notes(self) -> dict[str, str | float]:
        return {
            "evaluation": f"mc with {self.config.samples}" if self.config.evaluation == "mc" else self.config.evaluation
        }

    def state(self) -> dict[str, Any]:
        return {"weight": self.layer.weight.cpu(), "on": self.layer.on}

    def load(self, state: Mapping[str, Any]) -> None:
        self.layer.weight, self.layer.on = state["weight"].clone(), state["on"]


class RandomFilter(nn.Module):
    """A convolution of the frames that is not learnt; off until it is switched on, and in evaluation mode.

    Its weight is no buffer: processes have filters of their own, and a checkpoint keeps the buffers of one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.zeros(0)  # drawn before the first rollout
        self.on = False

    def forward(self, x: Tensor) -> Tensor:
        return self.filtered(x) if self.on and self.training else x

    def filtered(self, x: Tensor) -> Tensor:
        return convolve(x, self.weight.to(x.device))

    @contextmanager
    def switched(self, on: bool) -> Iterator[None]:
        before, self.on = self.on, on
        try:
            yield
        finally:
            self.on = before


def draw_filter(channels: int, generator: Generator) -> Tensor:
    """(C, C, 3, 3) from Xavier's normal law: 9 weights of each channel come in and as many go out."""
    return torch.randn(channels, channels, 3, 3, generator=generator) * math.sqrt(2 / (18 * channels))


def convolve(frames: Tensor, weight: Tensor) -> Tensor:
    """Frames (N, C, H, W) through a filter, with zeros around; the values may leave [0, 1]."""
    return F.conv2d(frames, weight, padding=1)


def feature_matching(filtered: Tensor, clean: Tensor) -> Tensor:
    """Mean squared distance over samples and features, all (N, 256); the clean ones are a target, without gradient."""
    return ((filtered - clean.detach()) ** 2).mean()


def mean_policy(outputs: Sequence[Output]) -> Output:
    """The mean of the probabilities, as logits, and of the values."""
    log_probs = torch.stack([output.known_logits.log_softmax(-1) for output in outputs])
    values = [output.known_value for output in outputs]
    return Output(log_probs.logsumexp(0) - math.log(len(outputs)), torch.stack(values).mean(0))
