"""DrAC: policy and value are asked to agree on a frame and its augmented version (Raileanu et al., 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from clop.augment import Augmentation, Name
from clop.errors import UsageError
from clop.rl.encoders.base import Slots
from clop.rl.losses import policy_divergence
from clop.rl.methods.augmented import FlipAxis, augment_frames, game_augmentation, name_of
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.network import Network, Output
from clop.rl.rollout import Batch

Divergence = Literal["exact", "sample"]


@dataclass(frozen=True)
class Drac:
    """PPO, and a term that asks for the same policy and value on augmented frames (Raileanu et al., 2021)."""

    alpha_r: float = 0.1
    """Weight of the term for augmented frames."""
    aug: Name | None = None
    """The augmentation; the authors' best for the game if not given."""
    kl: Divergence = "exact"
    """``exact``: the divergence of the policies. ``sample``: the log-probability of one action drawn on the clean frame
    (the authors' code): the same gradient on average, with more noise."""
    flip_axis: FlipAxis = "horizontal"
    """With the augmentation flip: ``horizontal`` swaps left and right, ``vertical`` top and bottom, as the authors'
    code does by mistake."""

    def __post_init__(self) -> None:
        if self.alpha_r < 0:
            raise UsageError(f"drac.alpha_r must not be negative, got {self.alpha_r}")

    def build(self) -> "DracMethod":
        return DracMethod(self)


class DracMethod(Method):
    """Acts, learns and is tested on clean frames; only the penalty sees augmented ones."""

    augmentation: Augmentation

    def __init__(self, config: Drac) -> None:
        self.config = config

    def fill(self, slots: Slots, settings: Settings) -> None:
        self.augmentation = game_augmentation(self.config.aug, settings, self.config.flip_axis)

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        if self.config.alpha_r == 0:
            return None, {}
        terms = disagreement(ctx.model, batch, views[0].output, self.augmentation, self.config.kl, ctx.generator)
        return self.config.alpha_r * sum_of(terms), terms

    def notes(self) -> dict[str, str | float]:
        return {"augmentation": name_of(self.augmentation)}


def disagreement(
    model: Network, batch: Batch, clean: Output, augmentation: Augmentation, kl: Divergence, generator: Generator
) -> dict[str, Tensor]:
    """How far policy and value on augmented frames, one more pass, are from those on the clean ones.

    The clean pass is the target and receives no gradient: it is the augmented side that is to follow.
    """
    frames = augment_frames(batch.obs, augmentation, generator)
    other = model(frames, policy=clean.logits is not None, value=clean.value is not None)
    terms = {}
    if clean.logits is not None:
        terms["augmented_policy"] = policy_distance(clean, other, kl, generator)
    if clean.value is not None:
        terms["augmented_value"] = value_distance(clean, other)
    return terms


def policy_distance(clean: Output, other: Output, kl: Divergence, generator: Generator) -> Tensor:
    r""":math:`\mathrm{KL}(\pi \| \pi')`, or its estimate :math:`-\log \pi'(a)` with :math:`a \sim \pi`, which is larger
    by the entropy of :math:`\pi`, a constant."""
    if kl == "exact":
        return policy_divergence(clean.known_logits, other.known_logits)
    with torch.no_grad():
        actions = clean.sample(generator)
    return -other.log_prob(actions).mean()


def value_distance(clean: Output, other: Output) -> Tensor:
    r""":math:`\frac{1}{2} \mathrm{mean} (V - V')^2`; the half is in the authors' code, not in the paper."""
    return 0.5 * ((clean.known_value.detach() - other.known_value) ** 2).mean()


def sum_of(terms: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()
