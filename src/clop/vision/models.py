"""The paper's classifiers. Their stages are named places for a layer: ``stage1`` …, ``dense1`` and ``dense2``.

Where nothing lies between ReLU and pooling, pooling comes first: outputs and gradients are the same bit for bit, and
ReLU has a quarter of the work.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from clop.errors import UsageError, unknown_name

Layers = Mapping[str, Sequence[nn.Module]]
"""Layers to put after a place, in this order."""


class Classifier(nn.Module):
    """Stages of convolutions, two dense layers and a head; any size of images.

    The first dense layer reads the flattened map of the last stage, so its width follows from the size of the images.

    Args:
        stages: By which the map shrinks or deepens, in order.
        features: Channels of the last map.
        shrink: How many times smaller the last map is than the image.
        dense: Widths of the two dense layers.
        classes: Number of outputs.
        image_size: Height and width of the images.
        layers: What follows a place.

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
        self.stage_names = tuple(f"stage{number + 1}" for number in range(len(stages)))
        for name, stage in zip(self.stage_names, stages, strict=True):
            self.add_module(name, stage)
        first, second = dense
        self.dense1 = nn.Sequential(nn.Linear(features * (image_size // shrink) ** 2, first), _relu())
        self.dense2 = nn.Sequential(nn.Linear(first, second), _relu())
        self.head = nn.Linear(second, classes)
        places = (*self.stage_names, "dense1", "dense2")
        for place, chain in layers.items():
            assert place in places, f"no such place: {place}"
            for layer in chain:
                self.get_submodule(place).append(layer)  # type: ignore[operator]

    def features(self, x: Tensor) -> Tensor:
        """The map of the last stage."""
        for name in self.stage_names:
            x = self.get_submodule(name)(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dense2(self.dense1(torch.flatten(self.features(x), 1))))


class SmallCNN(Classifier):
    """The paper's network for small images: three convolutions and three dense layers.

    The third convolution has padding 1 as in the authors' code (8×8 map for 32×32 images); their text says 2. Batch
    norm follows the ReLU, as in their code.
    """

    num_stages = 3

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
    """Simonyan and Zisserman's networks (2015) with torchvision's initial weights, and no dropout of their own.

    Each stage is some 3×3 convolutions of one width and a pooling. Batch norm comes between convolution and ReLU.

    Args:
        widths: Of the convolutions, for each stage.
        channels: Of the images.
        classes: Number of outputs.
        image_size: Height and width of the images.
        batch_norm: Whether there is batch norm.
        layers: What follows a place.
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
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
            if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
                nn.init.zeros_(module.bias)


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_VGGS = {"vgg9": _VGG11[:4], "vgg11": _VGG11, "vgg16": _VGG16}
"""VGG9 is VGG11 without its last stage, with batch norm too; the authors cut the two at different layers."""

NETWORKS: dict[str, int] = {"small_cnn": SmallCNN.num_stages} | {name: len(widths) for name, widths in _VGGS.items()}
"""The networks by name, and the number of their stages."""


def num_stages(name: str) -> int:
    if name not in NETWORKS:
        raise UsageError(unknown_name("network", name, NETWORKS))
    return NETWORKS[name]


def check_image_size(name: str, image_size: int) -> None:
    """Whether the last map of a network has a pixel at least."""
    smallest = 4 if name == "small_cnn" else 2 ** num_stages(name)
    if image_size < smallest:
        raise UsageError(f"{name} halves images until nothing is left below {smallest} pixels, got {image_size}")


def build(
    name: str,
    channels: int,
    classes: int,
    image_size: int,
    *,
    batch_norm: bool = False,
    layers: Layers | None = None,
) -> Classifier:
    """A network by its name, with new weights from torch's default generator."""
    num_stages(name)
    check_image_size(name, image_size)
    if name == "small_cnn":
        return SmallCNN(channels, classes, image_size, batch_norm=batch_norm, layers=layers)
    return VGG(_VGGS[name], channels, classes, image_size, batch_norm=batch_norm, layers=layers)
