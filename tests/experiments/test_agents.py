"""Training an agent in a folder: killed at any moment, it goes on as if nothing had happened."""

import errno
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from unittest.mock import Mock

import numpy as np
import pytest
import tensorboardX
import torch

from clop.cli import main
from clop.errors import DivergedError, UsageError
from clop.experiments import agents
from clop.experiments.run_folder import RunFolder, read_checkpoint
from clop.experiments.summaries import AgentSummary
from clop.rl import TrainConfig, load_agent, run
from clop.rl.envs.backends import installed_backends
from clop.rl.ppo import Learner

PPO = {"num_envs": 4, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}
TINY = {"total_timesteps": 192, "num_levels": 5, "eval_episodes": 2, "test_every": 0}


def tiny(method="ppo", **changes):
    """Six iterations of 32 steps."""
    return TrainConfig.preset("quick", "fruitbot", method, ppo=PPO, **(TINY | changes))


def train(out, *more):
    """The same as a command, with a checkpoint after each iteration."""
    settings = TINY | {f"ppo.{name}": value for name, value in PPO.items()} | {"out": out, "checkpoint_minutes": 0}
    return ["train", "fruitbot", *(f"--{name}={value}" for name, value in settings.items()), *more]


@pytest.fixture
def same(assert_same_state):
    """Whether two states are the same to the bit; what they cost is not part of that."""

    def check(one, other):
        assert one.keys() == other.keys()
        assert_same_state(
            *({key: state[key] for key in state.keys() - {"seconds", "memory_gb"}} for state in (one, other))
        )

    return check


@pytest.fixture
def interrupted(monkeypatch):
    """Inside of it, a signal comes to the first process in the middle of the second iteration."""

    @contextmanager
    def context(number=signal.SIGINT, times=1):
        iterate = Learner.iterate

        def iterate_interrupted(self):
            if self.iteration == 1 and self.workers.is_first:
                for _ in range(times):
                    os.kill(os.getpid(), number)
            return iterate(self)

        with monkeypatch.context() as patch:
            patch.setattr(Learner, "iterate", iterate_interrupted)
            yield

    return context


@pytest.fixture
def interrupt(interrupted):
    """Run a command that is interrupted and saves its state after two iterations."""

    def run(words):
        with interrupted():
            assert main(words) == 2

    return run


def last(out):
    return read_checkpoint(out / "checkpoints" / "last.pt")


