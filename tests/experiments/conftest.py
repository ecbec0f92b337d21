"""Two agents that have hardly learnt anything, for tests of what is done with trained ones."""

import pytest

from clop.experiments import agents
from clop.rl.config import TrainConfig

TINY = {
    "ppo": {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "update_epochs": 1},
    "network": {"encoder": "small"},
    "total_timesteps": 32,
    "eval_episodes": 1,
    "test_every": 0,
}


@pytest.fixture(scope="session")
def tiny():
    """Settings of a run of one iteration."""
    return TINY


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory):
    """The folders of clop and ppo on bigfish; evaluation, which takes the longest, is left out."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents, "summarise", lambda *_: None)
        for method in ("ppo", "clop"):
            agents.run(TrainConfig.preset("quick", "bigfish", method, **TINY), folder / method, "cpu")
    return [folder / "clop", folder / "ppo"]
