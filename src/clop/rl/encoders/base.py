"""What encoders share: the slots where methods put layers, and how convolutions are made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.errors import UsageError
from clop.kernels import winograd
from clop.rl.settings import NetworkConfig

Shape = tuple[int, int, int]
"""Channels, height and width of a map."""
SMALLEST_MAP = 2
"""Positions of the last map in each direction, at least: with fewer there is nowhere to swap to."""


@dataclass(frozen=True)
class Site:
    """What a layer in a slot has to know of its place."""

    shape: Shape
    """Of the map that arrives there."""
    network: NetworkConfig
    num_actions: int
    generator: torch.Generator
    """For layers that draw: the learner's own, so that a resumed run draws on."""


Factory = Callable[[Site], nn.Module]
ConvFactory = Callable[[str, Site], nn.Module]
"""Makes what follows a convolution, given its name."""


@dataclass
class Slots:
    """The layers that methods add to a network, as factories: nothing is made before the network is."""

    known: tuple[str, ...]
    factories: dict[str, list[Factory]] = field(default_factory=dict)
    after_convolutions: list[ConvFactory] = field(default_factory=list)

    def put(self, slot: str, factory: Factory) -> None:
        """Fill a slot; a second layer follows the first where the slot takes a chain."""
        assert slot in self.known, f"no such slot: {slot}"
        if slot in ONE_MODULE and slot in self.factories:
            raise UsageError(f"two methods want to fill the network's {slot}; they cannot be combined")
        self.factories.setdefault(slot, []).append(factory)


ONE_MODULE = ("neck", "adv_head")
"""Slots that take one module; the others take a chain."""


@dataclass(frozen=True)
class Builder:
    """Makes the parts of one network."""

    network: NetworkConfig
    num_actions: int
    generator: torch.Generator
    factories: Mapping[str, Sequence[Factory]] = field(default_factory=dict)
    after_convolutions: Sequence[ConvFactory] = ()
    prefix: str = ""
    """Of the slots' names: the critic's own encoder has ``critic.``."""

    def slot(self, name: str, shape: Shape) -> nn.Module:
        """What fills a slot at this place; the identity if nothing does."""
        layers = [make(self.site(shape)) for make in self.factories.get(self.prefix + name, ())]
        if not layers:
            return nn.Identity()
        return layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def convolution(self, name: str, inputs: int, outputs: Shape, kernel: int = 3, stride: int = 1) -> nn.Module:
        """A convolution to a map of that shape, and what follows it.

        The norm ``block`` follows convolutions whose name ends in ``.conv``, the first of each stage.
        """
        convolution = nn.Conv2d(inputs, outputs[0], kernel, stride, padding=padding(kernel, stride))
        nn.init.xavier_uniform_(convolution.weight)
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers: list[nn.Module] = [convolution]
        norm, statistics = self.network.norm, self.network.norm_statistics
        if norm == "all" or (norm == "block" and name.endswith(".conv")):
            layers.append(nn.BatchNorm2d(outputs[0], track_running_stats=statistics == "running"))
        layers += [make(name, self.site(outputs)) for make in self.after_convolutions]
        return nn.Sequential(*layers) if len(layers) > 1 else convolution

    def site(self, shape: Shape) -> Site:
        return Site(shape, self.network, self.num_actions, self.generator)


class Stage(NamedTuple):
    """What a stage of an encoder makes of a map."""

    channels: int
    """At width 1."""
    kernel: int
    stride: int

    def shape(self, before: Shape, width: float) -> Shape:
        """Of the map behind it."""
        _, height, columns = before
        return (
            int(self.channels * width),
            convolved(height, self.kernel, self.stride),
            convolved(columns, self.kernel, self.stride),
        )


class Encoder(nn.Module):
    """Frames (N, C, H, W) in [0, 1] to the map before the dense layer, in stages.

    A stage is a place for a layer: the slot of its name sees what the stage returns. ``input`` comes before the first.
    """

    stages: ClassVar[Mapping[str, Stage]]

    def __init__(self, build: Builder, input_shape: Shape) -> None:
        super().__init__()
        self.input = build.slot("input", input_shape)
        shapes = self.shapes(input_shape, build.network.width)
        for name, before, after in zip(self.stages, [input_shape, *shapes], shapes, strict=False):
            self.add_module(name, self.stage(name, build, before, after))
            self.add_module(f"{name}_out", build.slot(name, after))
        self.out = build.slot("encoder_out", shapes[-1])
        self.map_shape = shapes[-1]

    @classmethod
    def shapes(cls, input_shape: Shape, width: float) -> list[Shape]:
        """Of the maps behind each stage."""
        shapes = [input_shape]
        for stage in cls.stages.values():
            shapes.append(stage.shape(shapes[-1], width))
        return shapes[1:]

    def stage(self, name: str, build: Builder, before: Shape, after: Shape) -> nn.Module:
        """One stage, from a map of one shape to the next."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.onward(self.input(x), None)

    def until(self, x: Tensor, stage: str) -> Tensor:
        """The map of frames behind a stage and its slot."""
        return self._through(self.input(x), None, stage)

    def onward(self, x: Tensor, stage: str | None) -> Tensor:
        """What the encoder makes of the map behind a stage; None stands for its input."""
        return self.out(self._through(x, stage, None))

    def _through(self, x: Tensor, behind: str | None, last: str | None) -> Tensor:
        names = list(self.stages)
        first = 0 if behind is None else names.index(behind) + 1
        for name in names[first : None if last is None else names.index(last) + 1]:
            x = getattr(self, f"{name}_out")(getattr(self, name)(x))
        return x


class Residual(nn.Module):
    """``x + conv(relu(conv(relu(x))))``; with ``skip_relu`` it is ``relu(x)`` that is added."""

    def __init__(self, name: str, build: Builder, shape: Shape) -> None:
        super().__init__()
        self.conv1 = build.convolution(f"{name}.conv1", shape[0], shape)
        self.conv2 = build.convolution(f"{name}.conv2", shape[0], shape)
        self.skip_relu = build.network.skip_relu

    def forward(self, x: Tensor) -> Tensor:
        if (y := winograd.residual(self.conv1, self.conv2, x, self.skip_relu)) is not None:
            return y
        rectified = F.relu(x)
        return (rectified if self.skip_relu else x) + self.conv2(F.relu_(self.conv1(rectified)))


class ReLU(nn.Module):
    """In place, for what nobody else reads."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(x)


def padding(kernel: int, stride: int) -> int:
    """With which a map whose size the stride divides is divided by it exactly."""
    return (kernel - stride + 1) // 2


def convolved(size: int, kernel: int, stride: int) -> int:
    """The size of a map after a convolution or a pooling with that padding."""
    return max(0, (size + 2 * padding(kernel, stride) - kernel) // stride + 1)
