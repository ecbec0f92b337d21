"""Episodes that a time limit cuts off: what would have come counts, since the limit is no part of the game.

A reward of 1 for ever is worth 1 / (1 - gamma), whatever the limit; with gamma = 0.5 that is 2.
"""

import numpy as np
import pytest
import torch

from clop.rl import ppo
from clop.rl.methods import METHODS, compose
from clop.rl.methods.augmented import augment_frames
from clop.rl.methods.base import Compose, Method
from clop.rl.methods.rad import Rad
from clop.rl.network import Output

GAMMA, WORTH = 0.5, 2.0
ENVS, STEPS = 4, 6
LIMITS = (2, 3, 100, 6)
"""Of each env: three cut-offs in a rollout, two, none, and one at its last step."""


@pytest.fixture
def limited_games(noise_games):
    class LimitedGames(noise_games):
        """A reward of 1 at each step, and a time limit for each env; with ``ends`` it counts as an end of the game."""

        def __init__(self, limits=LIMITS, *, ends=False):
            super().__init__(len(limits))
            self.limits, self.ends = np.array(limits), ends
            self.left = {}
            """The frames at which episodes were cut off, by step and env; the first byte is 10 * step + env + 1."""

        def step(self, actions):
            t, frames = self.clock, self._draw(2).integers(0, 256, (self.num_envs, 64, 64, 3), np.uint8)
            self.end = np.where(self.steps + 1 < self.limits, 0.0, 1.0)
            step, cut_off = super().step(actions), []
            for env in np.flatnonzero(step.dones):
                frames[env, 0, 0, 0] = (10 * t + env + 1) % 256
                self.left[t, int(env)] = torch.from_numpy(frames[env])
                cut_off.append((int(env), frames[env]))
            return step._replace(rewards=np.ones(self.num_envs, np.float32), cut_off=() if self.ends else cut_off)

    return LimitedGames


class Reading(Method):
    """A critic that says the first byte of a frame; keeps all that it was shown."""

    def __init__(self):
        self.shown = []

    def act(self, obs, stage, ctx):
        self.shown.append(obs.clone())
        return Output(torch.zeros(len(obs), 15), obs[:, 0, 0, 0].float())


def raw_rewards(learner):
    """Without a normaliser, so that numbers can be worked by hand."""
    learner.rewards = lambda rewards, dones: rewards
    return learner


def collected(make_learner, games, method=None, **settings):
    settings = {"num_envs": ENVS, "num_steps": STEPS, "gamma": GAMMA, "small": True} | settings
    learner = raw_rewards(make_learner(method, games, **settings))
    learner.collect()
    return learner


def constant_critic(learner, value):
    with torch.no_grad():
        learner.model.value_head.weight.zero_()
        learner.model.value_head.bias.fill_(value)
    return learner


# ---- numbers by hand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
def test_a_critic_that_is_right_leaves_no_advantage_at_a_time_limit(make_learner, limited_games, gae_lambda):
    settings = {"num_envs": ENVS, "num_steps": STEPS, "gamma": GAMMA, "gae_lambda": gae_lambda, "small": True}
    learner = constant_critic(raw_rewards(make_learner(games=limited_games(), **settings)), WORTH)
    learner.collect()
    assert learner.rollout.dones.sum(0).tolist() == [3, 2, 0, 1]
    torch.testing.assert_close(learner.rollout.advantages, torch.zeros(STEPS, ENVS))
    torch.testing.assert_close(learner.rollout.returns, torch.full((STEPS, ENVS), WORTH))


