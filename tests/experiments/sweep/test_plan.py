"""A sweep on disk: what is done, running, failed or waiting, from its folders alone."""

import json
import os
import socket
import time

import pytest

from clop.errors import UsageError
from clop.experiments.lease import EXPIRES
from clop.experiments.sweep.grids import AgentGrid, Sweep
from clop.experiments.sweep.plan import Plan, recorded_runs
from clop.experiments.sweep.queue import Queue
from clop.experiments.sweep.supervise import Outcome


def jobs(*seeds, totals=(4096,)):
    grid = AgentGrid(("maze",), ("ppo",), seeds, "quick", {"total_timesteps": list(totals)})
    return Sweep("x", (grid,)).jobs()


def end(plan, job, **summary):
    folder = plan.run_folder(job)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"version": 2, "kind": job.kind, "config": job.config}))
    (folder / "summary.json").write_text(json.dumps({"env_steps": job.total} | summary))


def lease(plan, job, host=None, age=0.0, pid=None):
    folder = plan.run_folder(job)
    folder.mkdir(parents=True, exist_ok=True)
    owner = {"token": "t", "host": host or socket.gethostname(), "pid": os.getpid() if pid is None else pid}
    (folder / "lease.json").write_text(json.dumps(owner))
    os.utime(folder / "lease.json", (time.time() - age,) * 2)


def test_where_each_job_stands(tmp_path):
    """Fails if a dead lease counts as running, here by its process and elsewhere by its age."""
    made = jobs(*range(6))
    plan = Plan.create(tmp_path, "x", made)
    end(plan, made[0])
    lease(plan, made[1])
    lease(plan, made[2], host="elsewhere")
    lease(plan, made[3], host="elsewhere", age=EXPIRES + 5)
    lease(plan, made[4], pid=2**22 + 1)  # no process has this number
    plan.failure(made[5]).parent.mkdir()
    plan.failure(made[5]).write_text("{}")
    assert [plan.state(job) for job in made] == ["done", "running", "running", "waiting", "waiting", "failed"]
    assert Plan.open(tmp_path).jobs == made


def test_another_sweep_in_the_folder_is_refused_and_the_same_one_is_added_to(tmp_path):
    first, second = jobs(0), jobs(0, 1)
    Plan.create(tmp_path / "a", "x", first)
    assert [job.config["seed"] for job in Plan.create(tmp_path / "a", "x", second).jobs] == [0, 1]
    assert len(Plan.create(tmp_path / "a", "x", first).jobs) == 2  # a part of it loses nothing
    with pytest.raises(UsageError, match=r"holds the sweep x, got y; name another folder"):
        Plan.create(tmp_path / "a", "y", first)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"is not empty and holds no sweep"):
        Plan.create(tmp_path / "b", "x", first)
    with pytest.raises(UsageError, match=r"holds no sweep; start one with"):
        Plan.open(tmp_path / "c")


def test_a_sweep_of_another_format_is_refused_with_what_to_do(tmp_path):
    """Fails for a message that leaves the user with two numbers."""
    Plan.create(tmp_path, "x", jobs(0))
    about = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps(about | {"version": 0}))
    with pytest.raises(
        UsageError, match=r"of format 0 .*; use the clop that began the sweep, or begin anew in another"
    ):
        Plan.open(tmp_path)


def test_a_longer_run_has_what_a_shorter_one_asks_for(tmp_path):
    short, long = jobs(0, totals=(4096, 8192))
    plan = Plan.create(tmp_path, "x", [short, long])
    end(plan, short)
    assert (plan.is_done(short), plan.is_done(long)) == (True, False)
    (plan.run_folder(short) / "summary.json").rename(plan.run_folder(short) / f"summary-{4096:012}.json")
    assert (plan.is_done(short), plan.is_done(long)) == (True, False)  # while it grows
    (plan.run_folder(short) / f"summary-{4096:012}.json").unlink()
    end(plan, long, earlier=[{"env_steps": 4096}])
    assert (plan.is_done(short), plan.is_done(long)) == (True, True)


def test_records_count_as_done_wherever_they_lie(tmp_path):
    """Fails if a record is known by its folder's name, or a run without an end counts."""
    made = jobs(0, 1)
    elsewhere = Plan.create(tmp_path / "records", "other", made)
    end(elsewhere, made[0])
    elsewhere.run_folder(made[0]).rename(tmp_path / "records" / "any-name")
    plan = Plan.create(tmp_path / "sweep", "x", made, recorded_runs([tmp_path / "records"]))
    assert [plan.state(job) for job in made] == ["done", "waiting"]
    assert [Plan.open(tmp_path / "sweep").state(job) for job in made] == ["done", "waiting"]


def test_a_larger_total_waits_for_the_smaller_one_of_the_same_run(tmp_path):
    short, long = jobs(0, totals=(4096, 8192))
    queue = Queue(Plan.create(tmp_path, "x", [long, short]))
    assert queue.take() == short
    assert queue.take() is None
    queue.give_back(short, Outcome("done"))
    assert queue.take() == long
    queue.give_back(long, Outcome("failed", "why"))
    assert queue.finished
    assert queue.failed == {long: "why"}


def test_a_job_that_somebody_else_runs_is_looked_at_again_later_and_not_run_twice(monkeypatch, tmp_path):
    (job,) = jobs(0)
    plan = Plan.create(tmp_path, "x", [job])
    queue = Queue(plan)
    assert queue.take() == job
    queue.give_back(job, Outcome("held"))
    assert queue.take() is None
    assert not queue.finished
    end(plan, job)  # by the other one
    monkeypatch.setattr("clop.experiments.sweep.queue._AGAIN", 0.0)
    assert queue.take() is None
    assert queue.finished
    assert queue.done == [job]
