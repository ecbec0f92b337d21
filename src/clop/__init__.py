"""CLOP, the channel-consistent local permutation layer, and the experiments around it."""

from typing import TYPE_CHECKING, Any

from clop.functional import clop
from clop.insert import insert
from clop.layer import CLOP

if TYPE_CHECKING:
    from clop.experiments.agents import load_agent

__version__ = "0.1.0"
__all__ = ["CLOP", "clop", "insert", "load_agent"]


def __getattr__(name: str) -> Any:
    """``load_agent``, imported when it is asked for: the layer needs nothing of the agents."""
    if name != "load_agent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clop.experiments.agents import load_agent

    return load_agent
