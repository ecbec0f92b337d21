"""The paper's classifiers. Their stages are slots for layers: ``stage1`` …, ``dense1`` and ``dense2``.

Where nothing lies between ReLU and pooling, pooling comes first: outputs and gradients are the same bit for bit, and
ReLU has a quarter of the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from clop.errors import UsageError, unknown_name
from clop.kernels.dense import Linear

Layers = Mapping[str, Sequence[nn.Module]]
"""The layers that each slot gets, in this order."""

DropoutStyle = Literal["dense", "channel"]
"""What dropout drops: values after both dense layers, or whole channels of the last map."""

DenseInit = Literal["pytorch", "torchvision"]
"""Initial weights of the dense layers: those of ``nn.Linear``, or those of torchvision's VGGs."""


class Classifier(nn.Module):
    """Stages of convolutions, two dense layers and a head; any size of images.

    The first dense layer reads the flattened map of the last stage, so its width follows from the size of the images.

    Args:
        stages: Parts that shrink or deepen the map, in order.
        features: Channels of the last map.
        shrink: How many times smaller the last map is than the image.
        dense: Widths of the two dense layers.
        classes: Number of outputs.
        image_size: Height and width of the images.
        layers: By slot.

    Shape:
        - input: (N, channels, image_size, image_size); output: (N, classes) logits
    """

    def __init__(
        self,
        stages: Sequence[nn.Sequential],
        features: int,
        shrink: int,
        dense: tuple[int, int],
        classes: int,
        image_size: int,
        layers: Layers,
    ) -> None:
        super().__init__()
        assert image_size >= shrink
        self.stage_names = stage_names(len(stages))
        for name, stage in zip(self.stage_names, stages, strict=True):
            self.add_module(name, stage)
        first, second = dense
        self.dense1 = nn.Sequential(Linear(features * (image_size // shrink) ** 2, first), _relu())
        self.dense2 = nn.Sequential(Linear(first, second), _relu())
        self.head = nn.Linear(second, classes)
        slots = (*self.stage_names, "dense1", "dense2")
        for slot, chain in layers.items():
            assert slot in slots, f"no such slot: {slot}"
            for layer in chain:
                self.get_submodule(slot).append(layer)  # type: ignore[operator]

    def features(self, x: Tensor, stage: str | None = None) -> Tensor:
        """The map behind a stage; the last one if not given."""
        last = len(self.stage_names) if stage is None else self.stage_names.index(stage) + 1
        for name in self.stage_names[:last]:
            x = self.get_submodule(name)(x)
        return x

    def classify(self, x: Tensor, stage: str) -> Tensor:
        """(N, classes) Logits from the map behind a stage."""
        for name in self.stage_names[self.stage_names.index(stage) + 1 :]:
            x = self.get_submodule(name)(x)
        return self.head(self.dense2(self.dense1(torch.flatten(x, 1))))

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x), self.stage_names[-1])


class SmallCNN(Classifier):
    """The paper's network for small images: three convolutions and three dense layers.

    The third convolution has padding 1 as in the authors' code (8×8 map for 32×32 images); their text says 2. Batch
    norm follows the ReLU, as in their code.
    """

    def __init__(
        self, channels: int, classes: int, image_size: int, *, batch_norm: bool = False, layers: Layers | None = None
    ) -> None:
        def stage(inputs: int, outputs: int, kernel: int, *pool: nn.Module) -> nn.Sequential:
            after = [_relu(), nn.BatchNorm2d(outputs), *pool] if batch_norm else [*pool, _relu()]
            return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), *after)

        stages = [
            stage(channels, 32, 5, nn.MaxPool2d(2)),
            stage(32, 64, 5, nn.MaxPool2d(2)),
            stage(64, 128, 3),
        ]
        super().__init__(stages, 128, 4, (512, 100), classes, image_size, layers or {})


class VGG(Classifier):
    """Simonyan and Zisserman's networks (2015). Convolutions have torchvision's initial weights; there is no dropout.

    Each stage is some 3×3 convolutions of one width and a pooling. Batch norm comes between convolution and ReLU.

    Args:
        widths: Of the convolutions, for each stage.
        channels: Of the images.
        classes: Number of outputs.
        image_size: Height and width of the images.
        batch_norm: Whether there is batch norm.
        layers: By slot.
    """

    def __init__(
        self,
        widths: Sequence[Sequence[int]],
        channels: int,
        classes: int,
        image_size: int,
        *,
        batch_norm: bool = False,
        layers: Layers | None = None,
    ) -> None:
        stages = []
        for stage in widths:
            parts: list[nn.Module] = []
            for width in stage:
                norm = [nn.BatchNorm2d(width)] if batch_norm else []
                parts += [nn.Conv2d(channels, width, 3, padding=1), *norm, _relu()]
                channels = width
            stages.append(nn.Sequential(*parts[:-1], nn.MaxPool2d(2), parts[-1]))
        super().__init__(stages, channels, 2 ** len(widths), (4096, 4096), classes, image_size, layers or {})
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                assert module.bias is not None
                nn.init.zeros_(module.bias)


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def stage_names(count: int) -> tuple[str, ...]:
    """``stage1``, ``stage2`` and so on."""
    return tuple(f"stage{number + 1}" for number in range(count))


class Builder(Protocol):
    """Makes a network with new weights."""

    def __call__(
        self, channels: int, classes: int, image_size: int, *, batch_norm: bool = False, layers: Layers | None = None
    ) -> Classifier: ...


@dataclass(frozen=True)
class Network:
    """A network that has a name: its class, and what has to be known of it before one is built."""

    build: Builder
    stages: tuple[str, ...]
    """The slots after its convolutions, from the image to the classifier."""
    smallest_image: int
    """Pixels of a side; of a smaller image pooling would leave nothing."""
    paper_alpha: float
    """The paper's alpha, which its code takes for the rate of channel dropout too."""
    paper_dropout: DropoutStyle
    """The place that the paper describes: its appendix, for the small CNN, or its text alone."""
    part: int
    """Batches in a few seconds of training, between which a run can stop."""


def _vgg(widths: Sequence[Sequence[int]]) -> Network:
    """Each stage halves the map."""
    count = len(widths)
    return Network(partial(VGG, widths), stage_names(count), 2**count, paper_alpha=0.7, paper_dropout="dense", part=10)


_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))

NETWORKS: dict[str, Network] = {
    "small_cnn": Network(SmallCNN, stage_names(3), 4, paper_alpha=0.9, paper_dropout="channel", part=50),
    "vgg9": _vgg(_VGG11[:4]),  # VGG11 without its last stage, with batch norm too; the authors cut the two differently
    "vgg11": _vgg(_VGG11),
    "vgg16": _vgg(_VGG16),
}


def find_network(name: str) -> Network:
    if name not in NETWORKS:
        raise UsageError(unknown_name("network", name, NETWORKS))
    return NETWORKS[name]


def check_image_size(name: str, image_size: int) -> None:
    """A :class:`UsageError` unless the last map of a network has a pixel at least."""
    smallest = find_network(name).smallest_image
    if image_size < smallest:
        raise UsageError(f"{name} halves images until nothing is left below {smallest} pixels, got {image_size}")


def build(
    name: str,
    channels: int,
    classes: int,
    image_size: int,
    *,
    batch_norm: bool = False,
    dense_init: DenseInit = "pytorch",
    layers: Layers | None = None,
) -> Classifier:
    """A network by its name, with new weights from torch's default generator."""
    check_image_size(name, image_size)
    model = find_network(name).build(channels, classes, image_size, batch_norm=batch_norm, layers=layers)
    if dense_init == "torchvision":
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)
    return model
