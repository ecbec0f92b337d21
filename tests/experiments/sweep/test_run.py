"""Sweeps through the command line: killed, stopped, shared by two drivers, with jobs that fail."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clop.bench.sweep import same_run
from clop.cli import main
from clop.experiments.agents import run
from clop.experiments.sweep.grids import read_sweep
from clop.experiments.sweep.plan import Plan
from clop.rl.config import TrainConfig

FILE = """
games = ["fruitbot"]
methods = ["ppo", "clop"]
preset = "quick"
[settings]
total_timesteps = {total}
num_levels = 5
eval_episodes = 2
test_every = 0
ppo = {{ num_envs = 4, num_steps = 8, num_minibatches = 2, update_epochs = 1 }}
"""


@pytest.fixture
def sweep(tmp_path):
    """A file with two runs of so many steps, and its jobs."""

    def make(total, extra=""):
        file = tmp_path / "tiny.toml"
        file.write_text(FILE.format(total=total) + extra)
        return file, read_sweep(file).jobs()

    return make


def driver(file, root, *more):
    words = ["sweep", "run", str(file), "--out", str(root), "--jobs", "2", "--checkpoint-minutes", "0", *more]
    return subprocess.Popen([sys.executable, "-m", "clop", *words], stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for nothing"
        time.sleep(0.02)


def workers(root):
    """Processes that hold the runs of a sweep."""
    leases = [json.loads(path.read_text()) for path in (root / "runs").glob("*/lease.json")]
    return [lease["pid"] for lease in leases]


def assert_undisturbed(root, jobs, tmp_path):
    """All runs are there, and are what they would have been by themselves."""
    for job in jobs:
        config = TrainConfig.fromdict(job.config)
        run(config, tmp_path / "calm" / job.name)
        assert same_run(tmp_path / "calm" / job.name, root / "runs" / job.name), job.title


def test_jobs_and_driver_may_be_killed_and_every_run_comes_out_the_same_to_the_bit(sweep, tmp_path):
    """Two drivers on one sweep. Fails if a run is lost, begun anew in a used folder, or written by two at once."""
    file, jobs = sweep(32 * 40)
    root = tmp_path / "sweep"
    first, second = driver(file, root), driver(file, root)
    plan = Plan(root, "tiny", jobs)
    wait_for(lambda: any((root / "runs").glob("*/checkpoints/step-*.pt")) and workers(root))
    os.kill(workers(root)[0], signal.SIGKILL)
    first.kill()
    first.communicate()
    third = driver(file, root)
    for process in (second, third):
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    assert all(plan.is_done(job) for job in jobs)
    assert_undisturbed(root, jobs, tmp_path)


def test_an_interrupt_stops_all_jobs_at_a_checkpoint_and_the_same_command_goes_on(sweep, tmp_path, capsys):
    """Fails if a job is left running, or what it had done is lost."""
    file, jobs = sweep(32 * 4000)
    root = tmp_path / "sweep"
    process = driver(file, root, "--checkpoint-minutes", "10")
    wait_for(lambda: len(list((root / "runs").glob("*/progress.json"))) == 2)
    pids = workers(root)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "all jobs stop at a checkpoint" in errors
    assert "has stopped with 0 of 2 runs done; the same command goes on" in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    for job in jobs:
        assert list((root / "runs" / job.name / "checkpoints").glob("step-*.pt"))
    assert main(["sweep", "status", str(root)]) == 0
    assert "tiny: 2 waiting" in capsys.readouterr().out


def test_a_job_that_cannot_run_fails_and_is_named_and_the_others_end(sweep, tmp_path, monkeypatch, capsys):
    """A game of one's own that raises after its first look; mended, it is run by retry."""
    (tmp_path / "game_of_mine.py").write_text(
        "import os, gymnasium, numpy\n"
        "class Game(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 255, (16, 16, 3), numpy.uint8)\n"
        "    action_space = gymnasium.spaces.Discrete(3)\n"
        "    render_mode = None\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        f"        if not os.path.exists({str(tmp_path / 'mended')!r}): raise RuntimeError('the dog ate it')\n"
        "        return self.observation_space.sample(), 1.0, True, False, {}\n"
        "def make(render_mode=None): return Game()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    monkeypatch.setattr("clop.experiments.sweep.supervise._PAUSES", (0.0, 0.0, 0.0))
    file, _ = sweep(32)
    text = file.read_text().replace('["fruitbot"]', '["fruitbot", "game_of_mine:make"]').replace(', "clop"]', "]")
    file.write_text(text)
    root = tmp_path / "sweep"
    words = ["--jobs", "2", "--checkpoint-minutes", "0"]
    assert main(["sweep", "run", str(file), "--out", str(root), *words]) == 2
    errors = capsys.readouterr().err
    assert f"1 of 2 runs are done; they are in {root / 'runs'}; 1 failed" in errors
    assert "game_of_mine:make, ppo, seed 0" in errors
    assert "the dog ate it" in errors
    assert main(["sweep", "run", str(file), "--out", str(root), *words]) == 2  # and is not tried again by itself
    assert "failed before; try it again with: clop sweep retry" in capsys.readouterr().err
    (tmp_path / "mended").touch()
    assert main(["sweep", "retry", str(root), *words]) == 0
    assert "2 of 2 runs are done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "paper-esy"], "unknown sweep 'paper-esy'; did you mean 'paper-easy'"),
        (["run", "nowhere.toml"], "there is no sweep file nowhere.toml"),
        (["run", "paper-easy", "--games", "bigfsh"], "unknown game or task 'bigfsh'; did you mean 'bigfish'"),
        (["run", "paper-easy", "--seeds", "-1"], "expected a number of at least 1 or a list of seeds, got -1"),
        (["run", "paper-stl10", "--data", "nowhere"], "--data: expected a folder, got nowhere"),
        (["run", "paper-easy", "--print-only"], "--print-only writes the sbatch file of Slurm; add --on slurm"),
        (["run", "paper-easy", "--on", "ry"], "unknown on 'ry'; did you mean 'ray'"),
        (["status", "nowhere"], "nowhere holds no sweep"),
        (["retry", "nowhere"], "nowhere holds no sweep"),
    ],
)
def test_a_mistake_is_told_before_anything_is_started(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_methods_that_cannot_be_composed_and_full_disks_are_told_before_anything_is_started(
    sweep, tmp_path, monkeypatch, capsys
):
    file, _ = sweep(32)
    file.write_text(file.read_text().replace('"clop"]', '"idaac+clop(critic=same)"]'))
    assert main(["sweep", "run", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "fruitbot, idaac+clop(critic=same), seed 0: the value has a network of its own" in capsys.readouterr().err
    file, _ = sweep(32)
    monkeypatch.setattr("clop.experiments.sweep.check.free_bytes", lambda _: 1000)
    assert main(["sweep", "run", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "has only 0 MB left; make room first" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_plan_says_what_is_done_and_how_long_the_rest_takes(sweep, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CLOP_CACHE", str(tmp_path / "cache"))
    file, jobs = sweep(32 * 100)
    folder = tmp_path / "records" / "one"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"version": 2, "kind": "agent", "config": jobs[0].config}))
    (folder / "summary.json").write_text(json.dumps({"env_steps": 3200}))
    assert main(["sweep", "plan", str(file), "--done", str(tmp_path / "records")]) == 0
    said = capsys.readouterr().out
    assert "done     fruitbot, ppo, seed 0, 3200 steps" in said
    assert "waiting  fruitbot, clop, seed 0, 3200 steps" in said
    assert "tiny: 2 runs, 1 done" in said
    (rates,) = json.loads((tmp_path / "cache" / "rates.json").read_text()).values()
    assert len(rates) == 1  # of what is not done
    assert min(rates.values()) > 0