@pytest.mark.parametrize(("method", "processes"), [("clop", 1), ("dropout+batch_norm", 2)])
def test_a_run_killed_at_a_random_moment_and_resumed_is_the_same_run(same, processes, method, tmp_path, capsys):
    """Weights, optimiser, games, random numbers and metrics; SIGKILL leaves no time to tidy up."""
    settings = ["--method", method, "--processes", str(processes)]
    assert main(train(tmp_path / "whole", *settings)) == 0
    killed = tmp_path / "killed"
    command = ["nice", sys.executable, "-m", "clop", *train(killed, *settings)]  # this one is to be the faster
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    checkpoints = killed / "checkpoints"
    while not list(checkpoints.glob("step-*.pt")):
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    process.kill()  # wherever it is in what follows the first checkpoint
    process.wait()
    assert not (killed / "summary.json").exists(), "the run ended before it could be killed"
    assert main(["train", "--resume", str(killed), "--checkpoint-minutes", "0"]) == 0
    assert (killed / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()
    same(read_checkpoint(checkpoints / "last.pt"), read_checkpoint(tmp_path / "whole" / "checkpoints" / "last.pt"))


def test_the_death_of_another_process_is_told_and_the_run_can_go_on(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "clop", *train(out, "--processes", "2")]
    command.append("--total-timesteps=100000")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list((out / "checkpoints").glob("step-*.pt")):
        assert process.poll() is None
        time.sleep(0.02)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(children.split()[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2
    last = errors.splitlines()[-1]
    done = read_checkpoint(out / "checkpoints" / "last.pt")["env_steps"]
    assert last == (
        "clop: another process of the run has died, for want of memory or killed by somebody; "
        f"{out} holds the state after {done} steps, go on with: clop train --resume {out}"
    )
    assert done > 0


def test_a_checkpoint_holds_the_games_and_generators_of_each_process(tmp_path):
    assert main(train(tmp_path / "run", "--processes", "2", "--method", "batch_norm")) == 0
    first, second = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.pt")["processes"]
    assert not torch.equal(first["games"]["games"], second["games"]["games"])
    assert not torch.equal(first["generators"]["action_rng"], second["generators"]["action_rng"])


def test_a_run_under_torchrun_is_that_of_as_many_processes(same, tmp_path, capsys):
    """Fails when each of torchrun's processes trains on its own, makes a folder of its own, or starts others."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "clop"]
    subprocess.run([*torchrun, *train(tmp_path / "torchrun")], check=True, capture_output=True, timeout=600)
    assert main(train(tmp_path / "run", "--processes", "2")) == 0
    ours, theirs = (read_checkpoint(tmp_path / name / "checkpoints" / "last.pt") for name in ("run", "torchrun"))
    same(ours, theirs)
    assert json.loads((tmp_path / "torchrun" / "summary.json").read_text())["ended"] == "complete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupt_saves_the_run_and_says_how_to_go_on(interrupted, processes, number, tmp_path, capsys):
    out = tmp_path / "run"
    with interrupted(number):
        assert main(train(out, "--processes", str(processes), "--checkpoint-minutes", "60")) == 2
    assert f"stopped after 64 steps; go on with: clop train --resume {out}" in capsys.readouterr().err
    assert last(out)["iteration"] == 2


def test_a_second_interrupt_stops_at_once_and_the_run_goes_on_from_its_last_checkpoint(interrupted, tmp_path, capsys):
    out = tmp_path / "run"
    with interrupted(times=2):
        assert main(train(out, "--processes", "1")) == 2
    told = f"stopped at once; the last checkpoint is after 32 steps, go on with: clop train --resume {out}"
    assert told in capsys.readouterr().err
    assert main(["train", "--resume", str(out)]) == 0
    assert [row["iteration"] for row in RunFolder(out).metrics()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("processes", [1, 2])
def test_no_state_is_gathered_between_checkpoints(processes, tmp_path, monkeypatch):
    """Each process is asked once, at the end. Fails if the others send theirs after each iteration, just in case."""
    state, told = agents.AgentWork.state, tmp_path / "told"

    def counted(self):
        with told.open("a") as file:  # other processes have memories of their own
            file.write(f"{self.learner.workers.rank} {self.learner.iteration}\n")
        return state(self)

    monkeypatch.setattr(agents.AgentWork, "state", counted)
    run(tiny(processes=processes), tmp_path / "run")
    assert sorted(told.read_text().splitlines()) == [f"{rank} 6" for rank in range(processes)]


@pytest.mark.parametrize(("method", "processes"), [("ppo", 1), ("rad+clop(alpha=0.3)", 2)])
def test_a_run_as_a_function_goes_on_bit_for_bit(same, interrupted, method, processes, tmp_path):
    """Fails if the state after an interrupt is not that after the iteration at hand, in one process or another."""
    config, whole, out = tiny(method, processes=processes), tmp_path / "whole", tmp_path / "run"
    undisturbed = run(config, whole)
    with interrupted(), pytest.raises(UsageError, match="stopped after 64 steps; go on with"):
        run(config, out)
    assert agents.read_summary(RunFolder(out)) is None
    summary = run(config, out)
    same(last(out), last(whole))
    assert (out / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    assert (summary.train, summary.test) == (undisturbed.train, undisturbed.test)


def test_a_run_as_a_function_returns_its_summary_and_is_made_once(tmp_path, monkeypatch):
    """Fails if the second call trains again, or takes a run of other settings for its own."""
    config, out = tiny("clop(alpha=0.3)"), tmp_path / "new" / "run"
    summary = run(config, str(out))
    assert isinstance(summary, AgentSummary)
    assert (summary.game, summary.method, summary.env_steps, summary.ended) == ("fruitbot", "clop", 192, "complete")
    assert (summary.train.episodes, summary.test.split) == (2, "test")
    assert summary == AgentSummary.fromdict(json.loads((out / "summary.json").read_text()), out)
    monkeypatch.setattr(agents, "AgentWork", Mock(side_effect=AssertionError("there is nothing left to train")))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert run(config, out) == summary
    found = agents.find_run(out, config)
    assert found is not None, "a back end that was left to be chosen is the one that was found"
    assert found.config["backend"] != config.backend == "auto"
    other = config.changed(seed=1, **{"ppo.learning_rate": 0.1, "clop.alpha": 0.2})
    with pytest.raises(UsageError) as error:
        run(other, out)
    assert str(error.value) == (
        f"{out} holds a run with other settings (seed, ppo, methods) and nothing in it will be overwritten; name "
        f"another folder, or go on with that run: clop train --resume {out}"
    )
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_loaded_agent_acts_on_frames_of_its_game_and_refuses_others(tmp_path):
    run(tiny("dropout"), tmp_path / "run")
    agent = load_agent(str(tmp_path / "run"))
    obs = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3), np.uint8)
    actions = agent.act(obs)
    assert (actions.shape, actions.dtype.kind) == ((5,), "i")
    assert set(actions.tolist()) <= set(range(15))
    assert np.array_equal(agent.act(obs, greedy=True), agent.act(list(obs), greedy=True)), "without dropout's noise"
    assert agent.act(obs[:0]).shape == (0,)
    expected = "expected uint8 frames of shape (N, 64, 64, 3), got"
    for frames, got in [
        (obs[0], "uint8 of (64, 64, 3)"),
        (obs / 255, "float64 of (5, 64, 64, 3)"),
        (obs[:, :32], "uint8 of (5, 32, 64, 3)"),
        (obs.transpose(0, 3, 1, 2), "uint8 of (5, 3, 64, 64)"),
    ]:
        with pytest.raises(UsageError) as error:
            agent.act(frames)
        assert str(error.value) == f"{expected} {got}"


@pytest.mark.parametrize(
    "words",
    ["train --resume {run}", "evaluate {run}", "watch {run} --out {out}.gif", "plot {run} --out {out}.png"],
    ids=lambda words: words.split()[0],
)
def test_a_run_of_the_first_format_is_refused_in_one_sentence(words, tmp_path, capsys):
    """It stated no format, and its settings have other names by now."""
    path, out = tmp_path / "run", tmp_path / "out"
    RunFolder.create(path, agents.KIND, tiny().asdict())
    about = json.loads((path / "config.json").read_text())
    assert about.pop("version") == 2
    (path / "config.json").write_text(json.dumps(about))
    assert main(words.format(run=path, out=out).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"clop: {path / 'config.json'} is of format 1 and this clop reads format 2; use the clop")
    assert sorted(tmp_path.rglob("*")) == [path, path / "checkpoints", path / "config.json"]


def test_a_run_that_diverges_keeps_the_state_before_it(tmp_path, capsys, monkeypatch):
    update = Learner.update

    def diverging(self):
        if self.iteration == 3:
            raise DivergedError("policy_loss is no longer a number in the update after 96 steps")
        return update(self)

    monkeypatch.setattr(Learner, "update", diverging)
    assert main(train(tmp_path / "run", "--processes", "1")) == 2
    told = "policy_loss is no longer a number in the update after 96 steps"
    kept = f"{tmp_path / 'run'} holds the state after 96 steps"
    assert f"clop: {told}; {kept}; try a smaller learning rate\n" in capsys.readouterr().err
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "last.pt")["iteration"] == 3


def test_a_full_disk_is_told_and_the_run_can_go_on(tmp_path, capsys, monkeypatch):
    """The system refuses to write files as large as a checkpoint: nothing half-written stays, and the last whole
    state is what the run goes on from."""
    iterate, limits = Learner.iterate, resource.getrlimit(resource.RLIMIT_FSIZE)

    def filling_the_disk(self):
        if self.iteration == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
        return iterate(self)

    out = tmp_path / "run"
    assert main(train(tmp_path / "whole", "--processes", "1")) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "iterate", filling_the_disk)
        try:
            assert main(train(out, "--processes", "1")) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "cannot write the checkpoint" in error
    assert error.endswith(f"go on from the one before with: clop train --resume {out}")
    assert {path.name for path in (out / "checkpoints").iterdir()} == {
        *("last.pt", "step-000000000032.pt", "step-000000000064.pt")
    }
    assert main(["train", "--resume", str(out), "--checkpoint-minutes", "0"]) == 0
    assert (out / "metrics.jsonl").read_text() == (tmp_path / "whole" / "metrics.jsonl").read_text()


def test_a_log_that_cannot_be_written_is_told(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "log", full)
    assert main(train(tmp_path / "run", "--processes", "1")) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == (
        f"clop: cannot write in {tmp_path / 'run'}: No space left on device; make room and go on with: "
        f"clop train --resume {tmp_path / 'run'}"
    )


def test_a_run_killed_before_its_first_checkpoint_starts_again_and_logs_nothing_twice(tmp_path):
    out = tmp_path / "run"
    assert main(train(out, "--processes", "1")) == 0
    metrics = (out / "metrics.jsonl").read_text()
    shutil.rmtree(out / "checkpoints")
    (out / "checkpoints").mkdir()
    (out / "summary.json").unlink()
    assert main(["train", "--resume", str(out)]) == 0
    assert (out / "metrics.jsonl").read_text() == metrics


def test_a_run_that_is_complete_is_left_as_it_is(tmp_path, capsys, monkeypatch):
    """Fails when its evaluations are played again, or its summary is written anew with what only looking cost."""
    out = tmp_path / "run"
    assert main(train(out, "--processes", "1")) == 0
    told = capsys.readouterr().out.partition("; the run is")[0]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    monkeypatch.setattr(agents, "evaluate", Mock(side_effect=AssertionError))
    assert main(["train", "--resume", str(out)]) == 0
    assert capsys.readouterr().out == f"the run is complete: {told}; the run is in {out}\n"
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_what_a_run_cost_is_added_up_over_its_parts(interrupt, tmp_path, monkeypatch):
    """The seconds of all of them and the largest memory; fails when a resumed run tells that of its last part."""
    out, peaks = tmp_path / "run", iter([3.0] * 2 + [1.0] * 10)  # one for each checkpoint
    monkeypatch.setattr(agents.machine, "peak_memory_gb", lambda: next(peaks))
    monkeypatch.setattr(agents, "time", Mock(monotonic=itertools.count(0, 10.0).__next__))  # ten for each iteration

    interrupt(train(out, "--processes", "1"))
    assert main(["train", "--resume", str(out)]) == 0
    summary = RunFolder(out).summary
    assert summary["peak_memory_gb"] == 3.0
    assert summary["seconds"] == 60.0
    assert summary["test"]["episodes"] == 2  # as was asked when the run began


@pytest.mark.skipif("envpool" not in installed_backends(), reason="envpool is not installed")
def test_a_run_on_envpool_trains_and_goes_on_with_new_episodes(interrupt, tmp_path, capsys):
    """Fails when the loop asks for what these games cannot give: their state."""
    out = tmp_path / "run"
    interrupt(train(out, "--processes", "1", "--backend", "envpool"))
    assert main(["train", "--resume", str(out)]) == 0
    assert "envpool cannot save running games: episodes start anew" in capsys.readouterr().err
    assert [row["iteration"] for row in RunFolder(out).metrics()] == [1, 2, 3, 4, 5, 6]


def test_tests_while_training_are_logged_and_shown_and_change_nothing(same, tmp_path, capsys):
    """Fails when a test draws from the training's generators or leaves the network in evaluation mode."""
    tested, plain = tmp_path / "tested", tmp_path / "plain"
    assert main(train(plain, "--processes", "1", "--method", "clop+batch_norm", "--test-every", "0")) == 0
    assert main(train(tested, "--processes", "1", "--method", "clop+batch_norm", "--test-every", "96")) == 0
    assert "test_return" in capsys.readouterr().err
    rows = RunFolder(tested).metrics()
    assert [row["iteration"] for row in rows if "test_return" in row] == [3, 6]
    assert [{k: v for k, v in row.items() if k != "test_return"} for row in rows] == RunFolder(plain).metrics()
    weights = [read_checkpoint(run / "checkpoints" / "last.pt")["model"] for run in (tested, plain)]
    same(*weights)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(tmp_path, capsys):
    folder = RunFolder.create(tmp_path / "run", agents.KIND, {})
    for step in (1, 2, 3):
        folder.save({"model": {"weight": torch.arange(1000.0) + step}, "step": step}, step)
    saved = sorted(path.name for path in (folder.path / "checkpoints").iterdir())
    assert saved == ["last.pt", "step-000000000002.pt", "step-000000000003.pt"]
    newest = folder.path / "checkpoints" / "step-000000000003.pt"
    whole = newest.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:2000] + b"\xff" * 8 + whole[2008:], b"something else"):
        newest.unlink()
        newest.write_bytes(damaged)
        assert folder.load()["step"] == 2
        assert "is damaged, or no checkpoint of clop" in capsys.readouterr().err


def test_loading_a_checkpoint_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch " + str(tmp_path / "ran"),))

    torch.save({"model": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UsageError, match="is damaged, or no checkpoint"):
        read_checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_processes_without_a_gpu_each_leave_no_folder_behind(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("clop.cli.train.find_device", lambda name: name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert main(train(tmp_path / "run", "--processes", "2", "--device", "cuda")) == 2
    assert "2 processes need as many GPUs, and here are 1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_something_is_refused(tmp_path, capsys):
    (tmp_path / "precious.txt").write_text("mine")
    assert main(train(tmp_path)) == 2
    assert "nothing in it will be overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_both_evaluations_of_a_run_of_two_processes_are_those_made_one_after_the_other(tmp_path, capsys):
    """Fails if the evaluation beside the other draws on what the other has drawn, or is not kept."""
    out = tmp_path / "run"
    assert main(train(out, "--processes", "2")) == 0
    for split in ("train", "test"):
        (kept,) = (out / "evaluations").glob(f"clop-v1-{split}-*.csv")
        before = kept.read_text()
        kept.unlink()
        assert main(["evaluate", str(out), "--episodes", "2", "--split", split]) == 0
        assert kept.read_text() == before


def test_dealt_out_episodes_are_evaluated_by_two_processes(tmp_path, capsys):
    out = tmp_path / "run"
    run(tiny(total_timesteps=32), out)
    told = []
    for processes in ("1", "2"):
        words = ["evaluate", str(out), "--episodes", "2", "--protocol", "clop-v2", "--processes", processes]
        assert main(words) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert main(["evaluate", str(out), "--episodes", "2", "--processes", "2"]) == 2
    assert "2 processes share the episodes of clop-v2 on a CPU alone" in capsys.readouterr().err


def test_a_trained_agent_is_evaluated_and_watched(tmp_path, capsys):
    """The summary's numbers are those of the kept episodes, and a later evaluation of the checkpoint repeats them."""
    run = tmp_path / "run"
    assert main(train(run, "--processes", "1", "--method", "rad+clop", "--rad.aug", "crop")) == 0
    summary = RunFolder(run).summary
    assert summary["ended"] == "complete"
    assert summary["gap"] == pytest.approx(summary["train"]["mean"] - summary["test"]["mean"])
    (kept,) = (run / "evaluations").glob("clop-v1-test-*.csv")
    before = kept.read_text()
    about = json.loads(kept.with_suffix(".json").read_text())
    assert (about["method"], about["notes"]) == ("rad+clop", {"rad.augmentation": "crop"})
    kept.unlink()
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    assert kept.read_text() == before
    returns = [float(line.split(",")[1]) for line in before.splitlines()[1:]]
    assert sum(returns) / len(returns) == pytest.approx(summary["test"]["mean"])
    video = tmp_path / "agent.gif"
    assert main(["watch", str(run), "--episodes", "1", "--out", str(video)]) == 0
    assert video.stat().st_size > 10_000
    assert "with rad+clop (rad.augmentation crop), quick: returns" in capsys.readouterr().out
    assert main(["watch", str(run), "--out", str(tmp_path / "agent.txt")]) == 2
    assert main(["evaluate", str(run), "--protocol", "clopv1"]) == 2
    assert "did you mean 'clop-v1'" in capsys.readouterr().err


def test_a_run_without_a_checkpoint_cannot_be_evaluated_yet(tmp_path, capsys):
    RunFolder.create(tmp_path / "run", agents.KIND, TrainConfig.preset("quick", "bigfish").asdict())
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert f"has no checkpoint yet; go on with: clop train --resume {tmp_path / 'run'}" in capsys.readouterr().err


def test_a_run_goes_on_with_as_many_processes_as_it_began_with(tmp_path):
    work = agents.AgentWork(TrainConfig.preset("quick", "bigfish"))
    with pytest.raises(UsageError, match="the run has 2 processes and goes on with as many, got 1"):
        work.load({**work.state(), "processes": [{}, {}]})


def test_events_have_the_names_that_users_of_cleanrl_know():
    row = {"env_steps": 32, "episodic_return": 1.5, "policy_loss": 0.5}
    assert agents.AgentWork.events(Mock(_rate=2.0), row) == {
        "charts/global_step": 32,
        "charts/episodic_return": 1.5,
        "losses/policy_loss": 0.5,
        "charts/SPS": 2.0,
    }


def test_a_resumed_run_hides_the_events_that_it_writes_again_and_no_others(interrupt, tmp_path, monkeypatch):
    """Events at the step of the state were written before it and stay; fails when they are hidden too."""
    out, started = tmp_path / "run", []
    interrupt(train(out, "--processes", "1"))
    writer = tensorboardX.SummaryWriter
    monkeypatch.setattr(
        tensorboardX, "SummaryWriter", lambda path, purge_step: started.append(purge_step) or writer(path)
    )
    assert main(["train", "--resume", str(out)]) == 0
    assert started == [64 + 1]


def test_a_run_that_somebody_writes_is_left_alone(tmp_path, monkeypatch):
    """Fails if a second process trains in the same folder, or if one that lost its folder still saves."""
    config = tiny(backend=next(iter(installed_backends())))
    folder = RunFolder.create(tmp_path / "run", agents.KIND, config.asdict())
    with folder.held(), pytest.raises(UsageError, match="is being written by process"):
        agents.run(tiny(), tmp_path / "run", "cpu")
    step = agents.AgentWork.step

    def lose(work):
        (tmp_path / "run" / "lease.json").write_text('{"token": "of another", "host": "elsewhere", "pid": 7}')
        return step(work)

    monkeypatch.setattr(agents.AgentWork, "step", lose)
    with pytest.raises(UsageError, match=r"lost its folder .* to process 7 on elsewhere"):
        agents.run(tiny(), tmp_path / "run", "cpu")
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert (tmp_path / "run" / "lease.json").exists(), "that of another is not removed"
