"""Information bottleneck with selective noise injection (Igl et al., 2019)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.errors import UsageError
from clop.rl.encoders.base import Site, Slots
from clop.rl.losses import half_squared_norm
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.network import FEATURES, Dense, Output
from clop.rl.rollout import Batch

_SHIFT = 5.0  # makes sigma start near 0.007


@dataclass(frozen=True)
class IbacSni:
    """A noisy bottleneck for half of the policy's loss (Igl et al., 2019)."""

    beta: float = 1e-4
    """Weight of the information that passes the bottleneck, in bits."""
    lam: float = 0.5
    """Share of the policy's loss that is without noise; with 1 no noise is drawn, and the mean's square stands for the
    information."""
    samples: int = 12
    """Draws of the noise for each frame."""
    weight_decay: float = 1e-4
    """Weight of half the squared norm of the weights, as in the method weight_decay; the authors' runs have it."""

    def __post_init__(self) -> None:
        if min(self.beta, self.weight_decay) < 0:
            raise UsageError(
                f"ibac_sni.beta and ibac_sni.weight_decay must not be negative, got {self.beta} and {self.weight_decay}"
            )
        if not 0 <= self.lam <= 1:
            raise UsageError(f"ibac_sni.lam is a share and must lie in [0, 1], got {self.lam}")
        if self.samples < 1:
            raise UsageError(f"ibac_sni.samples must be at least 1, got {self.samples}")

    def build(self) -> "IbacSniMethod":
        return IbacSniMethod(self)


class IbacSniMethod(Method):
    """Acts, and learns values, without noise; half of the policy's loss is that of a mixture over noise."""

    incompatible: ClassVar[Mapping[str, str]] = {
        "weight_decay": "ibac_sni has a weight decay of its own, ibac_sni.weight_decay",
    }

    def __init__(self, config: IbacSni) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        return settings.act_in("eval")

    def fill(self, slots: Slots, settings: Settings) -> None:
        slots.put("neck", Bottleneck)

    def views(self, batch: Batch, phase: Phase, ctx: Context) -> Sequence[View]:
        ((_, still),) = super().views(batch, phase, ctx)
        lam = self.config.lam
        if lam == 1 or still.logits is None:
            return [View(1.0, still)]
        mean, sigma = still.aux["mean"], still.aux["sigma"]
        noise = torch.randn(self.config.samples, *mean.shape, generator=ctx.generator)
        noise = noise.to(mean.device, non_blocking=True)
        noisy = mixture(ctx.model.policy_head(F.relu(torch.addcmul(mean, sigma, noise))), still)
        return [View(lam, still), View(1 - lam, noisy)] if lam > 0 else [View(1.0, noisy)]

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        config, aux = self.config, views[0].output.aux
        total: Tensor | None = None
        logs: dict[str, Tensor] = {}
        if aux:
            noisy = config.lam < 1
            passed = information(aux["mean"], aux["sigma"]) if noisy else (aux["mean"] ** 2).sum(-1).mean()
            logs = {"information": passed, "sigma": aux["sigma"].mean()} if noisy else {"squared_mean": passed}
            if config.beta:
                total = config.beta * passed
        if config.weight_decay:
            decay = config.weight_decay * half_squared_norm(ctx.model.groups()[phase.group])
            total = decay if total is None else total + decay
        return total, logs


class Bottleneck(nn.Module):
    """In place of the dense layer: mean and spread of 256 latents. What it returns is the rectified mean, always; the
    noise is added where the loss wants it."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.dense = Dense(site.network, site.shape, 2 * FEATURES)

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mean, raw = self.dense(x).chunk(2, dim=-1)
        return F.relu(mean), {"mean": mean, "sigma": F.softplus(raw - _SHIFT)}


@dataclass
class Mixture(Output):
    """A policy that is the mean of several; its logits are the log of the mean probability."""

    component_entropy: Tensor | None = None  # (N,)

    def entropy(self) -> Tensor:
        """(N,) The mean of the components' entropies: that of the mixture would reward components that disagree."""
        assert self.component_entropy is not None
        return self.component_entropy


def mixture(components: Tensor, still: Output) -> Mixture:
    """The mean policy of logits (S, N, A), beside what a pass without noise says of the values."""
    log_probs = components.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean(0)
    mean = log_probs.logsumexp(0) - math.log(len(components))
    return Mixture(mean, still.value, still.features, still.aux, still.encoder_map, entropy)


def information(mean: Tensor, sigma: Tensor) -> Tensor:
    r""":math:`\frac{1}{\ln 2} \sum_d \mathrm{mean}\, \mathrm{KL}(N(\mu_d, \sigma_d^2) \| N(0, 1))`, in bits; (N, D)."""
    divergence = 0.5 * (mean**2 + sigma**2 - 1) - sigma.log()
    return divergence.sum(-1).mean() / math.log(2)
