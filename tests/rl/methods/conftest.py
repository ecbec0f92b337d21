"""What tests of single methods share."""

import io

import pytest
import torch

from clop.rl.methods.base import Compose


@pytest.fixture
def resumed_as_straight(make_learner, noise_games, assert_same_state):
    """Train, save, go on; load into another learner, go on; both must end in the same state, bit for bit."""

    def check(make_method, iterations=2, before=2, **settings):
        settings = {"num_envs": 2, "num_steps": 4, "num_minibatches": 2, "total_timesteps": 80} | settings
        straight = make_learner(Compose({"method": make_method()}), noise_games(settings["num_envs"]), **settings)
        for _ in range(before):
            straight.iterate()
        state = on_disk(straight.state())
        expected = [straight.iterate()[0] for _ in range(iterations)]

        games = noise_games(settings["num_envs"])
        resumed = make_learner(Compose({"method": make_method()}), games, seed=99, **settings)
        resumed.load(state)
        assert [resumed.iterate()[0] for _ in range(iterations)] == expected
        assert_same_state(on_disk(straight.state()), on_disk(resumed.state()))
        return straight, resumed

    return check


def on_disk(state):
    """A state as a file keeps it, read without running code."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