def test_if_the_limit_counted_as_an_end_the_same_critic_would_be_wrong(make_learner, limited_games):
    """The control: the last step of an episode would be worth its reward, 1, and the one before 1.5."""
    settings = {"num_envs": ENVS, "num_steps": STEPS, "gamma": GAMMA, "gae_lambda": 1.0, "small": True}
    learner = constant_critic(raw_rewards(make_learner(games=limited_games(ends=True), **settings)), WORTH)
    learner.collect()
    assert learner.rollout.returns[:, 0].tolist() == pytest.approx([1.5, 1, 1.5, 1, 1.5, 1])
    assert learner.rollout.returns[:, 1].tolist() == pytest.approx([1.75, 1.5, 1, 1.75, 1.5, 1])
    assert learner.rollout.returns[:, 2].tolist() == pytest.approx([WORTH] * STEPS)
    assert learner.rollout.returns[-1, 3] == 1


def test_each_cut_off_has_the_value_of_the_frame_it_was_left_at(make_learner, limited_games):
    """Fails when the value is that of the next episode's first frame, of another env, or of another cut-off of the same
    env: each of these frames has a value of its own."""
    learner = collected(make_learner, limited_games(), Reading())
    expected = torch.ones(STEPS, ENVS)
    for env, times in {0: (1, 3, 5), 1: (2, 5), 3: (5,)}.items():
        for t in times:
            expected[t, env] += GAMMA * (10 * t + env + 1)
    assert torch.equal(learner.rollout.rewards, expected)


def test_returns_with_cut_offs_worked_by_hand(make_learner, limited_games):
    """Env 0 with lambda 1: R_1 = 1 + 0.5 * 11 = 6.5 at the first cut-off, R_0 = 1 + 0.5 * 6.5; then the next episode:
    R_3 = 1 + 0.5 * 31, R_2 = 1 + 0.5 * 16.5."""
    returns = collected(make_learner, limited_games(), Reading(), gae_lambda=1.0).rollout.returns
    assert returns[:4, 0].tolist() == pytest.approx([4.25, 6.5, 9.25, 16.5])
    ended = collected(make_learner, limited_games(ends=True), Reading(), gae_lambda=1.0).rollout.returns
    assert ended[:4, 0].tolist() == pytest.approx([1.5, 1, 1.5, 1])  # the control: limits that are ends


def test_a_pass_has_one_frame_of_each_env_and_there_are_as_many_as_the_busiest_env_needs(make_learner, limited_games):
    """Methods that hold something for each env rely on it."""
    method = Reading()
    collected(make_learner, limited_games(), method)
    beyond = method.shown[STEPS + 1 :]
    assert {len(obs) for obs in method.shown} == {ENVS}
    assert len(beyond) == 3
    firsts = [[int(obs[env, 0, 0, 0]) for env in (0, 1)] for obs in beyond[:2]]
    assert firsts == [[11, 22], [31, 52]]
    assert torch.equal(beyond[0][2], method.shown[STEPS][2])  # an env without one shows the bootstrap frame


def test_without_cut_offs_nothing_is_looked_at_twice(make_learner, limited_games):
    method = Reading()
    collected(make_learner, limited_games(ends=True), method)
    assert len(method.shown) == STEPS + 1


def test_what_would_have_come_is_not_divided_by_the_rewards_deviation(make_learner, limited_games):
    """The critic speaks of normalised rewards already; fails when its value goes through the normaliser."""
    settings = {"num_envs": ENVS, "num_steps": STEPS, "gamma": GAMMA, "small": True}
    cut, ended = (make_learner(games=limited_games(ends=ends), **settings) for ends in (False, True))
    for learner in (cut, ended):
        constant_critic(learner, 7.0).collect()
    difference = cut.rollout.rewards - ended.rollout.rewards
    torch.testing.assert_close(difference, GAMMA * 7.0 * cut.rollout.dones)
    assert cut.rewards.variance == ended.rewards.variance


# ---- learning --------------------------------------------------------------------------------------------------------


