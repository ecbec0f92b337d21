"""RAD: PPO on augmented frames (Laskin et al., 2020)."""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from clop.augment import Augmentation, Constants, Draw, Name, RandomConv
from clop.errors import UsageError
from clop.rl.encoders.base import Site, Slots
from clop.rl.methods.augmented import FlipAxis, augment_frames, draw_for, game_augmentation, name_of
from clop.rl.methods.base import Context, Method, Settings
from clop.rl.rollout import Batch, Rollout


@dataclass(frozen=True)
class Rad:
    """PPO on augmented frames (Laskin et al., 2020)."""

    aug: Name | None = None
    """The augmentation; the one that DrAC does best with in the game if not given."""
    where: Literal["collect", "collect-step", "both", "update"] = "collect"
    """``collect``: frames are changed before the policy sees them, in each env alike for a whole rollout (RAD's Procgen
    code); random_conv has one filter for all envs. ``collect-step``: in each env anew at each step; frames of
    random_conv then take four times the memory. ``both``: while acting, and anew in updates. ``update``: only there."""
    constants: Constants = "rad"
    """Whose settings the augmentation has: ``rad``, of RAD's Procgen code; ``drac``, of DrAC's, whose grayscale makes
    every frame grey; ``clop``, of the CLOP authors' code."""
    flip_axis: FlipAxis = "horizontal"
    """With the augmentation flip: ``horizontal`` swaps left and right, ``vertical`` top and bottom, as DrAC's code does
    by mistake."""
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

    def configure(self, settings: Settings) -> Settings:
        config = self.config
        self.augmentation = game_augmentation(config.aug, settings, config.flip_axis, config.constants, config.p)
        if config.where == "collect" and isinstance(self.augmentation, RandomConv):
            self.augmentation = replace(self.augmentation, shared=True)
        if config.where == "collect-step" and not self.augmentation.keeps_bytes:
            settings = replace(settings, frames="floats")
        return settings

    def fill(self, slots: Slots, settings: Settings) -> None:
        where = self.config.where
        if where == "both" or (where == "collect" and not self.augmentation.keeps_bytes):
            for slot in ("input", "critic.input"):  # a critic of its own sees the same frames
                slots.put(slot, self._layer)

    def _layer(self, site: Site) -> nn.Module:
        if self.layer is None:
            self.layer = AugmentedInput(self.augmentation, site)
        return self.layer

    def begin_iteration(self, ctx: Context) -> None:
        self.held = None
        if self.layer is None:
            return
        if self.config.where == "collect":
            self.layer.held = self.augmentation.draw(1, self.layer.shape, generator=ctx.generator, device=ctx.device)

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

    def transform(self, batch: Batch, ctx: Context) -> Batch:
        if self.config.where != "update":
            return batch
        return batch.replace(obs=augment_frames(batch.obs, self.augmentation, ctx.generator))

    def notes(self) -> dict[str, str | float]:
        return {"augmentation": name_of(self.augmentation)}


class AugmentedInput(nn.Module):
    """Changes the frames that enter the network, while collecting and in updates; never in an evaluation.

    The mode alone does not tell a rollout from an evaluation, since most agents act in evaluation mode.
    """

    def __init__(self, augmentation: Augmentation, site: Site) -> None:
        super().__init__()
        self.augmentation, self.generator, self.shape = augmentation, site.generator, site.shape
        self.collecting = False
        self.held: Draw | None = None
        """What to apply; a draw for each pass if there is none."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training or self.collecting):
            return x
        return augment_frames(x, self.augmentation, self.generator, self.held)

    def extra_repr(self) -> str:
        return repr(self.augmentation)
