"""A network that a CPU can afford: ours."""

from torch import nn

from clop.rl.encoders.base import Builder, Encoder, ReLU, Residual, Shape, Stage


class Small(Encoder):
    """Three 3×3 convolutions of stride 2 and one residual pair; of 64×64 frames the same 32×8×8 map as IMPALA."""

    stages = {  # noqa: RUF012
        "conv1": Stage(16, 3, 2),
        "conv2": Stage(32, 3, 2),
        "conv3": Stage(32, 3, 2),
        "residual": Stage(32, 1, 1),
    }

    def stage(self, name: str, build: Builder, before: Shape, after: Shape) -> nn.Module:
        if name == "residual":
            return nn.Sequential(Residual(name, build, after), ReLU())
        convolution = build.convolution(f"{name}.conv", before[0], after, stride=2)
        # The residual pair adds what it reads, so the third is not rectified.
        return convolution if name == "conv3" else nn.Sequential(convolution, ReLU())
