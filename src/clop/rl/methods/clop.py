"""CLOP in the agent: local permutations of the map that the policy reads (Bertoin and Rachelson, 2022)."""

from dataclasses import dataclass
from typing import Literal

from clop.errors import UsageError
from clop.layer import CLOP
from clop.rl.games import find_game
from clop.rl.methods.base import Method, Mode, Plan

Slot = Literal["actor_in", "block1", "block2", "block3"]
Variant = Literal["paper", "raster", "clamp"]

_LAST_MAPS = ("block3", "actor_in")


@dataclass(frozen=True)
class Clop:
    """CLOP on the deepest map of the actor (Bertoin and Rachelson, 2022)."""

    alpha: float | None = None
    """Probability of a swap; the paper's value for the game if not given."""
    slot: Slot | None = None
    """Where the layer goes. ``actor_in`` spares the critic; after a block both see the permuted map, unless they have a
    network each. By default ``actor_in``, and ``block2`` with a global average pool, which does not see a permutation
    right before it."""
    critic: Literal["clean", "same", "independent"] = "clean"
    """What the critic reads besides ``actor_in``: the clean map, the actor's permuted one, or one of its own."""
    variant: Variant = "paper"
    """``paper`` is the paper's rule, ``raster`` that of the authors' code."""
    local: bool = True
    """Whether positions swap with direct neighbours, and not with any other (the paper's ablation)."""
    channel_consistent: bool = True
    """Whether all channels are permuted alike, and not each in its own way (the paper's ablation)."""
    per_sample: bool = False
    """Whether each frame has a permutation of its own, and not all frames of a pass the same."""
    rollout_mode: Mode = "train"
    """Whether the layer acts while collecting (``train``, as in the authors' code) or only in updates."""

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise UsageError(f"clop.alpha is a probability and must lie in [0, 1], got {self.alpha}")

    def build(self) -> "ClopMethod":
        return ClopMethod(self)


class ClopMethod(Method):
    """Fills a slot of the network; the loss stays PPO's."""

    def __init__(self, config: Clop) -> None:
        self.config = config

    def configure(self, plan: Plan) -> None:
        config = self.config
        slot = find_slot(plan, config.slot)
        if config.critic != "clean" and slot != "actor_in":
            raise UsageError(
                f"the critic already reads the permuted map when CLOP is at {slot}; leave --clop.critic clean"
            )
        if config.critic == "same":
            plan.put("trunk_out", self._layer(plan))
        else:
            plan.put(slot, self._layer(plan))
            if config.critic == "independent":
                plan.put("critic_in", self._layer(plan))
        plan.act_in(config.rollout_mode)

    def _layer(self, plan: Plan) -> CLOP:
        config = self.config
        return CLOP(
            find_alpha(plan, config.alpha),
            variant=config.variant,
            local=config.local,
            channel_consistent=config.channel_consistent,
            per_sample=config.per_sample,
            generator=plan.generator,
        )


def find_slot(plan: Plan, slot: Slot | None) -> Slot:
    """Where a layer goes: as told, or by default to the last map whose places matter to what follows."""
    if not plan.network.impoola:
        return slot or "actor_in"
    if slot in _LAST_MAPS:
        raise UsageError(
            f"CLOP at {slot} would do nothing: a global average pool follows, and a mean does not see a permutation; "
            "put it before the last block with the slot block2"
        )
    return slot or "block2"


def find_alpha(plan: Plan, alpha: float | None) -> float:
    """As told, or the paper's for the game."""
    return find_game(plan.game).clop_alpha if alpha is None else alpha
