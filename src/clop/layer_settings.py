"""The settings of a CLOP layer, as the methods of agents and of classifiers share them."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Generator

from clop.errors import UsageError
from clop.layer import CLOP

Variant = Literal["paper", "raster", "clamp"]


@dataclass(frozen=True)
class LayerSettings:
    """How a CLOP layer permutes. A method adds the slot of the network that the layer goes to."""

    group: ClassVar[str] = "clop"
    """The name that errors give the settings; a method of another name sets its own."""

    alpha: float | None = None
    """Probability of a swap; the paper's value for the game or the network if not given."""
    variant: Variant = "paper"
    """``paper`` is the paper's rule, ``raster`` that of the authors' code."""
    local: bool = True
    """Whether positions swap with direct neighbours, and not with any other (the paper's ablation)."""
    channel_consistent: bool = True
    """Whether all channels are permuted alike, and not each in its own way (the paper's ablation)."""
    per_sample: bool = False
    """Whether each sample has a permutation of its own, and not all samples of a pass the same."""

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise UsageError(f"{self.group}.alpha is a probability and must lie in [0, 1], got {self.alpha}")

    def layer(self, alpha_default: float, generator: Generator | None = None) -> CLOP:
        """A new layer; ``alpha_default`` is its alpha if none was given."""
        return CLOP(
            alpha_default if self.alpha is None else self.alpha,
            variant=self.variant,
            local=self.local,
            channel_consistent=self.channel_consistent,
            per_sample=self.per_sample,
            generator=generator,
        )
