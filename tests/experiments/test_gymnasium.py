"""Agents on games that are not Procgen's, through the command line: tiny ones of our own, and MiniGrid."""

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from clop.cli import main
from clop.errors import DivergedError, UsageError
from clop.experiments.run_folder import RunFolder
from clop.rl import TrainConfig, load_agent, run
from clop.rl.ppo import Learner

GAMES = Path(__file__).parents[1] / "rl" / "envs"  # of tiny_games
TINY = {
    "total_timesteps": 48,
    "num_levels": 5,
    "eval_episodes": 4,
    "test_every": 0,
    "processes": 1,
    "ppo.num_envs": 2,
    "ppo.num_steps": 4,
    "ppo.num_minibatches": 2,
    "ppo.update_epochs": 1,
    "network.encoder": "small",
}
WRAPPERS = """
from multiprocessing import parent_process

import numpy as np
from gymnasium import ObservationWrapper, Wrapper
from gymnasium.spaces import Box

class Large(ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = Box(0, 255, (32, 32, env.observation_space.shape[2]), np.uint8)

    def observation(self, frame):
        return frame.repeat(4, 0).repeat(4, 1)

class Oblong(ObservationWrapper):
    # Four channels, which are no colours.
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = Box(0, 255, (32, 40, 4), np.uint8)

    def observation(self, frame):
        return frame.repeat(4, 0).repeat(5, 1).repeat(4, 2)

class Blind(ObservationWrapper):
    def observation(self, frame):
        return np.zeros_like(frame)

class BrokenElsewhere(Wrapper):
    # In all learning processes but the first.
    def reset(self, **arguments):
        self.broken(self.at_reset)
        return super().reset(**arguments)

    def step(self, action):
        self.broken(not self.at_reset)
        return super().step(action)

    at_reset = True

    def broken(self, here):
        if here and parent_process() is not None:
            raise RuntimeError("this level is broken")

class BrokenLater(BrokenElsewhere):
    at_reset = False
"""
OBLONG = "--wrapper=clop_test_wrappers:Oblong"
LARGE = "--wrapper=clop_test_wrappers:Large"  # the frames of tiny games are 8 x 8, too small for any encoder

with_minigrid = pytest.mark.skipif(importlib.util.find_spec("minigrid") is None, reason="not installed: minigrid")


@pytest.fixture(autouse=True)
def _games(monkeypatch, tmp_path_factory):
    """The modules of games and wrappers are found by their names."""
    folder = tmp_path_factory.mktemp("wrappers")
    (folder / "clop_test_wrappers.py").write_text(WRAPPERS)
    monkeypatch.syspath_prepend(GAMES)
    monkeypatch.syspath_prepend(folder)


def train(game, out, *more, **settings):
    return ["train", game, f"--out={out}", *(f"--{name}={value}" for name, value in (TINY | settings).items()), *more]


def assert_is_evaluated_and_watched(out, game, capsys):
    """Returns without a published range are not normalised; the share of solved levels is there."""
    assert main(["evaluate", str(out), "--episodes", "3", "--split", "train"]) == 0
    told = capsys.readouterr().out
    assert f"{game} with ppo, quick, 48 steps: " in told
    assert "normalised" not in told
    assert "% solved, on train levels" in told
    (kept,) = (out / "evaluations").glob("clop-v1-train-3-*.json")
    values = json.loads(kept.read_text())
    assert values["normalised_mean"] is None
    assert 0 <= values["success_rate"] <= 1
    video = out.with_suffix(".gif")
    assert main(["watch", str(out), "--episodes", "1", "--out", str(video)]) == 0
    assert video.read_bytes().startswith(b"GIF8")


