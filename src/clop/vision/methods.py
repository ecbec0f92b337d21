"""What a classifier may be given against overfitting: the methods of the paper's tables.

A method is a frozen config that changes training in at most three places: the network before it is built, the pixels
of a batch, and what the network and the loss see of it. The trainer knows no method by name, and an empty method is
the plain network. Methods compose with ``+``; each place is visited in their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from clop import augment
from clop.composition import parse_methods, split_names
from clop.errors import UsageError
from clop.layer_settings import LayerSettings
from clop.sample_dropout import SampleDropout
from clop.seeds import numpy_generator
from clop.vision.models import Classifier, DenseInit, DropoutStyle, build, find_network


@dataclass
class Plan:
    """The network that is to be built; methods edit it."""

    network: str
    generator: Generator
    """For layers that draw: the trainer's own, so that a resumed run draws on."""
    dense_init: DenseInit = "pytorch"
    batch_norm: bool = False
    layers: dict[str, list[nn.Module]] = field(default_factory=dict)
    """By slot."""

    @property
    def paper_alpha(self) -> float:
        """The paper's alpha for this network, which its code takes for the rate of channel dropout too."""
        return find_network(self.network).paper_alpha

    @property
    def paper_dropout(self) -> DropoutStyle:
        """The place of dropout that the paper describes for this network."""
        return find_network(self.network).paper_dropout

    @property
    def stages(self) -> tuple[str, ...]:
        """The slots after the convolutions, from the image to the classifier."""
        return find_network(self.network).stages

    def put(self, slot: str, layer: nn.Module) -> None:
        """Add a layer to a slot; a second one follows the first."""
        self.layers.setdefault(slot, []).append(layer)

    def build(self, channels: int, classes: int, image_size: int) -> Classifier:
        return build(
            *(self.network, channels, classes, image_size),
            batch_norm=self.batch_norm,
            dense_init=self.dense_init,
            layers=self.layers,
        )


