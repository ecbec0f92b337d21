"""CLOP in the agent: local permutations of the map that the policy reads (Bertoin and Rachelson, 2022)."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from clop.errors import UsageError, unknown_name
from clop.layer_settings import LayerSettings
from clop.rl.encoders import find_encoder
from clop.rl.encoders.base import Site, Slots
from clop.rl.games import paper_alpha
from clop.rl.methods.base import Method, Settings
from clop.rl.settings import Mode


@dataclass(frozen=True)
class Clop(LayerSettings):
    """CLOP on the deepest map of the actor (Bertoin and Rachelson, 2022)."""

    slot: str | None = None
    """Where the layer goes: ``actor_in``, which spares the critic, or after a stage of the encoder (IMPALA: ``block1``,
    ``block2``, ``block3``), where both see the permuted map unless they have a network each. By default ``actor_in``,
    and before the last stage with a global average pool, which does not see a permutation right before it."""
    critic: Literal["clean", "same", "independent"] = "clean"
    """What the critic reads besides ``actor_in``: the clean map, the actor's permuted one, or one of its own."""
    rollout_mode: Mode = "train"
    """Whether the layer acts while collecting (``train``, as in the authors' code) or only in updates."""

    def build(self) -> "ClopMethod":
        return ClopMethod(self)


class ClopMethod(Method):
    """Fills a slot of the network; the loss stays PPO's."""

    def __init__(self, config: Clop) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        return settings.act_in(self.config.rollout_mode)

    def fill(self, slots: Slots, settings: Settings) -> None:
        slot, critic = find_slot(self.config.slot, settings, "clop"), self.config.critic

        def layer(site: Site) -> nn.Module:
            return self.config.layer(paper_alpha(settings.game), site.generator)

        if critic != "clean" and slot != "actor_in":
            raise UsageError(
                f"the critic already reads the permuted map when CLOP is at {slot}; leave clop.critic clean"
            )
        if critic == "same" and settings.network.topology == "decoupled":
            raise UsageError(
                "the value has a network of its own here and cannot read the policy's permuted map; "
                "leave clop.critic clean, or set it to independent"
            )
        slots.put("encoder_out" if critic == "same" else slot, layer)
        if critic == "independent":
            slots.put("critic_in", layer)


def find_slot(slot: str | None, settings: Settings, group: str) -> str:
    """Where a layer goes: as set, or by default to the last map whose places matter to what follows."""
    *_, inner, last = find_encoder(settings.network.encoder).stages
    known = ("actor_in", *find_encoder(settings.network.encoder).stages)
    if slot is not None and slot not in known:
        raise UsageError(unknown_name(f"{group}.slot", slot, known) + f" (the encoder is {settings.network.encoder})")
    if not settings.network.impoola:
        return slot or "actor_in"
    if slot in (last, "actor_in"):
        raise UsageError(
            f"CLOP at {slot} would do nothing: a global average pool follows, and a mean does not see a permutation; "
            f"put it before the last stage with the slot {inner}"
        )
    return slot or inner
