"""Videos: as many frames as steps, of the right size, and what they show."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from clop.errors import UsageError
from clop.rl import watch as module
from clop.rl.envs.levels import TrainLevels
from clop.rl.envs.vector import Episodes, Frames, Step, VectorGames, installed_backends
from clop.rl.evaluate import Agent
from clop.rl.methods.base import Context, Method
from clop.rl.network import Network, NetworkConfig, Output
from clop.rl.watch import BUTTONS, SIZE, Moment, WatchConfig, draw, watch, write_video

needs_games = pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="needs procgen-mirror")


class FakeGames(VectorGames):
    """Episodes of 3, 4, 5, ... steps with reward 1 in each; red counts the steps of all."""

    made: list["FakeGames"]

    def __init__(self, game, num_envs, *, mode, start_level, num_levels, rand_seed, backend):
        assert num_envs == 1
        self.start_level, self.num_levels, self.closed = start_level, num_levels, False
        self.episode, self.count, self.all = 0, 0, 0
        FakeGames.made.append(self)

    def observe(self, out=None):
        obs = np.full((1, 64, 64, 3), (10 * self.all, 90, 200), np.uint8)
        return Frames(obs, np.array([70 + self.episode], np.int32), np.array([self.count], np.int32))

    def step(self, actions):
        assert actions.shape == (1,)
        self.count, self.all = self.count + 1, self.all + 1
        done, level, length = self.count == 3 + self.episode, 70 + self.episode, self.count
        if done:
            self.episode, self.count = self.episode + 1, 0
        ended = np.flatnonzero([done])
        returns, lengths, levels = (np.array([value] * len(ended), np.int32) for value in (length, length, level))
        finished = Episodes(ended, returns.astype(np.float64), lengths, levels, lengths > 0)
        return Step(np.ones(1, np.float32), np.array([done]), finished)

    def close(self):
        self.closed = True


class Fixed(Method):
    """Half of the probability on action 7, the rest on all others."""

    def act(self, model, obs, stage, ctx):
        assert stage == "eval"
        probabilities = torch.full((1, 15), 0.5 / 14)
        probabilities[0, 7] = 0.5
        return Output(probabilities.log(), torch.tensor([2.5]))


@pytest.fixture
def fake_games(monkeypatch):
    FakeGames.made = []
    monkeypatch.setattr(module, "VectorGames", FakeGames)
    return FakeGames.made


@pytest.fixture
def agent():
    return Agent(torch.nn.Identity(), Fixed(), context())


def context():
    return Context(0, 0, 1, torch.device("cpu"), torch.Generator(), "eval", torch.nn.Identity())


def mp4_frames(path):
    av = pytest.importorskip("av")
    with av.open(str(path)) as container:
        rate = container.streams.video[0].average_rate
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)], rate


def red(frame):
    return round(float(np.asarray(frame)[200:300, 200:300, 0].mean()))


def test_an_mp4_has_a_frame_for_each_step_and_a_second_for_each_end(agent, fake_games, tmp_path):
    pytest.importorskip("av")
    path = tmp_path / "deep" / "video.mp4"
    rows = watch(agent, TrainLevels("bigfish"), path, WatchConfig(episodes=2, fps=5))
    frames, rate = mp4_frames(path)
    assert len(frames) == (3 + 5) + (4 + 5)
    assert rate == 5
    assert {frame.shape for frame in frames} == {(SIZE[1], SIZE[0], 3)}
    shown = [*range(3), *[2] * 5, *range(3, 7), *[6] * 5]
    assert all(abs(red(frame) - 10 * step) < 5 for frame, step in zip(frames, shown, strict=True))
    assert rows.returns.tolist() == [3, 4]
    assert rows.level_seeds.tolist() == [70, 71]
    assert fake_games[0].closed


def test_a_gif_has_a_frame_for_each_step_and_one_that_stays_for_each_end(agent, fake_games, tmp_path):
    path = tmp_path / "video.GIF"
    watch(agent, TrainLevels("bigfish"), path, WatchConfig(episodes=2, fps=20))
    with Image.open(path) as gif:
        assert (gif.n_frames, gif.size, gif.info["loop"]) == ((3 + 1) + (4 + 1), SIZE, 0)
        durations, reds = [], []
        for index in range(gif.n_frames):
            gif.seek(index)
            durations.append(gif.info["duration"])
            reds.append(red(gif.convert("RGB")))
    assert durations == [50] * 3 + [1000] + [50] * 4 + [1000]
    assert np.allclose(reds, [0, 10, 20, 20, 30, 40, 50, 60, 60], atol=5)


@pytest.mark.parametrize("name", ["video.avi", "video"])
def test_another_suffix_is_told_before_anything_is_played(agent, fake_games, tmp_path, name):
    with pytest.raises(UsageError, match=r"cannot write a video as .*; expected \.mp4 or \.gif"):
        watch(agent, TrainLevels("bigfish"), tmp_path / name)
    assert not fake_games
    assert not list(tmp_path.iterdir())


def test_an_agent_that_needs_many_games_is_told_before_anything_is_played(agent, fake_games, tmp_path):
    crowd = replace(agent, model=torch.nn.BatchNorm2d(3, track_running_stats=False))
    with pytest.raises(UsageError, match="a video shows one"):
        watch(crowd, TrainLevels("bigfish"), tmp_path / "agent.gif")
    assert not fake_games


def test_without_av_an_mp4_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "av" else name)
    with pytest.raises(UsageError, match=r"pip install av; or write a \.gif"):
        module.check_suffix(Path("a.mp4"))
    assert module.check_suffix(Path("a.gif")) == ".gif"


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, suffix):
    if suffix == ".mp4":
        pytest.importorskip("av")
    path = tmp_path / f"video{suffix}"
    path.write_bytes(b"old")

    def pictures():
        yield Image.new("RGB", SIZE), False
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_video(pictures(), path, 15)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(("levels", "expected"), [("train", (30, 200)), ("test", (0, 0))])
def test_seen_and_unseen_levels_are_those_of_the_evaluation(agent, fake_games, tmp_path, levels, expected):
    trained = TrainLevels("bigfish", start_level=30, num_levels=200)
    watch(agent, trained, tmp_path / "video.gif", WatchConfig(levels=levels, episodes=1))
    assert (fake_games[0].start_level, fake_games[0].num_levels) == expected


@pytest.mark.parametrize("setting", ["episodes", "fps"])
def test_settings_without_sense_are_refused(setting):
    with pytest.raises(UsageError, match="must be at least 1"):
        WatchConfig(**{setting: 0})


# ---- the picture -----------------------------------------------------------------------------------------------------


def moment(**changes):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(15)).astype(np.float32)
    frame = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    return Moment(frame, probabilities, 7, (0.5, 1.5), 2_147_483_646, 12, 3.0)._replace(**changes)


def test_the_frame_is_upscaled_without_blur():
    picture = np.asarray(draw(moment(), "bigfish", "unseen"))
    assert np.array_equal(picture[16 : 16 + 512 : 8, 16 : 16 + 512 : 8], moment().frame)
    assert np.array_equal(picture[23 : 16 + 512 : 8, 23 : 16 + 512 : 8], moment().frame)


@pytest.mark.parametrize("action", range(15))
def test_a_certain_action_fills_its_bar_and_no_other(action):
    certain = np.eye(15, dtype=np.float32)[action]
    sure = np.asarray(draw(moment(probabilities=certain, action=action), "bigfish", "unseen")).astype(int)
    for other in range(15):
        row = module._bar_top(other) + 6
        groove = (sure[row, module._BAR_LEFT + 2 : module._BAR_RIGHT - 2] == module._GROOVE).all()
        filled = (sure[row, module._BAR_LEFT + 2 : module._BAR_RIGHT - 2] == module._CHOSEN).all()
        assert (groove, filled) == ((False, True) if other == action else (True, False))


@pytest.mark.parametrize(
    "changes",
    [{"level": 7}, {"step": 13}, {"total": 4.0}, {"values": (0.5, 1.6)}, {"action": 8}, {"outcome": "solved"}],
)
def test_each_thing_that_changes_is_seen(changes):
    before, after = (np.asarray(draw(m, "bigfish", "unseen")) for m in (moment(), moment(**changes)))
    assert (before != after).any()


def test_nothing_is_drawn_over_the_edge_or_the_frame_for_the_largest_numbers():
    """Margins stay paper-white: a text that is too long would run into them or into the game."""
    large = moment(level=2_147_483_646, step=6000, total=-1234.5678, values=(-100.25,) * 500, outcome="")
    picture = np.asarray(draw(large, "bossfight, hard", "seen in training"))
    margins = (picture[:, :16], picture[:, -15:], picture[:6], picture[-10:], picture[:, 16 + 512 : 16 + 512 + 12])
    assert all((margin == module._PAPER).all() for margin in margins)


def test_labels_do_not_overlap():
    font = module._font(13)
    assert len(BUTTONS) == 15
    assert all(font.getlength(name) < 80 for name in BUTTONS)
    tops = [module._bar_top(action) for action in range(15)]
    assert all(below - above > module._BAR_HEIGHT + 4 for above, below in itertools.pairwise(tops))
    third = (module._RIGHT - module._LEFT) // 3
    assert all(module._font(24).getlength(text) < third - 4 for text in ("6000", "-1235", "-100.25"))


# ---- a real game -----------------------------------------------------------------------------------------------------


@needs_games
def test_a_network_plays_a_real_game_and_is_left_as_it_was(tmp_path):
    torch.manual_seed(0)
    model = Network(NetworkConfig()).train()
    real = Agent(model, Method(), context())
    trained, config = TrainLevels("dodgeball", num_levels=3), WatchConfig(levels="train", episodes=1)
    rows = watch(real, trained, tmp_path / "a.gif", config)
    again = watch(real, trained, tmp_path / "b.gif", config)
    assert rows.level_seeds[0] < 3
    assert model.training
    assert [column.tolist() for column in rows] == [column.tolist() for column in again]
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == rows.lengths[0] + 1