def learned_value(make_learner, games):
    """What the critic says after some updates, averaged over the last rollout."""
    settings = {"num_envs": ENVS, "num_steps": STEPS, "gamma": GAMMA, "small": True}
    ours = {"learning_rate": 0.02, "clip_coef": 10.0, "max_grad_norm": 10.0, "update_epochs": 4, "ent_coef": 0.0}
    learner = raw_rewards(make_learner(games=games, **settings, **ours))
    for _ in range(40):
        learner.iterate()
    return learner.rollout.values.mean().item()


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_critic_learns_the_worth_whatever_the_limit(make_learner, limited_games, limit):
    assert learned_value(make_learner, limited_games([limit] * ENVS)) == pytest.approx(WORTH, abs=0.1)


@pytest.mark.parametrize(("limit", "worth"), [(1, 1.0), (2, 1.25)])
def test_if_limits_were_ends_the_critic_would_learn_too_little(make_learner, limited_games, limit, worth):
    """The control, on frames that do not show the time: the mean of 1 and 1.5 for a limit of 2."""
    assert learned_value(make_learner, limited_games([limit] * ENVS, ends=True)) == pytest.approx(worth, abs=0.1)


def test_a_learner_that_forgets_what_would_have_come_learns_too_little(make_learner, limited_games, monkeypatch):
    """The control in the learner itself."""
    monkeypatch.setattr(ppo.Learner, "_values_beyond", lambda self, *_: torch.zeros_like(self.rollout.rewards))
    assert learned_value(make_learner, limited_games([2] * ENVS)) == pytest.approx(1.25, abs=0.1)


# ---- methods ---------------------------------------------------------------------------------------------------------


def test_a_frame_at_a_limit_is_changed_as_its_envs_other_frames_are(make_learner, limited_games):
    """RAD holds one crop for each env for a rollout; fails when a cut-off is cropped like another env, or anew."""
    reading, rad, games = Reading(), Rad(aug="crop", where="collect").build(), limited_games()
    learner = collected(make_learner, games, Compose({"rad": rad, "reading": reading}))
    last = torch.from_numpy(games.observe().obs)
    assert torch.equal(reading.shown[STEPS], changed(last, rad, learner))
    for number, (env0, env1, env3) in enumerate(((1, 2, 5), (3, 5, None), (5, None, None))):
        frames = last.clone()
        for env, t in ((0, env0), (1, env1), (3, env3)):
            if t is not None:
                frames[env] = games.left[t, env]
        assert torch.equal(reading.shown[STEPS + 1 + number], changed(frames, rad, learner))
    alike = changed(last[:1].expand(ENVS, -1, -1, -1), rad, learner)
    assert len({frame.numpy().tobytes() for frame in alike}) == ENVS  # each env has a crop of its own


def changed(obs, rad, learner):
    return augment_frames(obs, rad.augmentation, learner.method_rng, rad.held)


@pytest.mark.parametrize("where", ["collect", "collect-step", "both", "update"])
@pytest.mark.parametrize("aug", ["crop", "random_conv"])
def test_rad_learns_with_cut_offs(make_learner, limited_games, where, aug):
    method = compose({"rad": Rad(aug=aug, where=where)})
    learner = make_learner(method, limited_games(), num_envs=ENVS, num_steps=STEPS)
    for _ in range(2):
        metrics, _ = learner.iterate()
    assert all(np.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("name", [name for name in METHODS if name != "clop_auto"])  # which needs games of its own
def test_every_method_learns_with_cut_offs(make_learner, limited_games, name):
    learner = make_learner(compose({name: METHODS[name]()}), limited_games(), num_envs=ENVS, num_steps=STEPS)
    metrics, _ = learner.iterate()
    assert all(np.isfinite(value) for value in metrics.values())


def test_a_learner_with_cut_offs_follows_from_its_seed(make_learner, limited_games, vector):
    """Cut-offs make methods draw more often: the draws too must follow from the seed."""
    weights = []
    for _ in range(2):
        method = compose({"rad": Rad(aug="crop", where="collect-step")})
        learner = make_learner(method, limited_games(), num_envs=ENVS, num_steps=STEPS)
        learner.iterate()
        weights.append(vector(learner.model.parameters()))
    assert torch.equal(*weights)
