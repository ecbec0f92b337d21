"""Networks whose stages are named places for a layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """The paper's network for small images: three convolutions and three dense layers.

    The third convolution has padding 1 as in the authors' code (8×8 map for 32×32 images); their text says 2.

    Args:
        channels: Of the images.
        classes: Number of outputs.
        image_size: Height and width of the images; a multiple of 4.
        batch_norm: Whether a batch norm follows each convolution's ReLU.
        layers: Layers to put after a place: ``stage1``, ``stage2``, ``stage3`` (feature maps, the last is flattened
            next), ``dense1``, ``dense2`` (vectors).

    Shape:
        - input: (N, channels, image_size, image_size); output: (N, classes) logits
    """

    places = ("stage1", "stage2", "stage3", "dense1", "dense2")
    deepest = "stage3"

    def __init__(
        self,
        channels: int,
        classes: int,
        image_size: int,
        *,
        batch_norm: bool = False,
        layers: Mapping[str, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        layers = layers or {}
        assert set(layers) <= set(self.places), f"no such place: {set(layers) - set(self.places)}"

        def convolution(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
            norm = [nn.BatchNorm2d(outputs)] if batch_norm else []
            return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU(), *norm]

        self.stage1 = nn.Sequential(*convolution(channels, 32, 5), nn.MaxPool2d(2))
        self.stage2 = nn.Sequential(*convolution(32, 64, 5), nn.MaxPool2d(2))
        self.stage3 = nn.Sequential(*convolution(64, 128, 3))
        self.dense1 = nn.Sequential(nn.Linear(128 * (image_size // 4) ** 2, 512), nn.ReLU())
        self.dense2 = nn.Sequential(nn.Linear(512, 100), nn.ReLU())
        self.head = nn.Linear(100, classes)
        for place, layer in layers.items():
            self.get_submodule(place).append(layer)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.head(self.dense2(self.dense1(torch.flatten(x, 1))))
