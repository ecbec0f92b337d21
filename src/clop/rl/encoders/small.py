"""A network that a CPU can afford: ours."""

from torch import Tensor, nn

from clop.kernels.layers import watched
from clop.kernels.pool import fits
from clop.kernels.strided import three_convolutions
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

    def _through(self, x: Tensor, behind: str | None, last: str | None) -> Tensor:
        if behind is None and last not in ("conv1", "conv2") and fits(x):
            convolved = self._convolved(x)
            if convolved is not None:
                seen: Tensor = self.get_submodule("conv3_out")(convolved)
                return seen if last == "conv3" else super()._through(seen, "conv3", last)
        return super()._through(x, behind, last)

    def _convolved(self, x: Tensor) -> Tensor | None:
        """What the third convolution returns, all three in one pass; None where methods have put layers between."""
        stages = [self.get_submodule(name) for name in ("conv1", "conv1_out", "conv2", "conv2_out", "conv3")]
        layers = [layer for stage in stages for layer in (stage if type(stage) is nn.Sequential else [stage])]
        kinds = [type(layer) for layer in layers]
        if kinds != [nn.Conv2d, ReLU, nn.Identity, nn.Conv2d, ReLU, nn.Identity, nn.Conv2d] or watched(
            *stages, *layers
        ):
            return None
        return three_convolutions(layers[::3], x)
