"""The games as a vector environment of Gymnasium: Procgen's, and tiny ones of our own."""

import importlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from clop.errors import UsageError
from clop.rl import make_vec
from clop.rl.envs.backends import PROCGEN, installed_backends
from clop.rl.envs.levels import LevelSet

with_procgen = pytest.mark.skipif(not set(PROCGEN) & set(installed_backends()), reason="no Procgen is installed")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("tiny_games")


def play(envs, steps, seed=None):
    """What reset and the steps return; then it is closed."""
    told = [envs.reset(seed=seed)]
    for step in range(steps):
        told.append(envs.step(np.full(envs.num_envs, step % envs.single_action_space.n)))
    envs.close()
    return told


@with_procgen
def test_the_games_are_a_vector_environment_that_says_what_it_does():
    envs = make_vec("bigfish", num_envs=3, num_levels=5)
    assert isinstance(envs, VectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, info = envs.reset(seed=0)
    assert envs.observation_space.contains(obs)
    assert envs.single_observation_space.shape == (64, 64, 3)
    assert envs.action_space.contains(np.array([0, 7, 14]))
    assert info["_level_seed"].all()
    envs.close()
    envs.close()


@with_procgen
def test_a_step_is_what_the_games_themselves_say():
    """Fails for a frame of the wrong step, a lost reward, or an end without its episode."""
    with LevelSet("fruitbot", num_levels=4).open(2, seed=3) as games:
        envs = make_vec("fruitbot", num_envs=2, num_levels=4, seed=3)
        np.testing.assert_array_equal(envs.reset()[0], games.observe().obs)
        ended = 0
        for step in range(300):
            actions = np.array([step % 15, 4])
            obs, rewards, terminations, truncations, info = envs.step(actions)
            told, frames = games.step(actions), games.observe()
            np.testing.assert_array_equal(obs, frames.obs)
            np.testing.assert_array_equal(rewards, told.rewards)
            np.testing.assert_array_equal(terminations, told.dones)
            np.testing.assert_array_equal(info["level_seed"], frames.level_seeds)
            assert not truncations.any()
            assert "final_obs" not in info  # Procgen has none, and none is made up
            assert ("final_info" in info) == told.dones.any()
            for env, value, length, level, completed in zip(*told.finished, strict=True):
                final = info["final_info"]
                assert info["_final_info"][env]
                assert (final["return"][env], final["length"][env]) == (value, length)
                assert (final["level_seed"][env], final["completed"][env]) == (level, completed)
                ended += 1
        assert ended
        envs.close()


@with_procgen
def test_the_split_decides_the_levels():
    """Fails if training frames come from test levels, which nothing else would show."""
    trained = play(make_vec("starpilot", num_envs=8, num_levels=3, start_level=20), 50)
    assert set(np.concatenate([told[-1]["level_seed"] for told in trained])) <= {20, 21, 22}
    tested = play(make_vec("starpilot", num_envs=8, split="test", num_levels=3), 0)
    assert min(tested[0][1]["level_seed"]) > 3
    hard = make_vec("starpilot", num_envs=1, split="test", num_levels=500, distribution_mode="hard")
    assert (hard.levels.start_level, hard.levels.num_levels) == (500, 1000)
    hard.close()


def test_the_same_seed_begins_the_same_episodes_and_none_begins_others():
    """Fails if reset hands back the running episodes, or ignores its seed."""
    envs = make_vec("tiny_games:make", num_envs=16)
    _, first = envs.reset(seed=5)
    envs.step(np.zeros(16, int))
    _, again = envs.reset(seed=5)
    _, other = envs.reset()
    np.testing.assert_array_equal(first["level_seed"], again["level_seed"])
    assert (first["level_seed"] != other["level_seed"]).any()
    assert envs.np_random_seed == 5
    envs.close()


def test_games_that_show_their_last_frame_hand_it_on_where_they_were_cut_off(tiny):
    """Fails if a truncated episode counts as ended, or comes with the first frame of the next."""
    *_, (obs, _, terminations, truncations, info) = play(make_vec("tiny_games:truncated", num_envs=2), tiny.LENGTH)
    assert truncations.all()
    assert not terminations.any()
    assert info["_final_obs"].all()
    for first, last in zip(obs, info["final_obs"], strict=True):
        assert (last[4:] == tiny.LENGTH).all()
        assert (first[4:] == 0).all()


def test_wrappers_of_gymnasium_count_the_same_episodes(tiny):
    """Fails where our metadata or entries of info are not those that Gymnasium's own wrappers expect."""
    envs = RecordEpisodeStatistics(make_vec("tiny_games:make", num_envs=2))
    envs.reset(seed=0)
    for _ in range(tiny.LENGTH):
        info = envs.step(np.array([1, 2]))[-1]
    np.testing.assert_array_equal(info["episode"]["r"], info["final_info"]["return"])
    np.testing.assert_array_equal(info["episode"]["l"], info["final_info"]["length"])
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"game": "bigfsh"}, "did you mean 'bigfish'"),
        ({"game": "bigfish", "split": "tests"}, "did you mean 'test'"),
        ({"game": "bigfish", "num_envs": 0}, "num_envs must be at least 1"),
        ({"game": "tiny_games:make", "distribution_mode": "hard"}, "is a setting of Procgen"),
    ],
)
def test_mistakes_are_told_in_one_sentence(arguments, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_vec(**arguments)


def test_options_of_reset_are_refused():
    envs = make_vec("tiny_games:make", num_envs=1)
    with pytest.raises(UsageError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.array([True])})
    envs.close()
