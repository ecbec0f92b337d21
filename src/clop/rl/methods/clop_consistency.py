"""CLOP as a question to the policy, and not as noise in it: a combination of CLOP and DrAC of our own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from clop.errors import UsageError
from clop.layer import CLOP
from clop.rl.losses import policy_divergence
from clop.rl.methods.base import Context, Method, Phase, Plan
from clop.rl.methods.clop import Slot, Variant, find_alpha, find_slot
from clop.rl.network import Network, Output
from clop.rl.rollout import Minibatch


@dataclass(frozen=True)
class ClopConsistency:
    """PPO on clean maps, and a term that asks the policy on permuted ones to agree (ours)."""

    coef: float = 0.1
    """Weight of the divergence of the policy on permuted maps from that on clean ones; 0.1 is DrAC's."""
    alpha: float | None = None
    """Probability of a swap; the CLOP paper's value for the game if not given."""
    slot: Slot | None = None
    """Where maps are permuted, as for clop. Before ``actor_in`` the trunk has to run twice."""
    variant: Variant = "paper"
    """``paper`` is the paper's rule, ``raster`` that of the authors' code."""
    per_sample: bool = False
    """Whether each frame has a permutation of its own."""

    def __post_init__(self) -> None:
        if self.coef < 0:
            raise UsageError(f"clop_consistency.coef must not be negative, got {self.coef}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise UsageError(f"clop_consistency.alpha is a probability and must lie in [0, 1], got {self.alpha}")

    def build(self) -> "ClopConsistencyMethod":
        return ClopConsistencyMethod(self)


class ClopConsistencyMethod(Method):
    """The layer is off while acting and in PPO's own pass, so the ratio is that of PPO."""

    incompatible: ClassVar[Mapping[str, str]] = {
        "clop": "clop_consistency learns on clean maps, clop on permuted ones",
        "clop_auto": "clop_consistency learns on clean maps, clop_auto on permuted ones",
    }

    def __init__(self, config: ClopConsistency) -> None:
        self.config = config

    def configure(self, plan: Plan) -> None:
        config = self.config
        self.slot = find_slot(plan, config.slot)
        self.layer = OnDemand(
            CLOP(
                find_alpha(plan, config.alpha),
                variant=config.variant,
                per_sample=config.per_sample,
                generator=plan.generator,
            )
        )
        plan.put(self.slot, self.layer)

    def penalty(
        self, model: Network, batch: Minibatch, views: Sequence[tuple[float, Output]], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        clean = views[0][1]
        if clean.logits is None or self.config.coef == 0 or self.layer.clop.alpha == 0:
            return None, {}
        with self.layer.on():
            if self.slot == "actor_in":
                assert clean.trunk_map is not None
                permuted = model.policy_branch(clean.trunk_map)
            else:
                permuted = model(batch.obs, value=False)
        divergence = policy_divergence(clean.logits, permuted.known_logits)
        return self.config.coef * divergence, {"consistency": divergence}


class OnDemand(nn.Module):
    """A layer that is the identity until it is switched on."""

    def __init__(self, clop: CLOP) -> None:
        super().__init__()
        self.clop, self.active = clop, False

    def forward(self, x: Tensor) -> Tensor:
        return self.clop(x) if self.active else x

    @contextmanager
    def on(self) -> Iterator[None]:
        self.active = True
        try:
            yield
        finally:
            self.active = False