@pytest.mark.parametrize("backend", ["gymnasium-sync", "gymnasium-async"])
def test_an_agent_on_a_game_of_ones_own_is_trained_evaluated_and_watched(backend, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(train("tiny_games:make", out, LARGE, backend=backend)) == 0
    assert "begins with the same frame" not in capsys.readouterr().err
    folder = RunFolder(out)
    assert (folder.config["distribution_mode"], folder.config["backend"]) == ("none", backend)
    assert [row["env_steps"] for row in folder.metrics()] == [8, 16, 24, 32, 40, 48]
    for split in ("train", "test"):
        result = folder.summary[split]
        assert (result["normalised_mean"], result["episodes"]) == (None, 4)
        assert 0 <= result["success_rate"] <= 1
        assert 0 <= result["mean"] <= 6  # three steps, whose rewards are the actions 0, 1 and 2
    assert folder.summary["train"]["level_text"] == "levels 0 to 4"
    assert_is_evaluated_and_watched(out, "tiny_games:make", capsys)


def test_the_folder_of_a_game_of_ones_own_is_named_after_it(tmp_path, monkeypatch, capsys):
    """Fails if a colon, which some systems do not take, ends up in a path."""
    monkeypatch.chdir(tmp_path)
    assert main([word for word in train("tiny_games:make", "", LARGE, seed=3) if not word.startswith("--out")]) == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["tiny_games-make-ppo-3"]


def test_wrappers_are_part_of_the_run(tmp_path):
    out = tmp_path / "run"
    assert main(train("tiny_games:make", out, LARGE, "--wrapper", "tiny_games:Twice")) == 0
    assert RunFolder(out).config["wrappers"] == ["clop_test_wrappers:Large", "tiny_games:Twice"]
    assert load_agent(out).spec.obs_shape == (32, 32, 2)


def test_an_agent_gives_the_actions_of_the_game_itself(tmp_path):
    """Of a game that counts them from 1. Fails if they count from 0, or where an export from before this was known is
    refused."""
    out, export = tmp_path / "run", tmp_path / "export"
    assert main(train("tiny_games:OneBased", out, LARGE)) == 0
    assert main(["export", str(out), "--to", "safetensors", "--out", str(export), "--frames", "100"]) == 0
    frames = np.random.default_rng(0).integers(0, 256, (99, 32, 32, 1), np.uint8)
    for agent in (load_agent(out), load_agent(export)):
        assert set(agent.act(frames).tolist()) == {1, 2, 3}
    about = json.loads((export / "config.json").read_text())
    assert about["spec"].pop("first_action") == 1
    (export / "config.json").write_text(json.dumps(about))
    assert set(load_agent(export).act(frames).tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("rad", "rad (rad.augmentation crop)"),
        ("rad(aug=random_conv, where=both)", "rad (rad.augmentation random_conv)"),
        ("drac(aug=cutout_color)+rand_fm", "(drac.augmentation cutout_color; "),
        ("ucb_drac(init=sweep)", "(ucb_drac.init sweep; ucb_drac.arms crop "),
    ],
)
def test_frames_are_augmented_whatever_their_shape_and_channels(method, named, tmp_path, capsys):
    """Fails when a run on four channels, or on oblong frames, begins and ends with a stack trace."""
    assert main(train("tiny_games:make", tmp_path / "run", OBLONG, method=method)) == 0
    assert named in capsys.readouterr().out


def test_a_run_on_a_game_of_ones_own_goes_on_with_new_episodes_and_says_so(tmp_path, monkeypatch, capsys):
    """Fails if the loop asks for what these games cannot give, their state, or is silent about it."""
    out, iterate = tmp_path / "run", Learner.iterate

    def interrupted(self):
        if self.iteration == 2:
            raise KeyboardInterrupt
        return iterate(self)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "iterate", interrupted)
        assert main(train("tiny_games:make", out, LARGE, "--checkpoint-minutes", "0")) == 2
    capsys.readouterr()
    assert main(["train", "--resume", str(out)]) == 0
    told = capsys.readouterr().err
    assert (
        "clop: gymnasium-sync cannot save running games: episodes start anew, and the run goes on well but not bit for "
        "bit\n"
    ) in told
    assert [row["iteration"] for row in RunFolder(out).metrics()] == [1, 2, 3, 4, 5, 6]


def test_a_game_that_begins_alike_whatever_its_seed_is_warned_of(tmp_path, capsys):
    """Its training and test levels are the same."""
    assert main(train("tiny_games:make", tmp_path / "run", LARGE, "--wrapper", "clop_test_wrappers:Blind")) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "begins with the same frame" in line]
    assert len(told) == 1
    assert told[0].startswith("clop: tiny_games:make begins with the same frame for 4 different seeds")


