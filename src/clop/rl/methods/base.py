"""Method: the places where the learner can be changed, and the plan a method edits before the network exists.

The learner of :mod:`clop.rl.ppo` calls ten hooks and knows no method by name. Each hook does nothing by default, so
an empty class is exactly PPO. Most hooks chain when methods are composed; three are exclusive, since two answers to
the same question cannot both hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from clop.distributed import Workers
from clop.errors import UsageError
from clop.rl.envs.levels import TrainLevels
from clop.rl.network import SLOTS, ConvPost, Network, NetworkConfig, Output
from clop.rl.rollout import Minibatch, Rollout

if TYPE_CHECKING:
    from clop.rl.ppo import PPOConfig

Stage = Literal["rollout", "eval"]
Mode = Literal["train", "eval"]

_ONE_MODULE = ("neck", "adv_head")  # the other slots take a chain


@dataclass
class Plan:
    """What is to be built; methods edit it in ``configure``."""

    levels: TrainLevels
    """The game, and the levels to learn on; a method may keep some of them for itself."""
    ppo: "PPOConfig"
    network: NetworkConfig
    generator: torch.Generator
    """For layers that draw: the learner's own, so that a resumed run draws on."""
    rollout_mode: Mode = "eval"
    """Mode of the network while acting; methods ask for one with :meth:`act_in`."""
    backend: str = "auto"
    """Of the games."""
    frames: Literal["bytes", "floats"] = "bytes"
    """What the rollout stores: uint8 (64, 64, 3) as the games give it, or float (3, 64, 64) if ``observe`` returns
    values that are no bytes, for four times the memory."""
    slots: dict[str, list[nn.Module]] = field(default_factory=dict)
    conv_post: list[ConvPost] = field(default_factory=list)
    _asked: set[Mode] = field(default_factory=set)

    @property
    def game(self) -> str:
        return self.levels.game

    def act_in(self, mode: Mode) -> None:
        """Have the network act in this mode; two methods that ask for different ones cannot be combined."""
        self._asked.add(mode)
        if len(self._asked) > 1:
            raise UsageError(
                "one method wants the network to act in training mode and another in evaluation mode; they cannot be "
                "combined, unless one has a setting rollout_mode that agrees with the other"
            )
        self.rollout_mode = mode

    def put(self, slot: str, module: nn.Module) -> None:
        """Fill a slot; a second module follows the first where the slot takes a chain."""
        assert slot in SLOTS, f"no such slot: {slot}"
        if slot in _ONE_MODULE and slot in self.slots:
            raise UsageError(f"two methods want to fill the network's {slot}; they cannot be combined")
        self.slots.setdefault(slot, []).append(module)

    def check(self) -> None:
        """A :class:`UsageError` if methods want what does not go together; once all have edited the plan."""
        if "trunk_out" in self.slots and self.network.topology == "decoupled":
            raise UsageError(
                "the value has a network of its own here and cannot read the policy's permuted map; "
                "leave --clop.critic clean, or set it to independent"
            )

    def build(self) -> Network:
        self.check()
        slots = {name: chain[0] if len(chain) == 1 else nn.Sequential(*chain) for name, chain in self.slots.items()}
        return Network(self.network, slots, self.conv_post)


@dataclass(frozen=True)
class Phase:
    """One pass over the rollout in an update: which parameters, how often, and with which terms of the loss."""

    name: str
    group: str
    epochs: int
    minibatches: int
    policy: float
    value: float
    entropy: float
    every: int = 1
    """Runs in iterations divisible by this."""


@dataclass
class Context:
    """Where the learner stands, its network, its randomness, and the other processes."""

    iteration: int
    env_steps: int
    total_steps: int
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
    """Methods that cannot be combined with this one although no hook tells, by name, and the reason."""

    def configure(self, plan: Plan) -> None:
        """Edit the plan, once, before the network exists."""

    def begin_iteration(self, ctx: Context) -> None:
        """Before each rollout."""

    def observe(self, obs: Tensor, ctx: Context) -> Tensor:
        """Each raw frame while collecting, the bootstrap frame too: what the policy sees and the rollout stores."""
        return obs

    def act(self, model: Network, obs: Tensor, stage: Stage, ctx: Context) -> Output:
        """Policy and value on frames, without gradient; in the plan's mode for rollouts, else in evaluation mode."""
        with torch.no_grad(), in_mode(model, stage == "rollout" and ctx.rollout_mode == "train"):
            return model(obs)

    def prepare(self, rollout: Rollout, ctx: Context) -> None:
        """After the advantages are known, before the update."""

    def phases(self, ppo: "PPOConfig", ctx: Context) -> Sequence[Phase]:
        """The passes of an update."""
        return [Phase("ppo", "all", ppo.epochs, ppo.minibatches, 1.0, ppo.value_coef, ppo.entropy_coef)]

    def batch(self, batch: Minibatch, ctx: Context) -> Minibatch:
        """Each micro-batch before the forward pass; with per-minibatch normalisation its advantages are still raw."""
        return batch

    def before_step(self, batches: Sequence[Minibatch], phase: Phase, ctx: Context) -> None:
        """Before the gradient of one optimiser step, whose micro-batches these are: to train something of one's own."""

    def views(self, model: Network, batch: Minibatch, phase: Phase, ctx: Context) -> Sequence[tuple[float, Output]]:
        """Forward passes whose losses are averaged with these weights, which sum to 1."""
        return [(1.0, model(batch.obs, policy=bool(phase.policy or phase.entropy), value=bool(phase.value)))]

    def penalty(
        self, model: Network, batch: Minibatch, views: Sequence[tuple[float, Output]], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        """A term to add to the loss, or None, and values to log."""
        return None, {}

    def notes(self) -> dict[str, str | float]:
        """What a score of this agent has to be read with: settings that the method chose itself, what it cost beyond
        the steps that are counted."""
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

    def configure(self, plan: Plan) -> None:
        for method in self.methods.values():
            method.configure(plan)

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

    def batch(self, batch: Minibatch, ctx: Context) -> Minibatch:
        for method in self.methods.values():
            batch = method.batch(batch, ctx)
        return batch

    def before_step(self, batches: Sequence[Minibatch], phase: Phase, ctx: Context) -> None:
        for method in self.methods.values():
            method.before_step(batches, phase, ctx)

    def penalty(
        self, model: Network, batch: Minibatch, views: Sequence[tuple[float, Output]], phase: Phase, ctx: Context
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        total: Tensor | None = None
        logs: dict[str, Tensor] = {}
        for method in self.methods.values():
            term, values = method.penalty(model, batch, views, phase, ctx)
            logs |= values
            if term is not None:
                total = term if total is None else total + term
        return total, logs

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
