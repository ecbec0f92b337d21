"""Decoupled advantage actor-critic (Raileanu and Fergus, 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from clop.errors import UsageError
from clop.rl.encoders.base import Slots
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.network import FEATURES, linear_head
from clop.rl.rollout import Batch
from clop.rl.settings import PPOConfig


@dataclass(frozen=True)
class Daac:
    """A network each for policy and value; the policy's predicts advantages (Raileanu and Fergus, 2021)."""

    policy_epochs: int = 1
    """Passes over a rollout for the policy network."""
    value_epochs: int = 9
    """Passes over a rollout for the value network."""
    value_every: int = 1
    """Iterations from one fit of the value network to the next; it sees the last rollout only."""
    advantage_coef: float = 0.25
    """Weight of the squared error of the predicted advantage."""

    def __post_init__(self) -> None:
        if min(self.policy_epochs, self.value_epochs, self.value_every) < 1:
            raise UsageError(
                "policy_epochs, value_epochs and value_every must be at least 1, got "
                f"{self.policy_epochs}, {self.value_epochs} and {self.value_every}"
            )
        if self.advantage_coef < 0:
            raise UsageError(f"advantage_coef must not be negative, got {self.advantage_coef}")

    def build(self) -> "DaacMethod":
        return DaacMethod(self)


class DaacMethod(Method):
    """Two phases, one for each network; a head of the policy network is fitted to the advantages of the rollout."""

    incompatible: ClassVar[Mapping[str, str]] = {
        "mixreg": "mixreg normalises advantages after it has mixed them, DAAC over the whole rollout before",
    }

    def __init__(self, config: Daac) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        return replace(
            settings,
            network=replace(settings.network, topology="decoupled", dense_init="orthogonal"),
            ppo=replace(
                settings.ppo,
                update_epochs=self.config.policy_epochs,
                vf_coef=1.0,
                advantage_norm="batch",
                advantage_std="unbiased",
                advantage_epsilon=1e-5,
            ),
        )

    def fill(self, slots: Slots, settings: Settings) -> None:
        slots.put("adv_head", lambda site: linear_head(FEATURES + site.num_actions, 1, gain=1.0))

    def phases(self, ppo: PPOConfig, ctx: Context) -> Sequence[Phase]:
        config = self.config
        return [
            Phase("policy", "policy", ppo.update_epochs, ppo.num_minibatches, 1.0, 0.0, ppo.ent_coef),
            Phase(
                "value", "value", config.value_epochs, ppo.num_minibatches, 0.0, ppo.vf_coef, 0.0, config.value_every
            ),
        ]

    def views(self, batch: Batch, phase: Phase, ctx: Context) -> Sequence[View]:
        policy = phase.name == "policy"
        actions = batch.actions if policy and self.config.advantage_coef else None
        return [View(1.0, ctx.model(batch.obs, policy=policy, value=not policy, actions=actions))]

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        if phase.name != "policy" or self.config.advantage_coef == 0:
            return None, {}
        error = ((views[0].output.aux["advantage"] - batch.advantages) ** 2).mean()
        return self.config.advantage_coef * error, {"advantage_loss": error}
