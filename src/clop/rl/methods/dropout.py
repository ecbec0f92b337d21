"""Dropout in the agent, in the three ways the Procgen literature uses it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.errors import UsageError, check_choices
from clop.rl.encoders.base import Site, Slots
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.network import FEATURES, Dense
from clop.rl.rollout import Batch
from clop.sample_dropout import SampleDropout


@dataclass(frozen=True)
class Dropout:
    """Dropout of features (Srivastava et al., 2014)."""

    p: float = 0.1
    """Probability that a value is dropped."""
    style: Literal["actor", "coinrun", "sni"] = "actor"
    """``actor``: each value of the map the policy reads, anew for each sample and pass (the CLOP authors' baseline).
    ``coinrun``: after every convolution, one mask for the whole batch, kept for an iteration (Cobbe et al., 2019).
    ``sni``: before the last rectifier, a mask kept for an iteration, with which the agent acts, and for a part of the
    policy's loss another, drawn anew for each step (Igl et al., 2019)."""
    lam: float = 0.5
    """With style ``sni``: share of the policy's loss that has the mask that acted."""
    critic: Literal["fast", "slow"] = "fast"
    """With style ``sni``, the mask with which values are learnt: ``fast``, drawn anew for each step, as in the authors'
    code, or ``slow``, the one that acted. A critic with a dense layer of its own has neither."""

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise UsageError(f"dropout.p is a probability and must lie in [0, 1), got {self.p}")
        if not 0 <= self.lam <= 1:
            raise UsageError(f"dropout.lam is a share and must lie in [0, 1], got {self.lam}")
        check_choices(self, "dropout", ("style", "critic"))

    def build(self) -> Method:
        return SniDropoutMethod(self) if self.style == "sni" else DropoutMethod(self)


class DropoutMethod(Method):
    def __init__(self, config: Dropout) -> None:
        self.config = config
        self.masks: list[SharedMask] = []

    def configure(self, settings: Settings) -> Settings:
        return settings.act_in("train")

    def fill(self, slots: Slots, settings: Settings) -> None:
        if self.config.style == "actor":
            slots.put("actor_in", lambda site: SampleDropout(self.config.p, site.generator))
        else:
            slots.after_convolutions.append(self._mask)

    def _mask(self, name: str, site: Site) -> nn.Module:
        self.masks.append(SharedMask(self.config.p, *site.shape))
        return self.masks[-1]

    def begin_iteration(self, ctx: Context) -> None:
        for mask in self.masks:
            mask.redraw(ctx.generator)

    def state(self) -> dict[str, Any]:
        return {"masks": [mask.kept.cpu() for mask in self.masks]}

    def load(self, state: Any) -> None:
        for mask, kept in zip(self.masks, state["masks"], strict=True):
            mask.kept.copy_(kept)


class SniDropoutMethod(Method):
    """Selective noise injection: acts with a slow mask; values and a part of the policy learn with a fast one."""

    def __init__(self, config: Dropout) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        return settings.act_in("train")

    def fill(self, slots: Slots, settings: Settings) -> None:
        def neck(site: Site) -> nn.Module:
            self.neck = MaskedNeck(site, self.config.p)
            return self.neck

        slots.put("neck", neck)

    def begin_iteration(self, ctx: Context) -> None:
        self.neck.slow.redraw(ctx.generator)

    def before_step(self, batches: Sequence[Batch], phase: Phase, ctx: Context) -> None:
        self.neck.fast.redraw(ctx.generator)

    def views(self, batch: Batch, phase: Phase, ctx: Context) -> Sequence[View]:
        ((_, slow),) = super().views(batch, phase, ctx)
        lam = self.config.lam
        fast_critic = self.config.critic == "fast" and slow.value is not None and ctx.model.critic_neck is None
        if slow.encoder_map is None or self.config.p == 0 or (lam == 1 and not fast_critic):
            return [View(1.0, slow)]
        with self.neck.masked_by(self.neck.fast):
            fast = ctx.model.branches(slow.encoder_map) if fast_critic else ctx.model.policy_branch(slow.encoder_map)
        # Both views have the one value, so that its loss has the weight 1.
        if fast_critic:
            slow.value = fast.value
        else:
            fast.value = slow.value
        return [View(lam, slow), View(1 - lam, fast)] if lam < 1 else [View(1.0, slow)]

    def state(self) -> dict[str, Any]:
        return {"slow": self.neck.slow.kept.cpu()}

    def load(self, state: Any) -> None:
        self.neck.slow.kept.copy_(state["slow"])


class MaskedNeck(nn.Module):
    """The dense layer, a mask over its 256 outputs, and the rectifier."""

    def __init__(self, site: Site, p: float) -> None:
        super().__init__()
        self.dense = Dense(site.network, site.shape, FEATURES)
        self.slow, self.fast = SharedMask(p, FEATURES), SharedMask(p, FEATURES)
        self.mask: list[SharedMask] = [self.slow]  # in a list, since it is no module of its own

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.mask[-1](self.dense(x)))

    @contextmanager
    def masked_by(self, mask: "SharedMask") -> Iterator[None]:
        self.mask.append(mask)
        try:
            yield
        finally:
            self.mask.pop()


class SharedMask(nn.Module):
    """A mask over all dimensions but the first, the same for all samples until it is drawn anew."""

    kept: Tensor

    def __init__(self, p: float, *shape: int) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("kept", torch.ones(shape), persistent=False)

    def redraw(self, generator: torch.Generator) -> None:
        if self.p > 0:
            mask = torch.empty(self.kept.shape).bernoulli_(1 - self.p, generator=generator)
            self.kept.copy_(mask / (1 - self.p), non_blocking=True)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.kept if self.training and self.p > 0 else x

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
