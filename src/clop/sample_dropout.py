"""Dropout whose randomness is handed in, so that a resumed run draws on; torch's own has the global generator only."""

import torch
from torch import Generator, Tensor, nn


class SampleDropout(nn.Module):
    """Inverted dropout, anew for each sample: of single values, or of whole channels of maps.

    Shape:
        - input and output: (N, C, …)
    """

    def __init__(self, p: float, generator: Generator, *, whole_channels: bool = False) -> None:
        super().__init__()
        self.p, self.generator, self.whole_channels = p, generator, whole_channels

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.whole_channels else x.shape
        kept = torch.empty(shape).bernoulli_(1 - self.p, generator=self.generator).mul_(1 / (1 - self.p))
        return x * kept.to(x.device, non_blocking=True)

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
