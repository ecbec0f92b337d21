"""The games, on each back end that is installed."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest
import torch

from clop.errors import UsageError
from clop.rl.envs.backends import PROCGEN, choose_backend, installed_backends
from clop.rl.envs.levels import LevelSet
from clop.rl.games import DISTRIBUTION_MODES, GAMES

INSTALLED = [name for name in installed_backends() if name in PROCGEN]


def needs(*names):
    missing = [name for name in names if name not in INSTALLED]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


each_backend = pytest.mark.parametrize("backend", [pytest.param(name, marks=needs(name)) for name in PROCGEN])
with_procgen = needs("procgen-mirror")
any_backend = pytest.mark.skipif(not INSTALLED, reason="no Procgen is installed")


def make(game="bigfish", num_envs=4, *, seed=0, backend="auto", threads=0, **levels):
    return LevelSet(game, **levels).open(num_envs, seed, backend, threads)


def draw_actions(steps, num_envs, seed=0):
    return np.random.default_rng(seed).integers(0, 15, (steps, num_envs))


def play(games, actions):
    """Everything an agent could notice: the frames before each step and after the last, and each step."""
    told = [games.observe()]
    for row in actions:
        told.append(games.step(row))
        told.append(games.observe())
    return told


def assert_same(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        for a, b in zip(flat(left), flat(right), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def flat(value):
    return [value] if isinstance(value, np.ndarray) else [array for part in value for array in flat(part)]


@each_backend
@pytest.mark.parametrize("mode", DISTRIBUTION_MODES)
@pytest.mark.parametrize("game", GAMES)
def test_every_game_runs_and_tells_what_it_promises(game, mode, backend):
    with make(game, 3, distribution_mode=mode, num_levels=0, backend=backend) as games:
        for actions in draw_actions(5, 3):
            rewards, dones, finished, cut_off = games.step(actions)
            obs, level_seeds, episode_steps = games.observe()
            assert (obs.shape, obs.dtype) == ((3, 64, 64, 3), np.uint8)
            assert (level_seeds.dtype, episode_steps.dtype) == (np.int32, np.int32)
            assert (rewards.dtype, dones.dtype) == (np.float32, np.bool_)
            assert {len(column) for column in finished} == {dones.sum()}
            assert not cut_off
        assert obs.std() > 1  # a picture and not a blank


@each_backend
def test_levels_come_from_the_range_and_all_of_it(backend):
    """Leaper's random agent drowns soon, so many levels are drawn; 8 levels in some 200 draws are all seen."""
    with make("leaper", 16, start_level=500, num_levels=8, backend=backend) as games:
        told = play(games, draw_actions(400, 16))
        seen = {seed for frames in told[::2] for seed in frames.level_seeds.tolist()}
        played = {seed for step in told[1::2] for seed in step.finished.level_seeds.tolist()}
    assert seen == set(range(500, 508))
    assert played <= seen


@each_backend
def test_zero_levels_stand_for_all_of_them(backend):
    with make(num_envs=64, num_levels=0, backend=backend) as games:
        level_seeds = games.observe().level_seeds
    assert len(set(level_seeds.tolist())) > 60
    assert level_seeds.min() >= 0
    assert level_seeds.max() > 2**29


@each_backend
def test_the_same_seed_gives_the_same_games(backend):
    actions = draw_actions(100, 4)
    with make(backend=backend) as one, make(backend=backend) as other:
        assert_same(play(one, actions), play(other, actions))


@each_backend
def test_neighbouring_seeds_draw_unrelated_levels(backend):
    """Fails when env i is seeded with seed + i: the streams would then be shared but for one env."""
    levels = []
    for seed in (0, 1):
        with make(num_envs=64, num_levels=0, seed=seed, backend=backend) as games:
            levels.append(set(games.observe().level_seeds.tolist()))
    assert len(levels[0] & levels[1]) <= 1


