"""Trackers are told the numbers of a run, and change nothing in it."""

import json
import sys
from unittest.mock import Mock

import pytest

from clop.cli import main
from clop.errors import UsageError
from clop.experiments import trackers
from clop.experiments.run_folder import RunFolder
from clop.experiments.trackers import check_trackers, tracking
from clop.rl import TrainConfig, run

PPO = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}
TINY = {"total_timesteps": 64, "num_levels": 5, "eval_episodes": 2, "test_every": 0}


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in that keeps what it was told."""
    module = Mock()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(trackers, "installed", lambda package: True)
    return module


def test_a_tracked_run_is_the_same_run_and_its_numbers_are_those_of_the_folder(wandb, tmp_path):
    """Fails if a number is lost or renamed on its way, or if tracking draws from a generator of the run."""
    config = TrainConfig.preset("quick", "fruitbot", ppo=PPO, **TINY)
    run(config, tmp_path / "plain")
    run(config, tmp_path / "tracked", track=["wandb-offline"])
    plain, tracked = (RunFolder(tmp_path / name).metrics() for name in ("plain", "tracked"))
    assert plain == tracked
    told = wandb.init.return_value.log.call_args_list
    assert [call.kwargs["step"] for call in told] == [row["env_steps"] for row in tracked]
    assert [call.args[0]["losses/value_loss"] for call in told] == [row["value_loss"] for row in tracked]
    assert wandb.init.call_args.kwargs["mode"] == "offline"
    assert wandb.init.call_args.kwargs["config"]["game"] == "fruitbot"
    wandb.init.return_value.finish.assert_called_once_with()


def test_a_resumed_run_goes_on_in_the_same_curve(wandb, tmp_path):
    """Fails if each start made a run of its own in the tracker."""
    folder = RunFolder.create(tmp_path / "run", "agent", {})
    for done in (0, 64):
        with tracking(["wandb"], folder, done) as log:
            log({"charts/SPS": 1.0}, done + 1)
    first, second = (call.kwargs for call in wandb.init.call_args_list)
    assert first["id"] == second["id"]
    assert first["resume"] == "allow"
    assert first["mode"] is None  # as WANDB_MODE says


def test_trackers_are_closed_when_the_run_ends_by_an_error(wandb, tmp_path):
    folder = RunFolder.create(tmp_path / "run", "agent", {})
    with pytest.raises(OSError, match="full"), tracking(["wandb"], folder, 0):
        raise OSError("full")
    wandb.init.return_value.finish.assert_called_once_with()


def test_unknown_and_missing_trackers_are_refused_before_a_folder_is_made(tmp_path, monkeypatch, capsys):
    with pytest.raises(UsageError, match="did you mean 'wandb'"):
        check_trackers(["wandbb"])
    monkeypatch.setattr(trackers, "installed", lambda package: False)
    assert main(["train", "fruitbot", "--track", "wandb", "--out", str(tmp_path / "run")]) == 2
    assert "pip install wandb" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")  # those of wandb itself
def test_wandb_itself_keeps_a_run_offline(tmp_path):
    """Fails where our calls are not those of the real package."""
    pytest.importorskip("wandb", reason="not installed: pip install wandb")
    folder = RunFolder.create(tmp_path / "run", "agent", {"game": "fruitbot"})
    with tracking(["wandb-offline"], folder, 0) as log:
        log({"charts/episodic_return": 1.5}, 64)
    (path,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    identifier = (tmp_path / "run" / "wandb-id.txt").read_text()
    assert path.name.endswith(identifier)
    assert (path / f"run-{identifier}.wandb").stat().st_size > 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["kind"] == "agent"
