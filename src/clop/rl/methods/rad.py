"""RAD: PPO on augmented frames (Laskin et al., 2020)."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Generator, Tensor, nn

from clop.augment import Augmentation, Constants, Draw, Name, RandomConv
from clop.errors import UsageError
from clop.rl.methods.augmented import FlipAxis, augment_frames, draw_for, game_augmentation, name_of
from clop.rl.methods.base import Context, Method, Plan
from clop.rl.rollout import Minibatch, Rollout


@dataclass(frozen=True)
class Rad:
    """PPO on augmented frames (Laskin et al., 2020)."""

    aug: Name | None = None
    """The augmentation; the one that DrAC does best with in the game if not given."""
    where: Literal["collect", "collect-step", "both", "update"] = "collect"
    """``collect``: frames are changed before the policy sees them, in each env alike for a whole rollout (RAD's Procgen
    code); random-conv has one filter for all envs. ``collect-step``: in each env anew at each step; frames of
    random-conv then take four times the memory. ``both``: while acting, and anew in updates. ``update``: only there."""
    constants: Constants = "rad"
    """``rad``: of RAD's and DrAC's Procgen code. ``clop``: of the CLOP authors' code."""
    flip_axis: FlipAxis = "horizontal"
    """Of flip: ``horizontal`` swaps left and right, ``vertical`` top and bottom, as DrAC's code does by mistake."""
    p: float | None = None
    """Probability that a frame is changed at all; that of the augmentation if not given."""

    def __post_init__(self) -> None:
        if self.p is not None and not 0 <= self.p <= 1:
            raise UsageError(f"rad.p is a probability and must lie in [0, 1], got {self.p}")

    def build(self) -> "RadMethod":
        return RadMethod(self)


class RadMethod(Method):
    """Changes frames on their way into the rollout, the minibatch or the network; the loss stays PPO's."""

    augmentation: Augmentation

    def __init__(self, config: Rad) -> None:
        self.config = config
        self.held: Draw | None = None  # for the rollout at hand
        self.layer: AugmentedInput | None = None

    def configure(self, plan: Plan) -> None:
        config = self.config
        self.augmentation = game_augmentation(config.aug, plan.game, config.flip_axis, config.constants, config.p)
        if config.where == "collect" and isinstance(self.augmentation, RandomConv):
            self.augmentation = replace(self.augmentation, shared=True)
        if config.where == "both" or (config.where == "collect" and not self.augmentation.keeps_bytes):
            self.layer = AugmentedInput(self.augmentation, plan.generator)
            plan.put("input", self.layer)
        elif config.where == "collect-step" and not self.augmentation.keeps_bytes:
            plan.frames = "floats"

    def begin_iteration(self, ctx: Context) -> None:
        self.held = None
        if self.layer is None:
            return
        if self.config.where == "collect":
            self.layer.held = self.augmentation.draw(1, (3, 64, 64), generator=ctx.generator, device=ctx.device)
        if ctx.model.value_trunk is not None:
            ctx.model.value_trunk.input = self.layer  # a critic of its own sees the same frames

    def observe(self, obs: Tensor, ctx: Context) -> Tensor:
        if self.layer is not None:
            self.layer.collecting = True
            return obs
        if self.config.where == "update":
            return obs
        if self.config.where == "collect-step":
            return augment_frames(obs, self.augmentation, ctx.generator)
        if self.held is None:
            self.held = draw_for(obs, self.augmentation, ctx.generator)
        return augment_frames(obs, self.augmentation, ctx.generator, self.held)

    def prepare(self, rollout: Rollout, ctx: Context) -> None:
        if self.layer is not None:
            self.layer.collecting = False

    def batch(self, batch: Minibatch, ctx: Context) -> Minibatch:
        if self.config.where != "update":
            return batch
        return batch.replace(obs=augment_frames(batch.obs, self.augmentation, ctx.generator))

    def notes(self) -> dict[str, str | float]:
        return {"augmentation": name_of(self.augmentation)}


class AugmentedInput(nn.Module):
    """Changes the frames that enter the network, while collecting and in updates; never in an evaluation.

    The mode alone does not tell a rollout from an evaluation, since most agents act in evaluation mode.
    """

    def __init__(self, augmentation: Augmentation, generator: Generator) -> None:
        super().__init__()
        self.augmentation, self.generator = augmentation, generator
        self.collecting = False
        self.held: Draw | None = None
        """What to apply; a draw for each pass if there is none."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training or self.collecting):
            return x
        return augment_frames(x, self.augmentation, self.generator, self.held)

    def extra_repr(self) -> str:
        return repr(self.augmentation)
