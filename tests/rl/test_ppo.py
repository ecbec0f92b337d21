"""The learner: its settings, what it stores, its learning rate, and what it notices."""

import ast
import inspect
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from clop.errors import DivergedError, UsageError
from clop.rl import ppo
from clop.rl.methods import METHODS
from clop.rl.methods.base import Method
from clop.rl.network import as_input
from clop.rl.reward_norm import RewardNormaliser
from clop.rl.settings import NetworkConfig, PPOConfig

# ---- settings ------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_published_agents():
    config = PPOConfig()
    assert config.batch_size == 16_384
    assert (config.gamma, config.gae_lambda, config.update_epochs, config.num_minibatches) == (0.999, 0.95, 3, 8)
    assert (config.learning_rate, config.clip_coef, config.vf_coef, config.ent_coef) == (5e-4, 0.2, 0.5, 0.01)
    assert (config.max_grad_norm, config.adam_epsilon, config.reward_gamma) == (0.5, 1e-5, 0.99)


def test_minibatches_of_unequal_size_are_refused():
    with pytest.raises(UsageError, match=r"num_minibatches=7 does not divide num_envs \* num_steps = 16384"):
        PPOConfig(num_minibatches=7)


def test_minibatches_of_unequal_size_in_one_process_are_refused(make_learner, noise_games):
    """Two processes of 1 x 5 transitions each: all ten make 2 minibatches, but five do not."""
    with pytest.raises(UsageError, match="num_minibatches=2 does not divide"):
        make_learner(games=noise_games(1), num_envs=2, num_steps=5, num_minibatches=2)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gamma": 1.5}, r"ppo\.gamma must lie in \[0, 1\], got 1\.5"),
        ({"gae_lambda": -0.1}, r"ppo\.gae_lambda must lie in \[0, 1\], got -0\.1"),
        ({"num_minibatches": 0}, r"ppo\.num_minibatches must be at least 1, got 0"),
        ({"num_steps": 0}, r"ppo\.num_steps must be at least 1, got 0"),
        ({"micro_batch": 0}, r"ppo\.micro_batch must be at least 1, got 0"),
        ({"update_epochs": 0}, r"ppo\.update_epochs must be at least 1, got 0"),
        ({"learning_rate": -1.0}, r"ppo\.learning_rate must not be negative, got -1\.0"),
    ],
)
def test_settings_that_are_none_are_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        PPOConfig(**settings)


@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig(topology="decoupled")])
def test_each_group_of_parameters_has_an_adam_with_epsilon_1e_5(make_learner, network):
    learner = make_learner(network=network)
    assert learner.optimisers.keys() == learner.model.groups().keys()
    for name, optimiser in learner.optimisers.items():
        assert isinstance(optimiser, torch.optim.Adam)
        assert (optimiser.defaults["eps"], optimiser.defaults["betas"]) == (1e-5, (0.9, 0.999))
        assert optimiser.defaults["weight_decay"] == 0
        assert [id(p) for p in optimiser.param_groups[0]["params"]] == [id(p) for p in learner.model.groups()[name]]


