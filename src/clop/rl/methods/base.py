"""Method: the places where the learner can be changed, and the settings a method edits before anything is built.

The learner of :mod:`clop.rl.ppo` calls the hooks and knows no method by name. Each hook does nothing by default, so an
empty class is exactly PPO. Most hooks chain when methods are composed; three are exclusive, since two answers to the
same question cannot both hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl.encoders.base import Slots
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec
from clop.rl.network import Network, Output
from clop.rl.rollout import Batch, Rollout
from clop.rl.settings import Mode, NetworkConfig, PPOConfig

Stage = Literal["rollout", "eval"]


@dataclass(frozen=True)
class Settings:
    """What is to be built; methods return changed copies of it in ``configure``."""

    levels: LevelSet
    """The game, and the levels to learn on; a method may keep some of them for itself."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    rollout_mode: Mode = "eval"
    """Mode of the network while acting; methods ask for one with :meth:`act_in`."""
    backend: str = "auto"
    """Program that plays the games."""
    frames: Literal["bytes", "floats"] = "bytes"
    """What the rollout stores: uint8 (H, W, C) as the games give it, or float (C, H, W) if ``observe`` returns values
    that are no bytes, for four times the memory."""
    asked: frozenset[Mode] = frozenset()

    @property
    def game(self) -> str:
        return self.levels.game

    @property
    def spec(self) -> EnvSpec:
        return self.levels.spec

    def act_in(self, mode: Mode) -> "Settings":
        """Have the network act in this mode; two methods that ask for different ones cannot be combined."""
        asked = self.asked | {mode}
        if len(asked) > 1:
            raise UsageError(
                "one method wants the network to act in training mode and another in evaluation mode; they cannot be "
                "combined, unless one has a setting rollout_mode that agrees with the other"
            )
        return replace(self, rollout_mode=mode, asked=asked)


@dataclass(frozen=True)
class Phase:
    """One pass over the rollout in an update: which parameters, how often, and with which terms of the loss."""

    name: str
    group: str
    epochs: int
    num_minibatches: int
    policy_coef: float
    vf_coef: float
    ent_coef: float
    every: int = 1
    """Runs in iterations divisible by this."""


class View(NamedTuple):
    """One forward pass of a batch, and the weight of its losses."""

    weight: float
    output: Output


@dataclass
class Context:
    """Where the learner stands, its network, its randomness, and the other processes."""

    iteration: int
    env_steps: int
    device: torch.device
    generator: torch.Generator
    rollout_mode: Mode
    model: Network
    workers: Workers = field(default_factory=Workers)
    """A method that trains something of its own averages its gradients over them."""


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Run in this mode and give the old one back."""
    before = model.training
    if before != training:
        model.train(training)
    try:
        yield
    finally:
        if before != training:
            model.train(before)


class Method:
    """A way to change PPO. Override what is needed; the defaults are PPO itself."""

    exclusive: ClassVar[tuple[str, ...]] = ("act", "phases", "views")
    incompatible: ClassVar[Mapping[str, str]] = {}
    """Methods that cannot be combined with this one although no hook shows it, by name, and the reason."""

    def configure(self, settings: Settings) -> Settings:
        """Edit the settings. Pure: it may be called more than once, and before a run begins."""
        return settings

    def fill(self, slots: Slots, settings: Settings) -> None:
        """Put layers into the network that is about to be built, once all methods have edited the settings."""

    def attach(self, model: Network, settings: Settings) -> None:
        """Once the network exists: to make what is no part of it."""

    def begin_iteration(self, ctx: Context) -> None:
        """Before each rollout."""

    def observe(self, obs: Tensor, ctx: Context) -> Tensor:
        """Each raw frame while collecting, the bootstrap frame too: what the policy sees and the rollout stores."""
        return obs

    def act(self, obs: Tensor, stage: Stage, ctx: Context) -> Output:
        """Policy and value on frames, without gradient; in the settings' mode for rollouts, else in evaluation mode."""
        with torch.no_grad(), in_mode(ctx.model, stage == "rollout" and ctx.rollout_mode == "train"):
            return ctx.model(obs)

    def prepare(self, rollout: Rollout, ctx: Context) -> None:
        """After the advantages are known, before the update."""

    def phases(self, ppo: PPOConfig, ctx: Context) -> Sequence[Phase]:
        """The passes of an update."""
        return [Phase("ppo", "all", ppo.update_epochs, ppo.num_minibatches, 1.0, ppo.vf_coef, ppo.ent_coef)]

    def transform(self, batch: Batch, ctx: Context) -> Batch:
        """Each micro-batch before the forward pass; with per-minibatch normalisation its advantages are still raw."""
        return batch

    def before_step(self, batches: Sequence[Batch], phase: Phase, ctx: Context) -> None:
        """Before the gradient of one optimiser step, whose micro-batches these are: to train something of one's own."""

    def views(self, batch: Batch, phase: Phase, ctx: Context) -> Sequence[View]:
        """Forward passes whose losses are averaged with these weights, which sum to 1."""
        policy = bool(phase.policy_coef or phase.ent_coef)
        return [View(1.0, ctx.model(batch.obs, policy=policy, value=bool(phase.vf_coef)))]

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        """A term to add to the loss, or None, and values of it to log."""
        return None, {}

    def metrics(self) -> dict[str, float]:
        """What to log besides, once an iteration: where the method itself stands."""
        return {}

    def notes(self) -> dict[str, str | float]:
        """Settings the score depends on that the method chose itself, and what it cost beyond the counted steps."""
        return {}

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs of this method, as tensors, numbers and names."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`."""


