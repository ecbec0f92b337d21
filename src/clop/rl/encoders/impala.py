"""The network of the Procgen agents (Espeholt et al., 2018; Cobbe et al., 2020)."""

from torch import Tensor, nn

from clop.kernels import stem, winograd
from clop.kernels.pool import MaxPool
from clop.rl.encoders.base import Builder, Encoder, ReLU, Residual, Shape, Stage


class Impala(Encoder):
    """Three blocks of a convolution, a pool of stride 2 and two residual pairs.

    The residual adds its untouched input, where some reference code adds a rectified one (``skip_relu``). The last slot
    sees the map after the final ReLU: permuted before or after it, that is the same.
    """

    stages = {"block1": Stage(16, 3, 2), "block2": Stage(32, 3, 2), "block3": Stage(32, 3, 2)}  # noqa: RUF012

    def stage(self, name: str, build: Builder, before: Shape, after: Shape) -> nn.Module:
        layers = [
            build.convolution(f"{name}.conv", before[0], (after[0], *before[1:])),
            MaxPool(),
            Residual(f"{name}.residual1", build, after),
            Residual(f"{name}.residual2", build, after),
        ]
        return Block(*layers, *([ReLU()] if name == "block3" else []))


class Block(nn.Sequential):
    """A convolution, a pool and what follows them."""

    def forward(self, x: Tensor) -> Tensor:
        layers = list(self)
        if len(layers) > 1:  # not so in a slice of it
            convolution, pooling, *layers = layers
            pooled = winograd.convolve_and_pool(convolution, pooling, x)
            x = stem.convolve_and_pool(convolution, pooling, x) if pooled is None else pooled
        for layer in layers:
            x = layer(x)
        return x
