"""Batch normalisation between the convolutions (Ioffe and Szegedy, 2015; Cobbe et al., 2019)."""

from dataclasses import dataclass, replace
from typing import Literal

from clop.rl.methods.base import Method, Settings
from clop.rl.settings import Mode


@dataclass(frozen=True)
class BatchNorm:
    """Batch norm after the convolutions, with running statistics at evaluation (Ioffe and Szegedy, 2015)."""

    where: Literal["block", "all"] = "all"
    """``all``: after each convolution (Cobbe et al.). ``block``: after the first of each stage (the CLOP
    authors' code)."""
    rollout_mode: Mode = "train"
    """Whether acting uses the statistics of the frames at hand (``train``) or the running ones."""

    statistics: Literal["running", "batch"] = "running"
    """What an evaluation normalises with: running statistics, or those of the frames at hand (the CoinRun line), which
    wants many games at once. With ``batch`` there are no running ones, and acting has those of the frames too."""

    def build(self) -> "BatchNormMethod":
        return BatchNormMethod(self)


class BatchNormMethod(Method):
    def __init__(self, config: BatchNorm) -> None:
        self.config = config

    def configure(self, settings: Settings) -> Settings:
        network = replace(settings.network, norm=self.config.where, norm_statistics=self.config.statistics)
        return replace(settings, network=network).act_in(self.config.rollout_mode)

    def notes(self) -> dict[str, str | float]:
        return {"statistics": self.config.statistics} if self.config.statistics == "batch" else {}
