"""Decoupled advantage actor-critic (Raileanu and Fergus, 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from clop.errors import UsageError
from clop.rl.games import NUM_ACTIONS
from clop.rl.methods.base import Context, Method, Phase, Plan
from clop.rl.network import FEATURES, Network, Output, linear_head
from clop.rl.rollout import Minibatch

if TYPE_CHECKING:
    from clop.rl.ppo import PPOConfig


@dataclass(frozen=True)
class Daac:
    """A network each for policy and value; the policy's predicts advantages (Raileanu and Fergus, 2021)."""

    policy_epochs: int = 1
    value_epochs: int = 9
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

    def configure(self, plan: Plan) -> None:
        plan.network = replace(plan.network, topology="decoupled", dense_init="orthogonal")
        plan.ppo = replace(
            plan.ppo,
            epochs=self.config.policy_epochs,
            value_coef=1.0,
            advantage_norm="batch",
            advantage_std="unbiased",
            advantage_epsilon=1e-5,
        )
        with torch.random.fork_rng(devices=[]):  # so that the other weights are those of the network without the head
            head = linear_head(FEATURES + NUM_ACTIONS, 1, gain=1.0)
        plan.put("adv_head", head)

    def phases(self, ppo: "PPOConfig", ctx: Context) -> Sequence[Phase]:
        config = self.config
        return [
            Phase("policy", "policy", ppo.epochs, ppo.minibatches, 1.0, 0.0, ppo.entropy_coef),
            Phase("value", "value", config.value_epochs, ppo.minibatches, 0.0, ppo.value_coef, 0.0, config.value_every),
        ]

    def views(self, model: Network, batch: Minibatch, phase: Phase, ctx: Context) -> Sequence[tuple[float, Output]]:
        policy = phase.name == "policy"
        actions = batch.actions if policy and self.config.advantage_coef else None
        return [(1.0, model(batch.obs, policy=policy, value=not policy, actions=actions))]

    def penalty(
        self, model: Network, batch: Minibatch, views: Sequence[tuple[float, Output]], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        if phase.name != "policy" or self.config.advantage_coef == 0:
            return None, {}
        error = ((views[0][1].aux["advantage"] - batch.advantages) ** 2).mean()
        return self.config.advantage_coef * error, {"advantage_loss": error}
