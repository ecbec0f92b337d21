"""Looking at the same frames with several networks, and the intervals of what is measured."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from clop.cli import main
from clop.errors import UsageError
from clop.experiments import agents
from clop.experiments.record import RunRecord
from clop.experiments.saliency import SaliencyConfig, agent_label, find_runs, look, measure, over_levels
from clop.report.saliency import groups, table
from clop.rl.config import TrainConfig
from clop.rl.envs.backends import installed_backends

pytestmark = pytest.mark.skipif("procgen-mirror" not in installed_backends(), reason="needs procgen-mirror")


def test_all_networks_look_at_the_same_frames_which_follow_from_the_seed(tiny_runs):
    config = SaliencyConfig(frames=6)
    frames, maps = look(tiny_runs, config)
    again, same = look(tiny_runs, config)
    assert frames.pixels.shape == (6, 64, 64, 3)
    assert np.array_equal(frames.pixels, again.pixels)
    assert list(maps) == ["clop", "ppo"]
    assert all(np.array_equal(maps[name], same[name]) for name in maps)
    assert not np.array_equal(maps["clop"], maps["ppo"])
    assert not np.array_equal(look(tiny_runs, SaliencyConfig(frames=6, seed=1))[0].pixels, frames.pixels)


def test_the_record_has_every_network_and_a_control_of_random_weights(tiny_runs):
    record = measure(tiny_runs, SaliencyConfig(frames=40))
    labels = [row["label"] for row in record.metrics["networks"]]
    assert labels == ["clop", "ppo", *["random weights"] * 5]
    control = [row["entropy"]["mean"] for row in record.metrics["networks"][2:]]
    assert len(set(control)) == 5  # each has weights of its own
    for group in groups(record):
        assert 0 < group.estimate("entropy").value <= 1
        assert 0 < group.estimate("half_mass").value <= 0.5
    text = table(record)
    assert "| random weights |     5 |" in text
    assert "40 frames" in text


def test_the_command_writes_a_picture_and_a_record(tiny_runs, tmp_path, capsys):
    picture, record = tmp_path / "looks.png", tmp_path / "looks.json"
    folders = [str(run) for run in tiny_runs]
    words = [
        "saliency",
        *folders,
        "--frames",
        "3",
        "--target",
        "value",
        "--out",
        str(picture),
        "--measure",
        str(record),
    ]
    assert main(words) == 0
    with Image.open(picture) as image:
        assert image.width > 3 * 192
    assert RunRecord.read(record).config["target"] == "value"
    assert main(["saliency", *folders]) == 2
    assert "name a picture with --out" in capsys.readouterr().err


def test_runs_on_other_games_and_too_few_frames_are_refused(tiny_runs, tiny, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="frames must be at least 1"):
        SaliencyConfig(frames=0)
    config = TrainConfig.preset("quick", "chaser", "ppo", **tiny)
    monkeypatch.setattr(agents, "summarise", lambda *_: None)
    agents.run(config, tmp_path / "chaser", "cpu")
    with pytest.raises(UsageError, match="got runs on bigfish, chaser"):
        look([*tiny_runs, tmp_path / "chaser"], SaliencyConfig())


def test_methods_that_remember_their_settings_have_a_control_too(tiny, tmp_path, monkeypatch):
    """Fails when the network of random weights is filled by a method that was never told the settings."""
    monkeypatch.setattr(agents, "summarise", lambda *_: None)
    agents.run(TrainConfig.preset("quick", "bigfish", "rad", **tiny), tmp_path / "rad", "cpu")
    record = measure([tmp_path / "rad"], SaliencyConfig(frames=2))
    assert [row["label"] for row in record.metrics["networks"]] == ["rad", *["random weights"] * 5]


def test_the_interval_over_frames_is_that_of_levels():
    """Fails if frames of one level count as independent: 50 copies of each would make it seven times narrower."""
    rng = np.random.default_rng(0)
    values = rng.random(20)
    alone = over_levels(values, np.arange(20), 0)
    copied = over_levels(np.repeat(values, 50), np.repeat(np.arange(20), 50), 0)
    assert copied["low"] == pytest.approx(alone["low"])
    assert copied["high"] == pytest.approx(alone["high"])
    assert alone["low"] < alone["mean"] < alone["high"]


def test_empty_maps_are_left_out_of_the_mean():
    assert over_levels(np.array([0.5, np.nan]), np.array([0, 1]), 0)["mean"] == 0.5
    assert over_levels(np.array([np.nan]), np.array([0]), 0)["mean"] is None


def test_a_label_names_what_is_not_default():
    plain = TrainConfig.preset("quick", "bigfish", "clop")
    assert agent_label(plain) == "clop"
    config = TrainConfig.preset("quick", "bigfish", "clop", clop={"local": False})
    assert agent_label(config) == "clop(local=False)"


def test_classifiers_can_look_too(tmp_path):
    pytest.importorskip("sklearn")
    from clop.experiments import vision
    from clop.vision import tasks
    from clop.vision.train import paper_config

    task = tasks.load("digits", train_images=64)
    config = paper_config("digits", epochs=1, train_images=64, threads=torch.get_num_threads())
    vision.run(config, tmp_path / "run", task=task)
    frames, maps = look([tmp_path / "run"], SaliencyConfig(frames=4))
    assert frames.pixels.shape == (4, 32, 32, 1)
    assert maps["plain"].shape == (4, 8, 8)
    with pytest.raises(UsageError, match="a classifier has no value"):
        look([tmp_path / "run"], SaliencyConfig(target="value"))


def test_a_folder_stands_for_its_finished_runs_with_weights(tiny_runs, tmp_path):
    """Fails if a run without weights, such as a committed record, stops the measurement of the others."""
    for name in ("finished", "unfinished", "record"):
        shutil.copytree(tiny_runs[0], tmp_path / "runs" / name)
        (tmp_path / "runs" / name / "summary.json").write_text("{}")
    (tmp_path / "runs" / "unfinished" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "runs" / "record" / "checkpoints")
    assert find_runs([tmp_path / "runs"]) == [tmp_path / "runs" / "finished"]
    assert find_runs(tiny_runs) == tiny_runs
    shutil.rmtree(tmp_path / "runs" / "finished")
    with pytest.raises(UsageError, match="runs holds no finished run with weights"):
        find_runs([tmp_path / "runs"])


def test_frames_are_not_only_of_the_beginnings_of_episodes(tiny_runs):
    """Fails if all frames are of the first steps, in which little happens and all levels look alike."""
    frames, _ = look(tiny_runs, SaliencyConfig(frames=2 * 96))
    assert len(set(frames.levels.tolist())) > 2 * 32  # some games have ended, and gone on with another level