def test_the_learner_names_no_method_and_asks_for_no_type():
    source = inspect.getsource(ppo)
    tree = ast.parse(source)
    words = {word.lower() for node in ast.walk(tree) if isinstance(node, ast.Name) for word in [node.id]}
    words |= {node.attr.lower() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    words |= set(re.findall(r"[a-z_]+", re.sub(r"\bclop\.", "", source.lower())))
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not calls & {"type", "issubclass"}
    assert "isinstance" not in words
    assert "method" in words
    published = {"mixreg", "rand_fm", "ucb_drac", "drac", "ibac_sni", "rad", "daac", "idaac", "weight_decay"}
    assert words & (set(METHODS) | published | {"batchnorm"}) == set()


# ---- collecting ----------------------------------------------------------------------------------------------------


def test_each_row_of_the_rollout_is_what_the_games_told(make_learner, noise_games):
    """Fails when level, step, reward or end are one step off the frame they belong to."""
    games = noise_games(4, end=0.3)
    learner = make_learner(games=games, num_steps=12, small=True)
    episodes = learner.collect()
    kept, raw_to_normalised = learner.rollout, RewardNormaliser(4)
    for t, (frames, actions, step) in enumerate(games.told):
        assert np.array_equal(kept.obs[t], frames.obs)
        assert np.array_equal(kept.level_seeds[t], frames.level_seeds)
        assert np.array_equal(kept.episode_steps[t], frames.episode_steps)
        assert np.array_equal(kept.actions[t], actions)
        assert np.array_equal(kept.dones[t], step.dones)
        assert np.array_equal(kept.rewards[t], raw_to_normalised([step.rewards], [step.dones])[0])
    told = [step.finished for *_, step in games.told if len(step.finished.envs)]
    assert len(told) > 1
    assert [e.returns.tolist() for e in episodes] == [e.returns.tolist() for e in told]


def test_log_probabilities_and_values_are_those_of_the_stored_frame_and_action(make_learner, sharpen):
    learner = sharpen(make_learner())
    learner.collect()
    batch = learner.rollout.batch(torch.arange(16))
    with torch.no_grad():
        output = learner.model(batch.obs)
    torch.testing.assert_close(batch.log_probs, output.log_prob(batch.actions), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(batch.values, output.value, atol=1e-5, rtol=1e-4)


def test_the_bootstrap_value_is_that_of_the_frame_after_the_last_step(make_learner, noise_games):
    games = noise_games(4, end=0.0)
    learner = make_learner(games=games, gamma=0.9, gae_lambda=0.0)
    learner.collect()
    with torch.no_grad():
        last = learner.model(torch.from_numpy(games.observe().obs)).value
    kept = learner.rollout
    torch.testing.assert_close(kept.returns[-1], kept.rewards[-1] + 0.9 * last, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(kept.returns[:-1], kept.rewards[:-1] + 0.9 * kept.values[1:])
    torch.testing.assert_close(kept.advantages, kept.returns - kept.values, atol=1e-5, rtol=1e-4)


def test_frames_that_a_method_changes_are_what_the_policy_sees_and_the_rollout_stores(make_learner, noise_games):
    class Negative(Method):
        seen = 0

        def observe(self, obs, ctx):
            return 255 - obs

        def act(self, obs, stage, ctx):
            assert stage == "rollout"
            assert torch.equal(obs, torch.from_numpy(255 - games.observe().obs))
            self.seen += 1
            return super().act(obs, stage, ctx)

    games, method = noise_games(4), Negative()
    learner = make_learner(method, games, small=True)
    learner.collect()
    assert method.seen == 5
    assert np.array_equal(learner.rollout.obs[2], 255 - games.told[2][0].obs)


def test_frames_go_from_the_games_straight_into_the_rollout(make_learner, noise_games):
    """One copy for each step: fails when frames are written elsewhere first, or when the policy looks at a copy."""
    places, seen = [], []

    class Noted(noise_games):
        def observe(self, out=None):
            places.append(None if out is None else out.ctypes.data)
            return super().observe(out)

    class Look(Method):
        def act(self, obs, stage, ctx):
            seen.append(obs.data_ptr())
            return super().act(obs, stage, ctx)

    games = Noted(4)
    learner = make_learner(Look(), games, small=True)
    rows = [row.data_ptr() for row in learner.rollout.obs]
    learner.collect()
    assert [place for place in places if place is not None] == rows
    assert seen[:-1] == rows
    assert learner.rollout.obs[0].data_ptr() == rows[0]
    for t, (frames, *_) in enumerate(games.told):
        assert np.array_equal(learner.rollout.obs[t], frames.obs)
    kept = learner.rollout.obs.clone()
    games.observe()  # the frame after the last step, and what comes later, is written elsewhere
    games.step(np.zeros(4, int))
    assert torch.equal(learner.rollout.obs, kept)


def in_place(obs):
    return obs.bitwise_not_()


def in_fresh_memory(obs):
    return 255 - obs


def in_part(obs):
    return torch.cat([255 - obs[:2], obs[2:]])


@pytest.mark.parametrize("change", [in_place, in_fresh_memory, in_part])
def test_frames_that_a_method_changes_are_right_in_every_row(make_learner, noise_games, change):
    """Although the games have written them there before; fails when a row keeps what the policy did not see."""
    seen = []

    class Changing(Method):
        def observe(self, obs, ctx):
            return change(obs)

        def act(self, obs, stage, ctx):
            seen.append(obs.clone())
            return super().act(obs, stage, ctx)

    games = noise_games(4)
    learner = make_learner(Changing(), games, small=True)
    for _ in range(2):  # the second rollout is written over the first
        learner.iterate()
        told = games.told[-4:]
        for t, (frames, *_) in enumerate(told):
            assert torch.equal(learner.rollout.obs[t], change(torch.from_numpy(frames.obs.copy())))
            assert torch.equal(learner.rollout.obs[t], seen[-5 + t])


def test_frames_that_become_floats_on_the_way_are_stored_as_the_policy_saw_them(make_learner, noise_games):
    seen = []

    class Floats(Method):
        def configure(self, settings):
            return replace(settings, frames="floats")

        def observe(self, obs, ctx):
            return as_input(obs) * 0.5

        def act(self, obs, stage, ctx):
            seen.append(obs.clone())
            return super().act(obs, stage, ctx)

    games = noise_games(4)
    learner = make_learner(Floats(), games, small=True)
    learner.collect()
    assert learner.rollout.obs.dtype == torch.float32
    for t, (frames, *_) in enumerate(games.told):
        assert torch.equal(learner.rollout.obs[t], as_input(torch.from_numpy(frames.obs)) * 0.5)
        assert torch.equal(learner.rollout.obs[t], seen[t])


@pytest.mark.parametrize(("mode", "training"), [("train", True), ("eval", False)])
def test_the_network_acts_in_the_mode_of_the_settings_and_learns_in_training_mode(make_learner, mode, training):
    modes = []
    learner = make_learner(mode=mode)
    learner.model.register_forward_hook(lambda module, *_: modes.append((module.training, torch.is_grad_enabled())))
    learner.iterate()
    assert modes == [(training, False)] * 5 + [(True, True)]


@pytest.mark.parametrize("before", [True, False])
def test_an_evaluation_is_in_evaluation_mode_and_gives_the_old_mode_back(make_learner, before):
    modes = []
    learner = make_learner(mode="train")
    learner.model.train(before)
    learner.model.register_forward_hook(lambda module, *_: modes.append(module.training))
    learner.method.act(learner.rollout.obs[0], "eval", learner.context())
    assert modes == [False]
    assert learner.model.training is before


# ---- schedule ------------------------------------------------------------------------------------------------------


def test_a_linear_learning_rate_follows_the_formula(make_learner):
    """lr = 5e-4 (1 - t / total) with t the steps done so far; the last iteration overshoots and ends at 0."""
    learner = make_learner(small=True, schedule="linear", total_timesteps=56)
    for k in range(4):
        metrics, _ = learner.iterate()
        assert metrics["learning_rate"] == pytest.approx(5e-4 * (1 - 16 * k / 56))
        assert learner.env_steps == 16 * (k + 1)
        assert learner.optimisers["all"].param_groups[0]["lr"] == pytest.approx(5e-4 * max(0, 1 - 16 * (k + 1) / 56))


def test_a_constant_learning_rate_stays(make_learner):
    learner = make_learner(small=True, total_timesteps=32)
    assert {learner.iterate()[0]["learning_rate"] for _ in range(3)} == {5e-4}


# ---- chance --------------------------------------------------------------------------------------------------------


def test_the_seed_decides_everything(make_learner, noise_games, vector):
    runs = []
    for seed in (3, 3, 4):
        torch.randn(seed)  # what was drawn elsewhere does not matter
        learner = make_learner(games=noise_games(4), seed=seed)
        runs.append((learner.iterate()[0], vector(learner.model.parameters())))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
    assert not torch.equal(runs[0][1], runs[2][1])


# ---- divergence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(make_learner, bad):
    class Spoiled(Method):
        def penalty(self, batch, views, phase, ctx):
            return (views[0].output.value.sum() * bad if ctx.iteration == 2 else None), {}

    learner = make_learner(Spoiled(), small=True)
    learner.iterate(), learner.iterate()
    with pytest.raises(DivergedError, match="no longer a number in the update after 32 steps"):
        learner.iterate()


def test_a_weight_that_is_no_number_is_noticed_at_once(make_learner):
    learner = make_learner(small=True)
    with torch.no_grad():
        learner.model.dense.weight[0, 0] = math.nan
    with pytest.raises(DivergedError, match="after 0 steps"):
        learner.iterate()


def test_a_gradient_that_is_no_number_is_noticed_although_the_loss_is_one(make_learner):
    """The gradient of sqrt at 0 is infinite."""

    class Root(Method):
        def penalty(self, batch, views, phase, ctx):
            return (0 * views[0].output.value.sum()).sqrt(), {}

    with pytest.raises(DivergedError, match="grad_norm"):
        make_learner(Root(), small=True).iterate()
