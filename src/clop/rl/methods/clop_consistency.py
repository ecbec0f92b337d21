"""CLOP as a question to the policy, and not as noise in it: a combination of CLOP and DrAC of our own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from clop.errors import UsageError
from clop.layer import CLOP
from clop.layer_settings import LayerSettings
from clop.rl.encoders.base import Site, Slots
from clop.rl.games import paper_alpha
from clop.rl.losses import policy_divergence
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.methods.clop import find_slot
from clop.rl.rollout import Batch


@dataclass(frozen=True)
class ClopConsistency(LayerSettings):
    """PPO on clean maps, and a term that asks the policy on permuted ones to agree (ours)."""

    group: ClassVar[str] = "clop_consistency"

    coef: float = 0.1
    """Weight of the divergence of the policy on permuted maps from that on clean ones; 0.1 is DrAC's."""
    slot: str | None = None
    """Where maps are permuted, named as for the method clop. Before ``actor_in`` the encoder has to run twice."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coef < 0:
            raise UsageError(f"clop_consistency.coef must not be negative, got {self.coef}")

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

    def fill(self, slots: Slots, settings: Settings) -> None:
        def layer(site: Site) -> nn.Module:
            self.layer = OnDemand(self.config.layer(paper_alpha(settings.game), site.generator))
            return self.layer

        self.slot = find_slot(self.config.slot, settings, "clop_consistency")
        slots.put(self.slot, layer)

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        clean = views[0].output
        if clean.logits is None or self.config.coef == 0 or self.layer.clop.alpha == 0:
            return None, {}
        with self.layer.on():
            if self.slot == "actor_in":
                assert clean.encoder_map is not None
                permuted = ctx.model.policy_branch(clean.encoder_map)
            else:
                permuted = ctx.model(batch.obs, value=False)
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
