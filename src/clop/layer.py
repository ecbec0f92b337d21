"""CLOP as a layer."""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from clop import functional
from clop.kernels import operators


class CLOP(nn.Module):
    """Local permutation of feature maps, see :func:`clop.functional.clop`. The identity in evaluation mode.

    It has no parameters and no buffers. Put it after the deepest feature map that is flattened, and nowhere right
    before a global average pool: a mean does not see a permutation.

    Args:
        alpha: Probability that a visited position swaps, in [0, 1]; may be set anew between steps.
        variant: ``"paper"``, ``"raster"`` or ``"clamp"``.
        local: If false, the partner of a swap is any other position.
        channel_consistent: If false, each channel has its own permutation.
        per_sample: If true, each sample has its own permutation.
        generator: Source of randomness, on the CPU; torch's default CPU generator if not given.

    Shape:
        - input and output: :math:`(N, C, H, W)`, or :math:`(N, C, L)` or :math:`(N, C, D, H, W)`

    Example:
        >>> features = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), CLOP(0.5), nn.Flatten())
    """

    def __init__(
        self,
        alpha: float,
        *,
        variant: str = "paper",
        local: bool = True,
        channel_consistent: bool = True,
        per_sample: bool = False,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        functional.check_variant(variant)
        functional.check_generator(generator)
        self.alpha = alpha
        self.variant = variant
        self.local = local
        self.channel_consistent = channel_consistent
        self.per_sample = per_sample
        self.generator = generator
        self._key = operators.register(self)

    @property
    def alpha(self) -> float:
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self._alpha = functional.check_alpha(alpha)
        self._swaps = self._alpha > 0  # read instead of alpha where a compiler would take its value for a constant

    def forward(self, x: Tensor) -> Tensor:
        # functional.clop, without the check that setting alpha has made.
        functional.check_variant(self.variant)
        functional.check_generator(self.generator)
        functional.check_maps(x)
        if not (self.training and self._swaps):
            return x
        shape = functional.permutations_shape(x, self.channel_consistent, self.per_sample)
        if not operators.traced():
            return operators.swap(x, *shape, self._alpha, self.variant, self.local, self.generator)
        # By an operator that looks alpha and generator up, so that neither is compiled in.
        permutations = torch.ops.clop.draw_for(self._key, x.shape[2:], *shape, device="cpu")
        return operators.permute(x, permutations)

    def extra_repr(self) -> str:
        settings = [f"alpha={self.alpha:g}"]
        if self.variant != "paper":
            settings.append(f"variant={self.variant!r}")
        if not self.local:
            settings.append("local=False")
        if not self.channel_consistent:
            settings.append("channel_consistent=False")
        if self.per_sample:
            settings.append("per_sample=True")
        return ", ".join(settings)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._key = operators.register(self)  # a copy is a layer of its own
