"""Invariant decoupled advantage actor-critic (Raileanu and Fergus, 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from clop.adam import Adam
from clop.errors import UsageError
from clop.rl.encoders.base import Slots
from clop.rl.methods.base import Context, Method, Phase, Settings, View
from clop.rl.methods.daac import Daac, DaacMethod
from clop.rl.network import FEATURES, Network, linear_head
from clop.rl.rollout import Batch, Rollout
from clop.rl.settings import PPOConfig

LINEAR = 0  # hidden units of a classifier without a hidden layer


@dataclass(frozen=True)
class TunedSettings:
    """The settings that the authors tuned; the defaults are their uniform set."""

    value_epochs: int = 9
    value_every: int = 1
    advantage_coef: float = 0.25
    order_coef: float = 0.001
    hidden: int = LINEAR


BEST: Mapping[str, TunedSettings] = MappingProxyType(
    {
        "plunder": TunedSettings(value_epochs=1, value_every=8, advantage_coef=0.3, order_coef=0.1),
        "chaser": TunedSettings(value_epochs=1, advantage_coef=0.15),
        "miner": TunedSettings(value_every=32, order_coef=0.1, hidden=64),
        "climber": TunedSettings(advantage_coef=0.05, hidden=64),
        "bigfish": TunedSettings(value_every=32, advantage_coef=0.05, order_coef=0.01, hidden=4),
        "dodgeball": TunedSettings(value_every=32, hidden=64),
    }
)
"""Their set for single games; the others have the uniform one."""


@dataclass(frozen=True)
class Idaac:
    """DAAC, and an adversary that tells which of two frames came first (Raileanu and Fergus, 2021)."""

    settings: Literal["best", "uniform"] = "best"
    """The authors' values for the game (``best``), or those they use for all games (``uniform``), where a setting of
    this method is not given itself."""
    value_epochs: int | None = None
    """Passes over a rollout for the value network."""
    value_every: int | None = None
    """Iterations from one fit of the value network to the next."""
    advantage_coef: float | None = None
    """Weight of the squared error of the predicted advantage."""
    order_coef: float | None = None
    """Weight of the term that keeps the order of frames out of the policy's features."""
    hidden: int | None = None
    """Units in the hidden layer of the order classifier; 0 for none."""
    policy_epochs: int = 1
    """Passes over a rollout for the policy network."""
    same_episode: bool = False
    """Whether the two frames of the order classifier come from one episode, as the paper says, and not only from one
    level, as in its code."""

    def __post_init__(self) -> None:
        for name in ("order_coef", "hidden"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise UsageError(f"idaac.{name} must not be negative, got {value}")
        self.daac(self.tuned("bigfish"))  # refuses what makes no sense

    def tuned(self, game: str) -> TunedSettings:
        """What holds for a game."""
        base = BEST.get(game, TunedSettings()) if self.settings == "best" else TunedSettings()
        given = {name: getattr(self, name) for name in vars(base) if getattr(self, name) is not None}
        return replace(base, **given)

    def daac(self, tuned: TunedSettings) -> Daac:
        return Daac(self.policy_epochs, tuned.value_epochs, tuned.value_every, tuned.advantage_coef)

    def build(self) -> "IdaacMethod":
        return IdaacMethod(self)


class IdaacMethod(Method):
    """What DAAC does, and in its policy phase a classifier's step and a term against the classifier."""

    incompatible: ClassVar[Mapping[str, str]] = {**DaacMethod.incompatible, "daac": "idaac is daac with an adversary"}

    def __init__(self, config: Idaac) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        self.tuned = self.config.tuned(settings.game)
        self.base = DaacMethod(self.config.daac(self.tuned))
        return self.base.configure(settings)

    def fill(self, slots: Slots, settings: Settings) -> None:
        self.base.fill(slots, settings)

    def attach(self, model: Network, settings: Settings) -> None:
        self.max_grad_norm = settings.ppo.max_grad_norm
        self.classifier = order_classifier(self.tuned.hidden)
        self.optimiser = Adam(self.classifier.parameters(), settings.ppo.learning_rate, eps=settings.ppo.adam_epsilon)
        self.logs: dict[str, Tensor] = {}

    def prepare(self, rollout: Rollout, ctx: Context) -> None:
        if self.tuned.order_coef == 0:
            return
        groups = episodes(rollout.dones) if self.config.same_episode else rollout.level_seeds
        partners = draw_partners(rollout.flat(groups), ctx.generator)
        steps = rollout.flat(rollout.episode_steps)
        rollout.extra["partner"] = partners.view(rollout.steps, rollout.envs)
        rollout.extra["partner_first"] = (steps[partners] < steps).view(rollout.steps, rollout.envs)
        self.frames = rollout.flat(rollout.obs).to(ctx.device)

    def phases(self, ppo: PPOConfig, ctx: Context) -> Sequence[Phase]:
        return self.base.phases(ppo, ctx)

    def views(self, batch: Batch, phase: Phase, ctx: Context) -> Sequence[View]:
        return self.base.views(batch, phase, ctx)

    def before_step(self, batches: Sequence[Batch], phase: Phase, ctx: Context) -> None:
        """One step of the classifier on the whole minibatch, on features that it cannot change."""
        if phase.name != "policy" or self.tuned.order_coef == 0:
            return
        self._follow(ctx.model)
        with torch.no_grad():
            pairs = torch.cat(
                [self._pairs(ctx.model, batch, self._features(ctx.model, batch.obs)) for batch in batches]
            )
        first = torch.cat([batch.extra["partner_first"] for batch in batches])
        self.classifier.requires_grad_(True)
        self.optimiser.zero_grad()
        log_probs = self.classifier(pairs).log_softmax(-1)
        loss = order_loss(log_probs, first)
        loss.backward()
        parameters = list(self.classifier.parameters())
        ctx.workers.average_gradients(parameters)
        nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        self.optimiser.step()
        self.classifier.requires_grad_(False)  # the policy's term goes through it and leaves it as it is
        accuracy = ((log_probs[:, 0] > log_probs[:, 1]) == first).float().mean()
        self.logs = {"order_loss": loss.detach(), "order_accuracy": accuracy}

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        term, logs = self.base.penalty(batch, views, phase, ctx)
        features = views[0].output.features
        if phase.name != "policy" or self.tuned.order_coef == 0 or features is None:
            return term, logs
        confusion = confusion_loss(self.classifier(self._pairs(ctx.model, batch, features)).log_softmax(-1))
        invariance = self.tuned.order_coef * confusion
        return invariance if term is None else term + invariance, {**logs, **self.logs, "order_confusion": confusion}

    def notes(self) -> dict[str, str | float]:
        values = ", ".join(f"{name} {value:g}" for name, value in vars(self.tuned).items())
        return {"settings": f"{self.config.settings}: {values}"}

    def state(self) -> dict[str, Any]:
        return {"classifier": self.classifier.state_dict(), "optimiser": self.optimiser.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.classifier.load_state_dict(state["classifier"])
        self.optimiser.load_state_dict(state["optimiser"])

    def _pairs(self, model: Network, batch: Batch, features: Tensor) -> Tensor:
        """(N, 512) The features of each frame beside those of its partner."""
        partners = self.frames[batch.extra["partner"]]
        return torch.cat([features, self._features(model, partners)], 1)

    def _features(self, model: Network, obs: Tensor) -> Tensor:
        features = model(obs, value=False).features
        assert features is not None
        return features

    def _follow(self, model: Network) -> None:
        """Have the classifier where the network is: ``cuda`` alone is not equal to the ``cuda:0`` it stands for."""
        device = next(model.parameters()).device
        if next(self.classifier.parameters()).device != device:
            self.classifier.to(device)
            self.optimiser.load_state_dict(self.optimiser.state_dict())  # which moves to where the parameters are


def order_classifier(hidden: int) -> nn.Module:
    """Features of two frames to two logits: that the second came first in its episode, and that it did not."""
    if hidden == LINEAR:
        return linear_head(2 * FEATURES, 2, gain=1.0).requires_grad_(False)
    first, last = linear_head(2 * FEATURES, hidden, gain=2**0.5), linear_head(hidden, 2, gain=1.0)
    return nn.Sequential(first, nn.ReLU(), last).requires_grad_(False)


def order_loss(log_probs: Tensor, partner_first: Tensor) -> Tensor:
    """Cross-entropy of the classifier, (N, 2), to the truth, (N,)."""
    return -torch.where(partner_first, log_probs[:, 0], log_probs[:, 1]).mean()


def confusion_loss(log_probs: Tensor) -> Tensor:
    """Cross-entropy to a half, (N, 2): least where the classifier cannot tell."""
    return -0.5 * log_probs.sum(-1).mean()


def draw_partners(groups: Tensor, generator: Generator) -> Tensor:
    """For each place, a place of the same group, itself included, all equally likely; (B,) each.

    Sorted by group, the members of one stand side by side, and a partner is a place in that stretch.
    """
    _, group, sizes = groups.unique(return_inverse=True, return_counts=True)
    order = group.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    drawn = torch.rand(len(groups), generator=generator, dtype=torch.float64)
    return order[starts[group] + (drawn * sizes[group]).long()]


def episodes(dones: Tensor) -> Tensor:
    """(T, E) A number for each episode of a rollout: an end belongs to the episode that it ends."""
    steps, envs = dones.shape
    before = dones.long().cumsum(0) - dones.long()
    return before + torch.arange(envs, device=dones.device) * (steps + 1)