@dataclass(frozen=True)
class Batch:
    """Images as the network takes them, (N, C, H, W), and their classes, (N,); a mixture has two classes an image."""

    images: Tensor
    labels: Tensor
    others: Tensor | None = None
    """The classes of what was mixed in."""
    weight: float = 1.0
    """Of the first class; the rest is the other's."""

    @property
    def heavier(self) -> Tensor:
        """The class each image has most of."""
        return self.labels if self.others is None or self.weight >= 0.5 else self.others

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy."""
        if self.others is None:
            return F.cross_entropy(logits, self.labels)
        first, second = F.cross_entropy(logits, self.labels), F.cross_entropy(logits, self.others)
        return self.weight * first + (1 - self.weight) * second


@dataclass(frozen=True)
class Method:
    """Changes nothing: the plain network."""

    def configure(self, plan: Plan) -> None:
        """Edit the network, once, before it is built."""

    def chosen(self, plan: Plan) -> Mapping[str, object]:
        """The values of settings that are not given."""
        return {}

    def augment(self, pixels: Tensor, generator: Generator) -> Tensor:
        """Each training batch as it is stored, (N, C, H, W) bytes, or floats in [0, 1] from a method before."""
        return pixels

    def mix(self, batch: Batch, generator: Generator) -> Batch:
        """What the network and the loss see."""
        return batch


@dataclass(frozen=True)
class Clop(LayerSettings, Method):
    """CLOP, local permutations of a feature map (Bertoin and Rachelson, 2022)."""

    slot: str | None = None
    """Stage that the layer follows, such as ``stage2``; the last one if not given."""

    def chosen(self, plan: Plan) -> Mapping[str, object]:
        return {"alpha": plan.paper_alpha, "slot": plan.stages[-1]}

    def configure(self, plan: Plan) -> None:
        slot = plan.stages[-1] if self.slot is None else self.slot
        if slot not in plan.stages:
            raise UsageError(f"clop.slot must be one of {', '.join(plan.stages)} in {plan.network}, got {slot!r}")
        plan.put(slot, self.layer(plan.paper_alpha, plan.generator))


@dataclass(frozen=True)
class Dropout(Method):
    """Dropout, as the paper's text has it or as the authors' code does (Srivastava et al., 2014)."""

    style: DropoutStyle | None = None
    """``dense``: of values after both dense layers, as the paper's text says. ``channel``: of whole channels of the
    last map, between the convolutions and the dense layers, where the appendix has it for the small CNN and the code
    for all. If not given, ``channel`` for the small CNN and ``dense`` for VGGs."""
    p: float | None = None
    """Probability that a value or channel is dropped; if not given, 0.5 for ``dense``, and for ``channel`` that of
    the code, 0.9 for the small CNN and 0.7 for VGGs."""

    def __post_init__(self) -> None:
        if self.p is not None and not 0 <= self.p < 1:
            raise UsageError(f"dropout.p is a probability and must lie in [0, 1), got {self.p}")

    def chosen(self, plan: Plan) -> Mapping[str, object]:
        return {"style": plan.paper_dropout, "p": self._rate(plan)}

    def configure(self, plan: Plan) -> None:
        rate = self._rate(plan) if self.p is None else self.p
        if self._style(plan) == "channel":
            plan.put(plan.stages[-1], SampleDropout(rate, plan.generator, whole_channels=True))
        else:
            for slot in ("dense1", "dense2"):
                plan.put(slot, SampleDropout(rate, plan.generator))

    def _style(self, plan: Plan) -> DropoutStyle:
        return self.style or plan.paper_dropout

    def _rate(self, plan: Plan) -> float:
        """The rate if none is given."""
        return plan.paper_alpha if self._style(plan) == "channel" else 0.5


@dataclass(frozen=True)
class BatchNorm(Method):
    """Batch norm at each convolution (Ioffe and Szegedy, 2015)."""

    def configure(self, plan: Plan) -> None:
        plan.batch_norm = True


@dataclass(frozen=True)
class Mixup(Method):
    """Mixtures of two images and of their labels (Zhang et al., 2018)."""

    beta: float = 0.2
    """Both parameters of the Beta law of the mixing weight, of which there is one for each batch; 0 mixes nothing."""

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise UsageError(f"mixup.beta must be at least 0, got {self.beta}")

    def mix(self, batch: Batch, generator: Generator) -> Batch:
        if self.beta == 0:
            return batch
        weight = float(numpy_generator(generator).beta(self.beta, self.beta))
        partners = torch.randperm(len(batch.labels), generator=generator).to(batch.labels.device)
        mixed = torch.lerp(batch.images[partners], batch.images, weight)
        return Batch(mixed, batch.labels, batch.labels[partners], weight)


# ---- of the input, as in the paper's table of costs ------------------------------------------------------------------


@dataclass(frozen=True)
class Crop(Method):
    """A random window of the image continued beyond its edges."""

    p: float = 1.0
    """Probability that an image is changed."""
    pad: int = 8
    """Width of the continuation on each side, in 64ths of a side."""

    def __post_init__(self) -> None:
        augment.Crop(p=self.p)
        if self.pad < 0:
            raise UsageError(f"crop.pad must be at least 0, got {self.pad}")

    def augment(self, pixels: Tensor, generator: Generator) -> Tensor:
        if self.p == 0 or self.pad == 0:
            return pixels
        return augment.Crop(p=self.p, pad=self.pad)(pixels, generator=generator)


@dataclass(frozen=True)
class Rotation(Method):
    """A turn by a random small angle."""

    p: float = 1.0
    """Probability that an image is changed."""
    degrees: float = 15.0
    """Largest angle in either direction; all up to it are equally likely."""

    def __post_init__(self) -> None:
        augment.Rotation(p=self.p)

    def augment(self, pixels: Tensor, generator: Generator) -> Tensor:
        if self.p == 0 or self.degrees == 0:
            return pixels
        return augment.Rotation(p=self.p, degrees=self.degrees)(pixels, generator=generator)


@dataclass(frozen=True)
class Cutout(Method):
    """A black box of random size (DeVries and Taylor, 2017)."""

    p: float = 1.0
    """Probability that an image is changed."""

    def __post_init__(self) -> None:
        augment.Cutout(p=self.p)

    def augment(self, pixels: Tensor, generator: Generator) -> Tensor:
        return pixels if self.p == 0 else augment.Cutout(p=self.p)(pixels, generator=generator)


@dataclass(frozen=True)
class RandomConv(Method):
    """A random convolution, which changes colour and texture (Lee et al., 2020)."""

    p: float = 1.0
    """Probability that an image is changed."""
    shared: bool = False
    """One filter for the whole batch instead of one for each image."""

    def __post_init__(self) -> None:
        augment.RandomConv(p=self.p)

    def augment(self, pixels: Tensor, generator: Generator) -> Tensor:
        return pixels if self.p == 0 else augment.RandomConv(p=self.p, shared=self.shared)(pixels, generator=generator)


METHODS: dict[str, type[Method]] = {
    "batch_norm": BatchNorm,
    "clop": Clop,
    "crop": Crop,
    "cutout": Cutout,
    "dropout": Dropout,
    "mixup": Mixup,
    "random_conv": RandomConv,
    "rotation": Rotation,
}


def parse(text: str) -> dict[str, Method]:
    """``dropout+clop(alpha=0.3)`` as settings by name; ``plain`` stands for no method."""
    return parse_methods(text, METHODS, "plain")


def names(text: str) -> list[str]:
    """``dropout+clop`` as a list; ``plain`` stands for no method."""
    return split_names(text, METHODS, "plain")
