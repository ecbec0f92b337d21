"""PPO agents on procedurally generated games, with every method as a small plug-in.

>>> from clop.rl import TrainConfig, load_agent, run
>>> summary = run(TrainConfig.preset("quick", game="starpilot", method="clop"), "runs/a")  # doctest: +SKIP
>>> agent = load_agent("runs/a")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clop.experiments.agents import load_agent, run
    from clop.rl.config import TrainConfig
    from clop.rl.envs.gym_vector import make_vec

__all__ = ["TrainConfig", "load_agent", "make_vec", "run"]

_HOMES = {
    "TrainConfig": "clop.rl.config",
    "load_agent": "clop.experiments.agents",
    "make_vec": "clop.rl.envs.gym_vector",
    "run": "clop.experiments.agents",
}


def __getattr__(name: str) -> Any:
    """The public names, loaded when they are asked for: the score ranges of games need no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
