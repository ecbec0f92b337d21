"""Failure by progress: deaths are counted where a job stands, and forgotten when it has moved."""

import json
import threading

import pytest

from clop.experiments.sweep import supervise as module
from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.supervise import Options, Stop, supervise, supervise_when_free
from clop.experiments.sweep.worker import DIED, DONE, HELD, MISTAKE, STOPPED

KILLED = -9


@pytest.fixture
def job():
    return Job("0a1b", "maze-ppo-s0-0a1b", "maze, ppo, seed 0", "agent", 4096, "steps", {"threads": 1})


@pytest.fixture
def ends(monkeypatch):
    """Processes that end as listed: (status, step of the newest checkpoint then); all have shown a step before."""

    def install(*endings):
        left = list(endings)

        def run_once(plan, job, options, stop):
            status, step, *early = left.pop(0)
            checkpoints = plan.run_folder(job) / "checkpoints"
            checkpoints.mkdir(parents=True, exist_ok=True)
            (checkpoints / f"step-{step:012}.pt").touch()
            if not early:
                (plan.run_folder(job) / "progress.json").write_text("{}")
            plan.log(job).parent.mkdir(exist_ok=True)
            plan.log(job).write_text("one\nwhy it died\n")
            return status

        monkeypatch.setattr(module, "_run_once", run_once)
        monkeypatch.setattr(module, "_PAUSES", (0.0, 0.0, 0.0))
        return left

    return install


def test_a_run_that_moves_on_may_die_as_often_as_it_likes(job, ends, tmp_path):
    """Fails if deaths are counted in all."""
    ends(*[(KILLED, step) for step in range(0, 1000, 10)], (DONE, 4096))
    plan = Plan(tmp_path, "x", [job])
    assert supervise(plan, job, Options(), Stop()).state == "done"
    assert not plan.failure(job).exists()


def test_three_deaths_at_the_same_step_are_a_failure_with_the_end_of_the_log(job, ends, tmp_path):
    left = ends((KILLED, 0), (KILLED, 64), (DIED, 64), (KILLED, 64), (DONE, 64))
    plan = Plan(tmp_path, "x", [job])
    outcome = supervise(plan, job, Options(), Stop())
    assert (outcome.state, outcome.message) == ("failed", "one\nwhy it died")
    assert len(left) == 1
    assert json.loads(plan.failure(job).read_text()) == {"step": 64, "status": KILLED, "log": "one\nwhy it died"}
    assert plan.state(job) == "failed"


def test_deaths_are_counted_across_supervisors(job, ends, tmp_path):
    """Fails if each new driver forgives what the one before it has seen."""
    plan = Plan(tmp_path, "x", [job])
    ends((KILLED, 64), (KILLED, 64), (HELD, 64))
    assert supervise(plan, job, Options(), Stop()).state == "held"
    left = ends((KILLED, 64), (DONE, 64))
    assert supervise(plan, job, Options(), Stop()).state == "failed"
    assert len(left) == 1


def test_processes_killed_before_their_first_step_say_little_of_their_run(job, ends, tmp_path):
    """Machines may be taken away faster than a run starts. Fails if three such kills are a failure, or none ever is."""
    plan = Plan(tmp_path, "x", [job])
    ends(*[(KILLED, 64, "early")] * 9, (DONE, 128))
    assert supervise(plan, job, Options(), Stop()).state == "done"
    left = ends(*[(KILLED, 128, "early")] * 100)
    assert supervise(plan, job, Options(), Stop()).state == "failed"
    assert len(left) == 100 - 12


def test_a_crash_before_the_first_step_counts_whole(job, ends, tmp_path):
    """Fails if a program that cannot even start is started twelve times."""
    left = ends(*[(DIED, 0, "early")] * 10)
    assert supervise(Plan(tmp_path, "x", [job]), job, Options(), Stop()).state == "failed"
    assert len(left) == 7


def test_a_run_that_somebody_else_stopped_goes_on_and_counts_no_death(job, ends, tmp_path):
    ends(*[(STOPPED, 64)] * 5, (DONE, 128))
    plan = Plan(tmp_path, "x", [job])
    assert supervise(plan, job, Options(), Stop()).state == "done"
    assert not plan.deaths(job).exists()


def test_waiting_for_another_writer_ends_when_the_job_is_to_stop(job, ends, monkeypatch, tmp_path):
    """Fails if a task of Slurm that is taken away waits for the folder of another for ever."""
    stop = Stop()
    monkeypatch.setattr(module, "supervise", lambda *_: stop.ask() or module.Outcome("stopped" if called else "held"))
    called = []
    monkeypatch.setattr(module, "_HELD_PAUSE", 60.0)
    monkeypatch.setattr(stop.asked, "wait", lambda seconds: called.append(seconds))
    assert supervise_when_free(Plan(tmp_path, "x", [job]), job, Options(), stop).state == "stopped"
    assert called == [60.0]


def test_a_mistake_fails_at_once(job, ends, tmp_path):
    left = ends((MISTAKE, 0), (DONE, 0))
    assert supervise(Plan(tmp_path, "x", [job]), job, Options(), Stop()).state == "failed"
    assert len(left) == 1


def test_a_retried_job_starts_with_a_clean_slate(job, ends, tmp_path):
    plan = Plan(tmp_path, "x", [job])
    ends(*[(KILLED, 64)] * 3)
    supervise(plan, job, Options(), Stop())
    assert plan.forget_failures() == [job]
    ends(*[(KILLED, 64)] * 2, (DONE, 128))
    assert supervise(plan, job, Options(), Stop()).state == "done"


def test_a_job_that_is_to_stop_is_not_started_again(job, ends, tmp_path):
    stop = Stop()
    stop.ask()
    left = ends((DONE, 0))
    assert supervise(Plan(tmp_path, "x", [job]), job, Options(), stop).state == "stopped"
    assert len(left) == 1
    assert not stop.at_once.is_set()
    stop.ask()
    assert stop.at_once.is_set()


def test_a_process_that_cannot_even_start_is_no_hang(job, monkeypatch, tmp_path):
    """The worker is given a job of no kind; it must end, and its log say why."""
    plan = Plan(tmp_path, "x", [job])
    monkeypatch.setattr(module, "_PAUSES", (0.0, 0.0, 0.0))
    result = []
    thread = threading.Thread(target=lambda: result.append(supervise(plan, job, Options(), Stop())))
    thread.start()
    thread.join(600)
    assert result[0].state == "failed"
    assert "KeyError" in result[0].message or "Error" in result[0].message
