"""Videos of agents: a frame for each step, the levels they play, and what the pictures show."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from clop.errors import UsageError
from clop.progress import Progress
from clop.rl.agent import Agent
from clop.rl.envs.backends import installed_backends
from clop.rl.envs.levels import LevelSet
from clop.rl.envs.spec import EnvSpec, Episodes, Frames, Step
from clop.rl.envs.vector import VectorGames
from clop.rl.games import INT32_MAX
from clop.rl.methods.base import Context, Method
from clop.rl.network import Network, Output
from clop.rl.pictures.layout import panels_together, single_panel, size_of
from clop.rl.pictures.moment import Scene
from clop.rl.settings import NetworkConfig
from clop.rl.watch import WatchConfig, draw_levels, watch, watch_together

needs_games = pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="needs procgen-mirror")
PROCGEN = LevelSet("bigfish").spec
MINIGRID = EnvSpec((40, 40, 3), 7, 0, ("left", "right", "forward", "pickup", "drop", "toggle", "done"))
NAMES = Scene("", "", PROCGEN).names
SIZE = size_of((single_panel(NAMES),))


class FakeGames(VectorGames):
    """Episodes of 3, 4, 5, ... steps with reward 1 in each, or in a single level as many as the action; red counts."""

    made: list["FakeGames"]

    def __init__(self, levels, num_envs, seed, backend="auto"):
        assert num_envs == 1
        self.levels, self.closed, self.waits = levels, False, levels.num_levels == 1
        self.episode, self.count, self.all = 0, 0, 0
        FakeGames.made.append(self)

    @property
    def level(self):
        return self.levels.start_level if self.waits else 70 + self.episode

    def observe(self, out=None):
        obs = np.full((1, 64, 64, 3), (10 * self.all, 90, 200), np.uint8)
        return Frames(obs, np.array([self.level], np.int32), np.array([self.count], np.int32))

    def step(self, actions):
        assert actions.shape == (1,)
        self.count, self.all = self.count + 1, self.all + 1
        done, level, length = self.count == (actions[0] if self.waits else 3 + self.episode), self.level, self.count
        if done:
            self.episode, self.count = self.episode + 1, 0
        ended = np.flatnonzero([done])
        returns, lengths, levels = (np.array([value] * len(ended), np.int32) for value in (length, length, level))
        finished = Episodes(ended, returns.astype(np.float64), lengths, levels, lengths > 0)
        return Step(np.ones(1, np.float32), np.array([done]), finished)

    def close(self):
        self.closed = True


class Fixed(Method):
    """Half of the probability on one action, the rest on all others."""

    def __init__(self, action=7):
        self.action = action

    def act(self, obs, stage, ctx):
        assert stage == "eval"
        probabilities = torch.full((1, 15), 0.5 / 14)
        probabilities[0, self.action] = 0.5
        return Output(probabilities.log(), torch.tensor([2.5]))


class Uniform(Method):
    """No network, which would take most of the time."""

    def __init__(self, spec):
        self.spec = spec

    def act(self, obs, stage, ctx):
        return Output(torch.zeros(1, self.spec.num_actions), torch.zeros(1))


@pytest.fixture
def fake_games(monkeypatch):
    FakeGames.made = []
    monkeypatch.setattr(LevelSet, "open", lambda *arguments: FakeGames(*arguments))
    return FakeGames.made


def fixed(action):
    model = torch.nn.Identity()
    return Agent(model, Fixed(action), context(model), PROCGEN)


def uniform(spec):
    model = torch.nn.Identity()
    return Agent(model, Uniform(spec), context(model), spec)


@pytest.fixture
def agent():
    return fixed(7)


def context(model):
    return Context(0, 0, torch.device("cpu"), torch.Generator(), "eval", model)


def gif_frames(path):
    with Image.open(path) as gif:
        for index in range(gif.n_frames):
            gif.seek(index)
            yield gif.convert("RGB"), gif.info["duration"]


def red(frame):
    return round(float(np.asarray(frame)[200:300, 200:300, 0].mean()))


# ---- one agent -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_a_film_has_a_frame_for_each_step_and_a_second_for_each_end(agent, fake_games, tmp_path, suffix):
    av = pytest.importorskip("av")
    path = tmp_path / f"video{suffix}"
    rows = watch(agent, LevelSet("bigfish"), path, WatchConfig(episodes=2, fps=5))
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert {frame.shape for frame in frames} == {(SIZE[1], SIZE[0], 3)}
    shown = [*range(3), *[2] * 5, *range(3, 7), *[6] * 5]
    assert all(abs(red(frame) - 10 * step) < 6 for frame, step in zip(frames, shown, strict=True))
    assert rows.returns.tolist() == [3, 4]
    assert rows.level_seeds.tolist() == [70, 71]
    assert fake_games[0].closed


def test_a_gif_has_a_frame_for_each_step_and_one_that_stays_for_each_end(agent, fake_games, tmp_path):
    path = tmp_path / "video.GIF"
    watch(agent, LevelSet("bigfish"), path, WatchConfig(episodes=2, fps=20))
    frames, durations = zip(*gif_frames(path), strict=True)
    assert durations == (*[50] * 3, 1000, *[50] * 4, 1000)
    assert np.allclose([red(frame) for frame in frames], [0, 10, 20, 20, 30, 40, 50, 60, 60], atol=5)


def test_each_episode_is_told(agent, fake_games, tmp_path):
    progress = Progress("watch", 2, "episodes")
    watch(agent, LevelSet("bigfish"), tmp_path / "video.gif", WatchConfig(episodes=2), progress=progress)
    assert (progress.done, progress.values) == (2, {"return": "4"})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("video.avi", {}, "cannot write a video as '.avi'"),
        ("a.gif", {"model": torch.nn.BatchNorm2d(3, track_running_stats=False)}, "a video shows one"),
        ("a.gif", {"spec": MINIGRID}, r"knows frames of \(40, 40, 3\) and 7 actions, and bigfish has \(64, 64, 3\)"),
    ],
)
def test_what_cannot_be_shown_is_told_before_anything_is_played(agent, fake_games, tmp_path, name, change, message):
    other = replace(agent, **change)
    with pytest.raises(UsageError, match=message):
        watch(other, LevelSet("bigfish"), tmp_path / name)
    with pytest.raises(UsageError, match=message):
        watch_together({"PPO": agent, "other": other}, LevelSet("bigfish"), tmp_path / name)
    assert not fake_games
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("split", "expected"), [("train", (30, 200)), ("test", (0, 0))])
def test_seen_and_unseen_levels_are_those_of_the_evaluation(agent, fake_games, tmp_path, split, expected):
    trained = LevelSet("bigfish", start_level=30, num_levels=200)
    watch(agent, trained, tmp_path / "video.gif", WatchConfig(split=split, episodes=1))
    assert (fake_games[0].levels.start_level, fake_games[0].levels.num_levels) == expected


@pytest.mark.parametrize("setting", ["episodes", "fps"])
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(UsageError, match="must be at least 1"):
        WatchConfig(**{setting: 0})


# ---- agents side by side ---------------------------------------------------------------------------------------------


def test_all_agents_play_the_same_levels_and_who_has_ended_stays_at_the_last_frame(fake_games, tmp_path):
    """Fails if an agent goes on to its next episode, or starts the next level, while another still plays."""
    agents = {"short": fixed(2), "long": fixed(5)}
    config = WatchConfig(episodes=2, greedy=True, fps=20)
    progress = Progress("watch", 4, "episodes")
    played = watch_together(agents, LevelSet("bigfish"), tmp_path / "video.gif", config, progress=progress)
    levels = draw_levels(LevelSet("bigfish"), config)
    assert {label: rows.level_seeds.tolist() for label, rows in played.items()} == dict.fromkeys(agents, levels)
    assert {label: rows.lengths.tolist() for label, rows in played.items()} == {"short": [2, 2], "long": [5, 5]}
    assert [games.levels for games in fake_games] == [
        LevelSet("bigfish").single(level) for level in levels for _ in "ab"
    ]
    assert all(games.closed for games in fake_games)
    assert progress.done == 4
    frames, durations = zip(*gif_frames(tmp_path / "video.gif"), strict=True)
    assert durations == 2 * (*[50] * 5, 1000)
    short, long = panels_together(2, NAMES)
    for panel, counts in ((short, [0, 1, 1, 1, 1, 1]), (long, [0, 1, 2, 3, 4, 4])):
        left, top, *_ = panel.frame
        shown = [np.asarray(frame)[top + 50 : top + 90, left + 50 : left + 90, 0].mean() for frame in frames]
        assert np.allclose(shown, [10 * count for count in 2 * counts], atol=5)


@pytest.mark.parametrize("count", [1, 5])
def test_only_two_to_four_agents_stand_side_by_side(fake_games, tmp_path, count):
    agents = {str(index): fixed(2) for index in range(count)}
    with pytest.raises(UsageError, match=f"two to four agents side by side, got {count}"):
        watch_together(agents, LevelSet("bigfish"), tmp_path / "video.gif")
    assert not fake_games


def test_levels_follow_from_the_seed_and_differ():
    trained = LevelSet("bigfish")
    drawn = [tuple(draw_levels(trained, WatchConfig(episodes=9, seed=seed))) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(set(levels)) == 9 for levels in drawn)


def test_unseen_levels_are_never_levels_of_training():
    """With all but four levels trained on, a draw among all levels would miss those four almost surely."""
    trained = LevelSet("bigfish", start_level=2, num_levels=INT32_MAX - 4)
    drawn = draw_levels(trained, WatchConfig(episodes=4))
    assert sorted(drawn) == [0, 1, INT32_MAX - 2, INT32_MAX - 1]


@pytest.mark.parametrize(
    ("trained", "split", "allowed"),
    [
        (LevelSet("bigfish", start_level=30, num_levels=3), "train", range(30, 33)),
        (LevelSet("bigfish", "hard", num_levels=500), "test", range(500, 1500)),
        (LevelSet("bigfish", num_levels=0), "test", range(INT32_MAX)),
        (LevelSet("bigfish", num_levels=INT32_MAX), "test", range(INT32_MAX)),
        (LevelSet("gymnasium:Any-v0", "none", num_levels=5), "test", range(10**9, 10**9 + 10**6)),
    ],
)
def test_drawn_levels_lie_in_the_split(trained, split, allowed):
    drawn = draw_levels(trained, WatchConfig(split=split, episodes=20))
    assert len(drawn) == 20
    assert all(level in allowed for level in drawn)


# ---- a real game -----------------------------------------------------------------------------------------------------


@needs_games
def test_a_network_plays_a_real_game_and_is_left_as_it_was(tmp_path):
    torch.manual_seed(0)
    model = Network(NetworkConfig(), PROCGEN).train()
    real = Agent(model, Method(), context(model), PROCGEN)
    trained, config = LevelSet("dodgeball", num_levels=3), WatchConfig(split="train", episodes=1)
    rows = watch(real, trained, tmp_path / "a.gif", config)
    again = watch(real, trained, tmp_path / "b.gif", config)
    assert rows.level_seeds[0] < 3
    assert model.training
    assert [column.tolist() for column in rows] == [column.tolist() for column in again]
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == rows.lengths[0] + 1


@needs_games
def test_an_agent_plays_the_same_whoever_plays_beside_it(tmp_path):
    """Fails if agents share their games or the random numbers for their actions."""
    trained, config = LevelSet("dodgeball", num_levels=3), WatchConfig(episodes=2)
    path = tmp_path / "video.gif"
    both = watch_together({"b": fixed(7), "a": uniform(PROCGEN)}, trained, path, config)
    lengths = np.maximum(both["a"].lengths, both["b"].lengths)
    with Image.open(path) as gif:
        assert gif.n_frames == lengths.sum() + len(lengths)
    three = watch_together({"b": fixed(4), "c": fixed(7), "a": uniform(PROCGEN)}, trained, path, config)
    assert [column.tolist() for column in both["a"]] == [column.tolist() for column in three["a"]]


def test_a_game_of_gymnasium_is_shown(tmp_path):
    pytest.importorskip("minigrid")
    wrappers = ("minigrid.wrappers:RGBImgObsWrapper", "minigrid.wrappers:ImgObsWrapper")
    trained = LevelSet("gymnasium:MiniGrid-Empty-5x5-v0", "none", num_levels=5, wrappers=wrappers)
    agents = {"PPO": uniform(trained.spec), "PPO with CLOP": uniform(trained.spec)}
    config = WatchConfig(episodes=1)
    rows = watch(agents["PPO"], trained, tmp_path / "one.gif", config)
    played = watch_together(agents, trained, tmp_path / "two.gif", config)
    assert rows.level_seeds[0] >= 10**9
    assert {rows.level_seeds[0] for rows in played.values()} == set(draw_levels(trained, config))
    with Image.open(tmp_path / "one.gif") as gif:
        assert (gif.n_frames, gif.size) == (rows.lengths[0] + 1, SIZE)


@needs_games
@pytest.mark.parametrize("who", ["policy", "value"])
def test_heat_changes_the_picture_and_not_the_play(tmp_path, who):
    """Fails if looking draws from the agent's random numbers, or leaves it in another mode."""
    torch.manual_seed(0)
    model = Network(NetworkConfig(encoder="small"), PROCGEN).train()
    real, trained = Agent(model, Method(), context(model), PROCGEN), LevelSet("dodgeball", num_levels=3)
    plain = watch(real, trained, tmp_path / "a.gif", WatchConfig(episodes=1))
    heated = watch(real, trained, tmp_path / "b.gif", WatchConfig(episodes=1, saliency=who))
    assert [column.tolist() for column in plain] == [column.tolist() for column in heated]
    assert model.training
    with Image.open(tmp_path / "b.gif") as gif:
        assert gif.size == size_of((single_panel(NAMES, True),))
