"""A learner that was saved goes on as if nothing had happened."""

import io

import pytest
import torch

from clop.rl.envs.backends import installed_backends
from clop.rl.envs.levels import LevelSet
from clop.rl.methods import compose
from clop.rl.methods.base import Compose, Method
from clop.rl.methods.batch_norm import BatchNorm
from clop.rl.methods.clop import Clop
from clop.rl.methods.daac import Daac
from clop.rl.methods.dropout import Dropout
from clop.rl.settings import NetworkConfig

AUTHORS = NetworkConfig(topology="split", norm="block")


@pytest.fixture
def assert_same_learners(assert_same_state):
    """Weights, buffers, optimisers, games and generators, bit for bit."""

    def check(one, other):
        left, right = io.BytesIO(), io.BytesIO()
        torch.save(one.state(), left)
        torch.save(other.state(), right)
        assert_same_state(torch.load(io.BytesIO(left.getvalue())), torch.load(io.BytesIO(right.getvalue())))

    return check


class Counting(Method):
    """Has something to remember that decides what is learnt."""

    def __init__(self):
        self.count = 0

    def begin_iteration(self, ctx):
        self.count += 1

    def transform(self, batch, ctx):
        noise = torch.rand(len(batch), generator=ctx.generator)
        return batch.replace(returns=batch.returns + self.count * noise)

    def state(self):
        return {"count": self.count}

    def load(self, state):
        self.count = state["count"]


def saved(learner):
    """A state as a file keeps it, read without running code."""
    file = io.BytesIO()
    torch.save(learner.state(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    ("methods", "settings"),
    [
        (lambda: compose({}), {}),
        (lambda: compose({}), {"adam": "tf"}),
        (lambda: compose({"clop": Clop(alpha=0.5)}), {"network": AUTHORS, "schedule": "linear"}),
        (lambda: compose({"dropout": Dropout(style="coinrun"), "batch_norm": BatchNorm("block")}), {}),
        (lambda: Compose({"counting": Counting()}), {"advantage_norm": "batch"}),
        (lambda: compose({"daac": Daac(value_every=2)}), {}),
    ],
    ids=["ppo", "tf", "clop", "dropout+batch_norm", "counting", "daac"],
)
def test_a_resumed_learner_goes_on_bit_for_bit(make_learner, noise_games, assert_same_learners, methods, settings):
    settings = {"total_timesteps": 80, "num_minibatches": 2} | settings
    straight = make_learner(methods(), noise_games(4), **settings)
    straight.iterate()
    state = saved(straight)
    expected = [straight.iterate()[0] for _ in range(2)]

    resumed = make_learner(methods(), noise_games(4), seed=99, **settings)
    resumed.games.seed = straight.games.seed
    resumed.load(state)
    assert (resumed.iteration, resumed.env_steps) == (1, 16)
    assert [resumed.iterate()[0] for _ in range(2)] == expected
    assert_same_learners(straight, resumed)


@pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="procgen-mirror is not installed")
def test_a_learner_resumes_inside_real_games(make_learner, assert_same_learners):
    settings = {"num_envs": 2, "num_steps": 8}
    with LevelSet("leaper", num_levels=5).open(2, seed=0) as games:
        straight = make_learner(compose({"clop": Clop()}), games, **settings)
        straight.iterate()
        state = saved(straight)
        straight.iterate()
        with LevelSet("leaper", num_levels=5).open(2, seed=7) as other:
            resumed = make_learner(compose({"clop": Clop()}), other, seed=5, **settings)
            resumed.load(state)
            resumed.iterate()
            assert_same_learners(straight, resumed)


def test_a_learner_with_a_part_of_the_state_missing_would_differ(make_learner, noise_games, vector):
    """The control: each generator, the normaliser and the optimiser matter."""
    straight = make_learner(compose({"dropout": Dropout()}), noise_games(4), num_minibatches=2)
    straight.iterate()
    for part in ("method_rng", "action_rng", "shuffle_rng", "rewards", "optimisers"):
        resumed = make_learner(compose({"dropout": Dropout()}), noise_games(4), seed=99, num_minibatches=2)
        fresh, state = saved(resumed), saved(straight)
        if part in state:
            state[part] = fresh[part]
        else:
            state["generators"][part] = fresh["generators"][part]
        whole = make_learner(compose({"dropout": Dropout()}), noise_games(4), num_minibatches=2)
        whole.load(saved(straight))
        resumed.load(state)
        resumed.iterate(), whole.iterate()
        assert not torch.equal(vector(resumed.model.parameters()), vector(whole.model.parameters())), part