@each_backend
def test_a_frame_shows_the_level_it_is_said_to(backend):
    """The first frame of level L is the one that games made for level L alone start with.

    Fails when the level seed lags one frame behind, which is easy to get wrong at the end of an episode.
    """
    first = {}
    for level in range(6):
        with make("leaper", 1, start_level=level, num_levels=1, seed=99, backend=backend) as alone:
            first[level] = alone.observe().obs[0]
    assert len({frame.tobytes() for frame in first.values()}) == 6
    changed = 0
    with make("leaper", 8, num_levels=6, backend=backend) as games:
        for frame, level in zip(*games.observe()[:2], strict=True):
            np.testing.assert_array_equal(frame, first[level])
        for actions in draw_actions(300, 8):
            finished = games.step(actions).finished
            obs, level_seeds, _ = games.observe()
            for env, before in zip(finished.envs, finished.level_seeds, strict=True):
                np.testing.assert_array_equal(obs[env], first[level_seeds[env]])
                changed += level_seeds[env] != before
    assert changed > 5


@each_backend
def test_an_ended_episode_is_told_with_the_level_its_frames_showed(backend):
    with make("leaper", 8, backend=backend) as games:
        told = play(games, draw_actions(200, 8))
    ended = 0
    for before, step in zip(told[::2], told[1::2], strict=False):
        np.testing.assert_array_equal(step.finished.level_seeds, before.level_seeds[step.finished.envs])
        np.testing.assert_array_equal(step.finished.lengths, before.episode_steps[step.finished.envs] + 1)
        np.testing.assert_array_equal(step.finished.envs, np.flatnonzero(step.dones))
        ended += len(step.finished.envs)
    assert ended > 10


@each_backend
def test_episode_steps_count_from_the_first_frame(backend):
    with make(backend=backend) as games:
        told = play(games, draw_actions(300, 4))
    expected = np.zeros(4, np.int32)
    np.testing.assert_array_equal(told[0].episode_steps, expected)
    for step, after in zip(told[1::2], told[2::2], strict=True):
        expected = np.where(step.dones, 0, expected + 1)
        np.testing.assert_array_equal(after.episode_steps, expected)
    assert any(step.dones.any() for step in told[1::2])


@each_backend
@pytest.mark.parametrize("game", ["bigfish", "fruitbot"])
def test_the_return_is_the_sum_of_the_rewards(game, backend):
    """Fruitbot also takes points away. The last reward belongs to the episode it ends, and to no other."""
    with make(game, 8, backend=backend) as games:
        steps = play(games, draw_actions(400, 8))[1::2]
    rewards, dones = np.stack([step.rewards for step in steps]), np.stack([step.dones for step in steps])
    told = {
        (t, env): value
        for t, step in enumerate(steps)
        for env, value in zip(step.finished.envs, step.finished.returns, strict=True)
    }
    ended = 0
    for env in range(8):
        begin = 0
        for end in np.flatnonzero(dones[:, env]):
            assert told[end, env] == pytest.approx(rewards[begin : end + 1, env].sum(dtype=np.float64), abs=1e-9)
            begin, ended = end + 1, ended + 1
    assert ended == len(told) > 5
    assert any(told.values())


@each_backend
def test_completed_says_whether_the_coin_was_reached(backend):
    """In maze and its kin the only reward is 10, for a solved level."""
    with make("maze", 32, backend=backend) as games:
        finished = [games.step(actions).finished for actions in draw_actions(500, 32)]
    returns = np.concatenate([episodes.returns for episodes in finished])
    completed = np.concatenate([episodes.completed for episodes in finished])
    np.testing.assert_array_equal(completed, returns == 10)
    assert 0 < completed.sum() < len(completed)


@each_backend
@pytest.mark.parametrize("game", ["maze", "heist"])
def test_idling_ends_at_the_time_limit(game, backend):
    limit = GAMES[game].time_limit
    with make(game, 1, backend=backend) as games:
        steps = [games.step([4]) for _ in range(limit)]
    assert not any(step.dones.any() for step in steps[:-1])
    assert steps[-1].finished.lengths == [limit]
    assert not steps[-1].finished.completed


@each_backend
def test_what_was_observed_does_not_change_afterwards(backend):
    with make(backend=backend) as games:
        before = games.observe()
        kept = [array.copy() for array in before]
        first = games.step([0, 1, 2, 3])
        rewards = first.rewards.copy()
        for actions in draw_actions(100, 4):
            games.step(actions)
        assert_same([before], [tuple(kept)])
        np.testing.assert_array_equal(first.rewards, rewards)


