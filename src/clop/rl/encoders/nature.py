"""The network of DQN (Mnih et al., 2015)."""

from torch import nn

from clop.rl.encoders.base import Builder, Encoder, ReLU, Shape, Stage


class Nature(Encoder):
    """Three convolutions, padded so that 64×64 frames give an 8×8 map."""

    stages = {"conv1": Stage(32, 8, 4), "conv2": Stage(64, 4, 2), "conv3": Stage(64, 3, 1)}  # noqa: RUF012

    def stage(self, name: str, build: Builder, before: Shape, after: Shape) -> nn.Module:
        _, kernel, stride = self.stages[name]
        return nn.Sequential(build.convolution(f"{name}.conv", before[0], after, kernel, stride), ReLU())