class Compose(Method):
    """Several methods as one: hooks run in order, penalties add up, exclusive hooks belong to one at most."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self.methods = dict(methods)
        for name, method in self.methods.items():
            for other in sorted(method.incompatible.keys() & self.methods.keys()):
                raise UsageError(f"{name} and {other} cannot be combined: {method.incompatible[other]}")
        for hook in Method.exclusive:
            owners = [name for name, method in self.methods.items() if overrides(method, hook)]
            if len(owners) > 1:
                raise UsageError(f"{' and '.join(owners)} cannot be combined: both decide the learner's {hook}")
            if owners:
                setattr(self, hook, getattr(self.methods[owners[0]], hook))

    def configure(self, settings: Settings) -> Settings:
        for method in self.methods.values():
            settings = method.configure(settings)
        return settings

    def fill(self, slots: Slots, settings: Settings) -> None:
        for method in self.methods.values():
            method.fill(slots, settings)

    def attach(self, model: Network, settings: Settings) -> None:
        for method in self.methods.values():
            method.attach(model, settings)

    def begin_iteration(self, ctx: Context) -> None:
        for method in self.methods.values():
            method.begin_iteration(ctx)

    def observe(self, obs: Tensor, ctx: Context) -> Tensor:
        for method in self.methods.values():
            obs = method.observe(obs, ctx)
        return obs

    def prepare(self, rollout: Rollout, ctx: Context) -> None:
        for method in self.methods.values():
            method.prepare(rollout, ctx)

    def transform(self, batch: Batch, ctx: Context) -> Batch:
        for method in self.methods.values():
            batch = method.transform(batch, ctx)
        return batch

    def before_step(self, batches: Sequence[Batch], phase: Phase, ctx: Context) -> None:
        for method in self.methods.values():
            method.before_step(batches, phase, ctx)

    def penalty(
        self, batch: Batch, views: Sequence[View], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        total: Tensor | None = None
        logs: dict[str, Tensor] = {}
        for method in self.methods.values():
            term, values = method.penalty(batch, views, phase, ctx)
            logs |= values
            if term is not None:
                total = term if total is None else total + term
        return total, logs

    def metrics(self) -> dict[str, float]:
        return {name: value for method in self.methods.values() for name, value in method.metrics().items()}

    def notes(self) -> dict[str, str | float]:
        return {
            f"{name}.{key}": value for name, method in self.methods.items() for key, value in method.notes().items()
        }

    def state(self) -> dict[str, Any]:
        return {name: method.state() for name, method in self.methods.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        for name, method in self.methods.items():
            method.load(state[name])


def overrides(method: Method, hook: str) -> bool:
    """Whether a method, or one that it is composed of, has its own version of a hook."""
    return hook in vars(method) or getattr(type(method), hook) is not getattr(Method, hook)