@each_backend
def test_frames_can_be_written_where_they_are_wanted(backend):
    rollout = np.zeros((3, 4, 64, 64, 3), np.uint8)
    with make(backend=backend) as games:
        frames = games.observe(out=rollout[1])
        assert np.shares_memory(frames.obs, rollout)
        np.testing.assert_array_equal(rollout[1], games.observe().obs)
        assert not rollout[[0, 2]].any()
        with pytest.raises(UsageError, match=r"out must be uint8 of shape \(4, 64, 64, 3\), got uint8 of shape \(3,"):
            games.observe(out=rollout[0, :3])


@with_procgen
@pytest.mark.parametrize(("game", "mode"), [("bigfish", "easy"), ("leaper", "hard"), ("coinrun", "easy")])
def test_restored_games_go_on_as_if_nothing_had_happened(game, mode, tmp_path):
    """Over ends of episodes, and with the returns of episodes that were under way when saved."""
    settings = {"game": game, "num_envs": 8, "distribution_mode": mode, "backend": "procgen-mirror"}
    before, after = draw_actions(150, 8, seed=1), draw_actions(300, 8, seed=2)
    with make(**settings) as games:
        play(games, before)
        torch.save(games.state(), tmp_path / "games.pt")
        told = play(games, after)
    with make(**settings, seed=7) as restored:
        play(restored, before[:20])
        restored.restore(torch.load(tmp_path / "games.pt", weights_only=True))
        assert_same(told, play(restored, after))
    assert sum(step.dones.sum() for step in told[1::2]) > (0 if game == "coinrun" else 5)


@with_procgen
def test_saving_does_not_disturb_the_games():
    actions = draw_actions(100, 4)
    with make(backend="procgen-mirror") as one, make(backend="procgen-mirror") as other:
        told = [one.observe()]
        for row in actions:
            one.state()
            told += [one.step(row), one.observe()]
        assert_same(told, play(other, actions))


@with_procgen
def test_threads_change_nothing():
    actions = draw_actions(100, 8)
    with (
        make(num_envs=8, backend="procgen-mirror") as one,
        make(num_envs=8, threads=3, backend="procgen-mirror") as other,
    ):
        assert_same(play(one, actions), play(other, actions))


@with_procgen
def test_states_of_other_or_damaged_games_are_refused_and_harm_nothing():
    """Procgen itself would end the process."""
    settings = {"backend": "procgen-mirror"}
    with make(**settings) as games, make("leaper", **settings) as leaper:
        before, state = play(games, []), games.state()
        with pytest.raises(UsageError, match="the saved games have game='leaper', but here it is 'bigfish'"):
            games.restore(leaper.state())
        with pytest.raises(UsageError, match="the saved games have num_envs=3, but here it is 4"):
            games.restore({**state, "num_envs": 3})
        with pytest.raises(UsageError, match="their sizes do not add up"):
            games.restore({**state, "games": state["games"][:-1]})
        with pytest.raises(UsageError, match="damaged or of another version"):
            games.restore({**state, "games": state["games"].roll(1)})
        assert_same(before, play(games, []))


@needs("envpool")
def test_games_of_envpool_cannot_be_saved_and_start_anew():
    with make(backend="envpool") as games:
        assert not games.can_save
        play(games, draw_actions(5, games.num_envs))
        state = games.state()
        with make(backend="envpool") as fresh:
            fresh.restore(state)
            assert not fresh.observe().episode_steps.any()
            with pytest.raises(UsageError, match="the saved games have game='leaper', but here it is 'bigfish'"):
                fresh.restore({**state, "game": "leaper"})


@needs(*PROCGEN)
@pytest.mark.parametrize("mode", DISTRIBUTION_MODES)
@pytest.mark.parametrize("game", ["bigfish", "leaper", "chaser"])
def test_both_back_ends_play_the_same_game(game, mode):
    """Same level, same actions: same pixels, rewards and ends, over several episodes."""
    settings = {"distribution_mode": mode, "start_level": 11, "num_levels": 1}
    actions = draw_actions(300, 6)
    with make(game, 6, **settings, backend=PROCGEN[0]) as one, make(game, 6, **settings, backend=PROCGEN[1]) as other:
        told = play(one, actions)
        assert_same(told, play(other, actions))
    assert sum(step.dones.sum() for step in told[1::2]) > 0