@pytest.mark.parametrize(
    ("game", "more", "sentence"),
    [
        ("tiny_games:raises", (), "tiny_games:raises raised RuntimeError: no graphics card"),
        ("tiny_games:makee", (), "did you mean 'make'?"),
        ("tiny_games:shows_dict", (), "pick out the image by a wrapper: --wrapper module:Class"),
        (
            "tiny_games:make",
            ("--wrapper", "tiny_games:Twise"),
            "no 'Twise' for the wrapper tiny_games:Twise; did you mean 'Twice'?",
        ),
        ("tiny_games:make", ("--network.encoder", "smal"), "unknown network.encoder 'smal'; did you mean 'small'?"),
        (
            "tiny_games:make",
            ("--network.encoder", "nature"),
            "frames of 8×8 leave a map of 1×1 behind the encoder nature, which must be 2×2 at least; enlarge them",
        ),
        (
            "tiny_games:make",
            (LARGE, "--method", "clop", "--clop.slot", "block2"),
            "unknown clop.slot 'block2'; expected one of actor_in, conv1, conv2, conv3, residual (the encoder is small)"
            "\n",
        ),
        (
            "tiny_games:make",
            (OBLONG, "--method", "rad(aug=grayscale)"),
            "clop: grayscale takes images of 1 or 3 channels, but tiny_games:make shows 4 channels of 32×40; use one "
            "of crop, cutout, cutout_color, flip, random_conv, translate, rotation\n",
        ),
        (
            "tiny_games:make",
            (OBLONG, "--method", "rad(aug=rotate, constants=clop)"),
            "clop: rotate takes square images, but tiny_games:make shows 4 channels of 32×40; use one of cutout, "
            "cutout_color, flip, random_conv\n",
        ),
        (
            "tiny_games:make",
            (OBLONG, "--method", "drac(aug=color_jitter)"),
            "clop: color_jitter takes images of 1 or 3 channels, but tiny_games:make shows 4 channels",
        ),
        (
            "tiny_games:make",
            (LARGE, "--method", "rad(aug=random-conv)"),
            "unknown rad.aug 'random-conv'; did you mean 'random_conv'?",
        ),
        (
            "tiny_games:make",
            (LARGE, "--method", "rad", "--rad.aug", "tilt"),
            "unknown rad.aug 'tilt'; expected one of crop, grayscale, cutout, cutout_color, flip, rotate, random_conv",
        ),
        (
            "tiny_games:make",
            ("--distribution-mode", "hard"),
            "distribution_mode is a setting of Procgen; tiny_games:make has none, got 'hard'",
        ),
        ("tiny_games:make", ("--backend", "procgen-mirror"), "procgen-mirror does not play tiny_games:make"),
        ("bigfish", ("--backend", "gymnasium-sync"), "gymnasium-sync does not play bigfish"),
        ("bigfish", (LARGE,), "wrappers are for Gymnasium's environments; bigfish is played as it is"),
        ("gymnasium:CartPole-v1", (), "clop learns from uint8 images (H, W, C)"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_folder(game, more, sentence, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(train(game, tmp_path / "run", *more)) == 2
    captured = capfd.readouterr()
    assert captured.err.startswith("clop: ")
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrapper", ["BrokenElsewhere", "BrokenLater"])
def test_a_game_that_fails_in_another_process_is_named(wrapper, tmp_path, capfd):
    """Fails when all that is said is that the other process is gone, or if that comes with a stack trace."""
    out = tmp_path / "run"
    words = train("tiny_games:make", out, LARGE, f"--wrapper=clop_test_wrappers:{wrapper}", backend="gymnasium-sync")
    assert main([*words, "--processes=2", "--ppo.num-envs=4"]) == 2
    errors = capfd.readouterr().err
    assert "Traceback" not in errors
    told = errors.splitlines()[-1]
    assert " of tiny_games:make raised RuntimeError: this level is broken" in told
    if wrapper == "BrokenLater":
        assert told.endswith(f"; {out} holds no state yet, go on with: clop train --resume {out}")


def test_a_run_that_fails_leaves_no_game_behind(tmp_path):
    """Games in processes of their own would live as long as the error is kept, as a notebook keeps it."""
    changes = {name: value for name, value in TINY.items() if name != "total_timesteps"}
    game = {"game": "tiny_games:make", "wrappers": ("clop_test_wrappers:Large",), "backend": "gymnasium-async"}
    config = TrainConfig.preset("quick", **game, **changes)

    def diverging(self):
        assert multiprocessing.active_children()
        raise DivergedError("the loss is no longer a number")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "update", diverging)
        with pytest.raises(UsageError, match="run holds no state yet; try a smaller learning rate") as error:
            run(config, tmp_path / "run")
    assert multiprocessing.active_children() == []
    del error


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_run_whose_whole_group_is_terminated_saves_as_one_does_alone(tmp_path):
    """Schedulers end all processes of a job at once. Fails if the games die of it before the learner has saved."""
    out = tmp_path / "run"
    words = train("tiny_games:make", out, LARGE, backend="gymnasium-async", total_timesteps=800_000)
    path = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, "-m", "clop", *words],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    run = RunFolder(out)
    while not run.metrics():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    games = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(games) == 2
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2
    steps = run.metrics()[-1]["env_steps"]
    assert errors.splitlines()[-1] == f"clop: stopped after {steps} steps; go on with: clop train --resume {out}"
    assert run.load()["iteration"] == run.metrics()[-1]["iteration"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in games)


@with_minigrid
def test_an_agent_on_minigrid_is_trained_evaluated_and_watched(tmp_path, capsys):
    """One of whose levels are all alike, which is said."""
    out, game = tmp_path / "run", "gymnasium:MiniGrid-Empty-5x5-v0"
    wrappers = [f"--wrapper=minigrid.wrappers:{name}" for name in ("RGBImgObsWrapper", "ImgObsWrapper")]
    assert main(train(game, out, *wrappers)) == 0
    assert f"clop: {game} begins with the same frame for 4 different seeds" in capsys.readouterr().err
    assert load_agent(out).spec.obs_shape == (40, 40, 3)
    assert_is_evaluated_and_watched(out, game, capsys)
