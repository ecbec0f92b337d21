"""PPO agents on procedurally generated games, with every method as a small plug-in.

>>> from clop.rl import TrainConfig, load_agent, run
>>> summary = run(TrainConfig.preset("quick", game="starpilot", method="clop"), "runs/a")  # doctest: +SKIP
>>> agent = load_agent("runs/a")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from clop.lazy import lazy

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

__getattr__ = lazy(__name__, _HOMES)