@needs(*PROCGEN)
@pytest.mark.parametrize("game", GAMES)
def test_both_back_ends_agree_on_rewards_and_ends_in_every_game(game):
    """Frames may differ where Qt turns or scales a picture: 1 in 89 values was the most on level 11."""
    settings = {"start_level": 3, "num_levels": 1}
    actions = draw_actions(100, 4)
    with make(game, **settings, backend=PROCGEN[0]) as one, make(game, **settings, backend=PROCGEN[1]) as other:
        told, again = play(one, actions), play(other, actions)
    assert_same(told[1::2], again[1::2])
    assert_same([frames[1:] for frames in told[::2]], [frames[1:] for frames in again[::2]])
    for one, other in zip(told[::2], again[::2], strict=True):
        assert (one.obs != other.obs).mean() < 0.03


@each_backend
def test_making_games_prints_nothing(backend):
    """Neither gym's notice nor anything else, with every warning on; and gym is not even imported."""
    program = f"""
import sys
from clop.rl.envs.levels import LevelSet
foreign = ("procgen", "envpool", "gym", "gym3", "gymnasium")
assert not set(foreign) & set(sys.modules), "imported before it is used"
games = LevelSet("coinrun", num_levels=3).open(2, 0, {backend!r})
for action in range(15):
    games.step([action, action])
assert "gym" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_best_installed_back_end_is_chosen(monkeypatch):
    hide(monkeypatch)
    with monkeypatch.context() as other:
        other.setattr(sys, "platform", "darwin")
        with pytest.raises(UsageError, match='work without it: pip install "clop\\[rl\\]"'):
            make()
        other.setattr(sys, "platform", "linux")  # where that would bring an old numpy
        other.setattr(sys, "version_info", (3, 12))
        with pytest.raises(UsageError, match="work without it: pip install --no-deps procgen-mirror"):
            make()
    with pytest.raises(UsageError, match="procgen-mirror is not installed: pip install --no-deps procgen-mirror"):
        make(backend="procgen-mirror")
    with pytest.raises(UsageError, match="envpool is not installed: pip install envpool PyQt5-Qt5"):
        make(backend="envpool")
    monkeypatch.undo()
    if INSTALLED:
        assert choose_backend("auto", "bigfish") == min(INSTALLED, key=PROCGEN.index)
    if "envpool" in INSTALLED:
        hide(monkeypatch, "procgen")
        assert choose_backend("auto", "bigfish") == "envpool"


def hide(monkeypatch, *names):
    find, hidden = importlib.util.find_spec, names or ("procgen", "envpool")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in hidden else find(name, *rest))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"game": "bigfsh"}, r"unknown game 'bigfsh'; did you mean 'bigfish'\?"),
        ({"distribution_mode": "hrad"}, r"unknown distribution_mode 'hrad'; did you mean 'hard'\?"),
        ({"backend": "envpol"}, r"unknown back end 'envpol'; did you mean 'envpool'\?"),
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"threads": -1}, "threads must not be negative, got -1"),
        ({"seed": 2**31}, r"the seed of games must lie in \[0, 2147483647\], got 2147483648"),
        ({"start_level": -1}, "got start_level=-1 and num_levels=200"),
        ({"start_level": 2**31 - 200}, "levels must lie in"),
        ({"num_levels": 0, "start_level": 500}, "num_levels=0 stands for all levels, so start_level=500"),
    ],
)
def test_nonsense_is_refused_before_procgen_sees_it(settings, message):
    """Procgen itself would end the process, or do something else."""
    with pytest.raises(UsageError, match=message):
        make(**settings)


@any_backend
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 1, 2], r"actions must be 4 integers, got int64 of shape \(3,\)"),
        ([0.0, 1, 2, 3], r"actions must be 4 integers, got float64"),
        ([0, 1, 2, 15], r"actions must lie in \[0, 14\], got 0 to 15"),
        ([-1, 1, 2, 3], r"actions must lie in \[0, 14\], got -1 to 3"),
    ],
)
def test_actions_that_are_none_are_refused(actions, message):
    """Procgen would take -1 as a wish to end the episode."""
    with make() as games, pytest.raises(UsageError, match=message):
        games.step(actions)


@any_backend
def test_closed_games_say_so():
    games = make()
    games.close()
    games.close()
    for use in (games.observe, games.state, lambda: games.step([0, 0, 0, 0])):
        with pytest.raises(UsageError, match="these games of bigfish are closed"):
            use()


@any_backend
def test_actions_may_be_a_tensor():
    with make() as games:
        assert games.step(torch.tensor([0, 1, 2, 3])).rewards.shape == (4,)
