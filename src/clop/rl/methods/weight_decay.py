"""Weight decay as a term of the loss, as the CoinRun and Procgen agents have it (Cobbe et al., 2019)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from clop.errors import UsageError
from clop.rl.losses import half_squared_norm
from clop.rl.methods.base import Context, Method, Phase, View
from clop.rl.rollout import Batch


@dataclass(frozen=True)
class WeightDecay:
    """The squared norm of the weights as a term of the loss (Cobbe et al., 2019)."""

    coef: float = 1e-4
    """Weight of half the squared norm of the weights; biases and batch norm are spared."""

    def __post_init__(self) -> None:
        if self.coef < 0:
            raise UsageError(f"weight_decay.coef must not be negative, got {self.coef}")

    def build(self) -> "WeightDecayMethod":
        return WeightDecayMethod(self)


class WeightDecayMethod(Method):
    """In the loss, hence inside the clipping of gradients and inside Adam's moments; the setting of that name in
    optimisers acts after the clipping, and on biases too."""

    def __init__(self, config: WeightDecay) -> None:
        self.config = config

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        if self.config.coef == 0:
            return None, {}
        norm = half_squared_norm(ctx.model.groups()[phase.group])
        return self.config.coef * norm, {"half_squared_norm": norm}
