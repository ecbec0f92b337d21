"""CLOP, the channel-consistent local permutation layer, and the experiments around it."""

import importlib
from typing import TYPE_CHECKING, Any

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
    "insert": "clop.insertion",
    "load_agent": "clop.experiments.agents",
}


def __getattr__(name: str) -> Any:
    """The public names, loaded when they are asked for: torch takes seconds, and ``clop --help`` does without."""
    if name == "functional":
        return importlib.import_module("clop.functional")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "functional"})
