"""CLOP, the channel-consistent local permutation layer, and the experiments around it."""

from typing import TYPE_CHECKING

from clop.lazy import lazy

if TYPE_CHECKING:
    from clop import functional as functional
    from clop.experiments.agents import load_agent
    from clop.functional import clop
    from clop.insertion import insert
    from clop.layer import CLOP

__version__ = "0.1.0"
__all__ = ["CLOP", "clop", "insert", "load_agent"]

_HOMES = {
    "CLOP": "clop.layer",
    "clop": "clop.functional",
    "functional": "clop.functional",
    "insert": "clop.insertion",
    "load_agent": "clop.experiments.agents",
}

__getattr__ = lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
