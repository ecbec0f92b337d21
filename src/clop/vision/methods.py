"""What a network may be given against overfitting: the methods of the paper's classification tables.

A method is a frozen config. It says which layers go where in the network; the network knows no method.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from clop.errors import UsageError, one_of
from clop.layer import CLOP


@dataclass(frozen=True)
class Method:
    """Changes nothing: the plain network."""

    batch_norm: ClassVar[bool] = False

    def layers(self, deepest: str) -> Mapping[str, nn.Module]:
        """Layers by place; ``deepest`` is the place of the last feature map."""
        return {}


@dataclass(frozen=True)
class Dropout(Method):
    """Dropout in the dense part, as the paper's text says."""

    p: float = 0.5

    def layers(self, deepest: str) -> Mapping[str, nn.Module]:
        return {"dense1": nn.Dropout(self.p), "dense2": nn.Dropout(self.p)}


@dataclass(frozen=True)
class BatchNorm(Method):
    """Batch norm after each convolution."""

    batch_norm: ClassVar[bool] = True


@dataclass(frozen=True)
class Clop(Method):
    """CLOP after the deepest feature map."""

    alpha: float = 0.6

    def layers(self, deepest: str) -> Mapping[str, nn.Module]:
        return {deepest: CLOP(self.alpha)}


METHODS: dict[str, type[Method]] = {"plain": Method, "dropout": Dropout, "batch_norm": BatchNorm, "clop": Clop}


def named(name: str) -> Method:
    """A method with its defaults."""
    if name not in METHODS:
        raise UsageError(one_of("method", name, METHODS))
    return METHODS[name]()
