"""A run grows: with a larger total it goes on as if it had been that long from the start."""

import json
import shutil

import pytest

from clop.cli import main
from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder, read_checkpoint
from clop.rl import TrainConfig, run

PPO = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}


def tiny(total, method="clop", **changes):
    """Iterations of 32 steps."""
    settings = {"num_levels": 5, "eval_episodes": 2, "test_every": 64, "test_episodes": 1, "total_timesteps": total}
    return TrainConfig.preset("quick", "fruitbot", method, **({"ppo": PPO} | settings | changes))


def without_costs(out):
    state = read_checkpoint(out / "checkpoints" / "last.pt")
    return {name: value for name, value in state.items() if name not in ("seconds", "memory_gb")}


@pytest.mark.parametrize("method", ["clop", "idaac+clop"])
def test_a_run_that_grew_is_the_longer_run_to_the_bit_and_keeps_its_earlier_end(method, assert_same_state, tmp_path):
    """Fails if a step depends on the total, if evaluating draws from the run, and if the earlier end is dropped."""
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    longer = run(tiny(160, method), whole)
    shorter = run(tiny(64, method), grown)
    summary = run(tiny(160, method), grown)
    assert_same_state(without_costs(grown), without_costs(whole))
    assert (grown / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    assert (summary.train, summary.test, longer.earlier) == (longer.train, longer.test, ())
    assert summary.earlier == shorter.stages
    assert [stage.env_steps for stage in summary.stages] == [64, 160]
    (grew,) = RunFolder(grown).about()["grown"]
    assert grew["from"]["total_timesteps"] == 64
    assert {"command", "commit", "machine"} <= grew.keys()


def test_what_a_run_had_reached_before_it_grew_is_still_its_answer_to_the_smaller_total(tmp_path):
    shorter = run(tiny(64), tmp_path / "run")
    run(tiny(96), tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.json*")}
    assert run(tiny(64), tmp_path / "run") == shorter
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.json*")} == before
    with pytest.raises(UsageError, match=r"holds the same run with 96 steps, and no evaluation after 32"):
        run(tiny(32), tmp_path / "run")


def test_a_run_killed_while_it_is_given_its_larger_total_grows_all_the_same(assert_same_state, monkeypatch, tmp_path):
    """Killed between the two files that change. Fails if the earlier end is lost, or if the run seems complete."""
    run(tiny(64), tmp_path / "run")

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("clop.experiments.run_folder.write_json", killed)
        with pytest.raises(Killed):
            run(tiny(96), tmp_path / "run")
    summary = run(tiny(96), tmp_path / "run")
    assert [stage.env_steps for stage in summary.stages] == [64, 96]


def test_a_run_whose_rate_falls_to_its_end_does_not_grow_and_says_why(tmp_path, capsys):
    falling = {"ppo": PPO | {"schedule": "linear"}}
    run(tiny(64, **falling), tmp_path / "run")
    before = (tmp_path / "run" / "config.json").read_text()
    assert main(["train", "--resume", str(tmp_path / "run"), "--total-timesteps", "96"]) == 2
    assert "cannot have another total: ppo.schedule is linear" in capsys.readouterr().err
    assert (tmp_path / "run" / "config.json").read_text() == before
    run(tiny(64, **falling), tmp_path / "run")  # its own total is no other one


def test_the_command_line_grows_a_run_and_refuses_any_other_setting(tmp_path, capsys):
    run(tiny(64), tmp_path / "run")
    resume = ["train", "--resume", str(tmp_path / "run")]
    assert main([*resume, "--total-timesteps", "96"]) == 0
    assert "preset quick, 96 steps" in capsys.readouterr().out
    assert main([*resume, "--total-timesteps", "64"]) == 0
    assert "the run is complete: fruitbot with clop, preset quick, 64 steps" in capsys.readouterr().out
    assert main([*resume, "--total-timesteps", "128", "--num-levels", "6"]) == 2
    assert "leave out --num-levels" in capsys.readouterr().err


def test_a_record_without_checkpoints_cannot_grow(tmp_path):
    """Fails if the run begins anew in the folder and overwrites what was recorded."""
    run(tiny(64), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(UsageError, match="is a record without checkpoints and cannot grow"):
        run(tiny(96), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["env_steps"] == 64
