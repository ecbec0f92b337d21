"""The learner solves a small task, and one with a mistake in it does not."""

import numpy as np
import pytest
import torch

from clop.rl import rollout
from clop.rl.envs.spec import Episodes, Frames, Step
from clop.rl.methods import compose
from clop.rl.methods.clop import Clop
from clop.rl.settings import NetworkConfig


class StripeGames:
    """A stripe tells which third of the actions is right; the reward comes a step later, shown by the screen's colour.

    Rollouts of two steps begin with that later step, so a choice is always the last thing in its rollout, and all
    that tells its worth is the critic's value of the coloured screen. Always right is worth 1, chance a third.
    """

    def __init__(self, num_envs, seed):
        self.num_envs, self.draw = num_envs, np.random.default_rng(seed)
        self.right, self.later = self.draw.random(num_envs) < 1 / 3, True
        self.stripe = np.zeros(num_envs, int)

    def observe(self, out=None):
        out = np.empty((self.num_envs, 64, 64, 3), np.uint8) if out is None else out
        out[:] = 0
        for env in range(self.num_envs):
            if self.later:
                out[env, ..., 1 if self.right[env] else 0] = 200
            else:
                out[env, :, 20 * self.stripe[env] :][:, :20] = 255
        levels = np.zeros(self.num_envs, np.int32)
        return Frames(out, levels, levels + self.later)

    def step(self, actions):
        rewards = np.zeros(self.num_envs, np.float32)
        ended = np.arange(self.num_envs if self.later else 0)
        if self.later:
            rewards[self.right] = 1
            self.stripe = self.draw.integers(0, 3, self.num_envs)
        else:
            self.right = actions % 3 == self.stripe
        dones, self.later = np.full(self.num_envs, self.later), not self.later
        lengths, levels = np.full(len(ended), 2, np.int32), np.zeros(len(ended), np.int32)
        return Step(rewards, dones, Episodes(ended, rewards[ended].astype(float), lengths, levels, rewards[ended] > 0))


def final_return(make_learner, iterations, seed=0, **settings):
    """Mean return over the last quarter of training."""
    ppo = {"num_envs": 32, "num_steps": 2, "update_epochs": 3, "num_minibatches": 2, "learning_rate": 3e-3} | settings
    learner = make_learner(games=StripeGames(32, seed), seed=seed, **ppo)
    with torch.no_grad():
        learner.model.value_head.weight.zero_()  # what a frozen critic then knows is nothing
    returns = [np.mean([e.returns for e in learner.iterate()[1]]) for _ in range(iterations)]
    return np.mean(returns[-iterations // 4 :])


SOLVED = 0.9  # of 1; a third is chance


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_learner_solves_a_task_with_a_delayed_reward(make_learner, seed):
    assert final_return(make_learner, 40, seed, small=True) > SOLVED


@pytest.mark.slow
def test_the_learner_solves_it_with_the_real_network_and_clop(make_learner):
    settings = {"learning_rate": 1e-3, "update_epochs": 2, "method": compose({"clop": Clop(alpha=0.3)})}
    assert final_return(make_learner, 20, **settings) > SOLVED


@pytest.mark.slow
def test_the_learner_solves_it_in_mixed_precision(make_learner):
    settings = {"learning_rate": 1e-3, "update_epochs": 2, "network": NetworkConfig(encoder="small", amp="bf16")}
    assert final_return(make_learner, 40, **settings) > SOLVED


def wrong_sign(monkeypatch):
    def wrong(*args):
        advantages, returns = right(*args)
        return -advantages, returns

    right = rollout.gae
    monkeypatch.setattr(rollout, "gae", wrong)
    return {}


def no_bootstrap(monkeypatch):
    right = rollout.gae
    monkeypatch.setattr(
        rollout, "gae", lambda rewards, values, dones, last, *rest: right(rewards, values, dones, 0 * last, *rest)
    )
    return {}


def no_discounted_future(monkeypatch):
    return {"gamma": 0.0}


def frozen_critic(monkeypatch):
    return {"vf_coef": 0.0}


@pytest.mark.parametrize("mistake", [wrong_sign, no_bootstrap, no_discounted_future, frozen_critic])
def test_a_wrong_learner_does_not_solve_it(make_learner, monkeypatch, mistake):
    """The controls: the same task and criterion, and one mistake; each stays at chance or below."""
    assert final_return(make_learner, 40, small=True, **mistake(monkeypatch)) < 0.6
