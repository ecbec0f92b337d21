"""Bring one job to its end: start it, wait, and start it again as long as each death leaves it further on.

A run on a machine that is taken away now and then dies often and is fine; one that dies three times where it stands
has a fault. So deaths are counted by progress, on disk, and forgotten when the run has moved. A process that was killed
from outside before its first step has shown little of its run, and four such deaths count as one.
"""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan, read_json
from clop.experiments.sweep.worker import DONE, HELD, MISTAKE, STOPPED, Order
from clop.files import write_json

DEATHS = 3
"""At the same step, after which a job has failed."""
_TOO_EARLY = 0.25  # what a death counts before the first step, by a signal from outside
_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
_POLL = 0.2  # seconds between looks at a running job
_PAUSES = (0.0, 1.0, 5.0)  # seconds before a job that died where it stood is tried again
_HELD_PAUSE = 2.0  # seconds until a folder that somebody else writes in is looked at again
_LAST_LINES = 5


@dataclass(frozen=True)
class Options:
    """How jobs are run; none of it decides a number but the device."""

    device: str | None = None
    data: str | None = None
    """The folder that holds the data sets of classifiers."""
    checkpoint_seconds: float = 120
    command: tuple[str, ...] = ()
    """The words of the command that started the sweep."""


@dataclass(frozen=True)
class Outcome:
    """How the supervision of a job ended."""

    state: Literal["done", "failed", "held", "stopped"]
    """``held``: another process writes in the run's folder, so the job is looked at again later."""
    message: str = ""


class Stop:
    """Asks all jobs to stop: at their next checkpoint, or at once."""

    def __init__(self) -> None:
        self.asked, self.at_once = threading.Event(), threading.Event()

    def ask(self) -> None:
        """The second time, at once."""
        (self.at_once if self.asked.is_set() else self.asked).set()


def supervise(plan: Plan, job: Job, options: Options, stop: Stop) -> Outcome:
    """Run a job until it is done, has failed, or is to stop."""
    while not stop.asked.is_set():
        shown = _shown(plan, job)
        status = _run_once(plan, job, options, stop)
        if status == DONE:
            plan.deaths(job).unlink(missing_ok=True)
            return Outcome("done")
        if status == HELD:
            return Outcome("held")
        if stop.asked.is_set():
            break
        if status == STOPPED:  # by somebody else, and it has saved its state
            continue
        weight = _TOO_EARLY if status in _OUTSIDE and _shown(plan, job) == shown else 1.0
        deaths = DEATHS if status == MISTAKE else count_death(plan, job, weight)
        if deaths >= DEATHS:
            why = last_lines(plan.log(job)) or f"its process ended with status {status}"
            write_json(plan.failure(job), {"step": progress_of(plan.run_folder(job))[0], "status": status, "log": why})
            return Outcome("failed", why)
        if deaths > 1:
            stop.asked.wait(_PAUSES[int(deaths) - 1])
    return Outcome("stopped")


def supervise_when_free(plan: Plan, job: Job, options: Options, stop: Stop) -> Outcome:
    """:func:`supervise`, after whoever else writes in the folder: for executors that do not come back to a job."""
    while not plan.is_done(job):
        outcome = supervise(plan, job, options, stop)
        if outcome.state != "held":
            return outcome
        stop.asked.wait(_HELD_PAUSE)
    return Outcome("done")


def _run_once(plan: Plan, job: Job, options: Options, stop: Stop) -> int:
    """One process for the job, to its end; its exit status."""
    order = Order(
        kind=job.kind,
        config=job.config,
        folder=str(plan.run_folder(job)),
        device=options.device,
        data=options.data,
        checkpoint_seconds=options.checkpoint_seconds,
        command=list(options.command) or sys.argv,
        parent=os.getpid(),
    )
    threads = str(job.config["threads"])
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}
    plan.log(job).parent.mkdir(parents=True, exist_ok=True)
    with plan.log(job).open("ab") as log:
        # In a session of its own: Ctrl-C reaches the supervisor alone, which asks the jobs to stop.
        process = subprocess.Popen(
            [sys.executable, "-m", "clop.experiments.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        assert process.stdin is not None
        try:
            process.stdin.write(order.json().encode())
            process.stdin.close()
        except BrokenPipeError:  # it is dead already
            pass
        asked = False
        while process.poll() is None:
            stop.asked.wait(_POLL) if not asked else stop.at_once.wait(_POLL)
            if stop.asked.is_set() and not asked:
                process.terminate()
                asked = True
            if stop.at_once.is_set():
                process.kill()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode


def count_death(plan: Plan, job: Job, weight: float = 1.0) -> float:
    """Note that a job has died; returns how often it has where it stands now."""
    mark = progress_of(plan.run_folder(job))
    before = read_json(plan.deaths(job))
    count = float(before.get("count", 0)) + weight if before.get("mark") == mark else weight
    write_json(plan.deaths(job), {"mark": mark, "count": count})
    return count


def _shown(plan: Plan, job: Job) -> int:
    """When the run has last shown where it stands, which it first does after its first step."""
    try:
        return (plan.run_folder(job) / "progress.json").stat().st_mtime_ns
    except OSError:
        return 0


def progress_of(folder: Path) -> list[int]:
    """How far a run is: the step of its newest checkpoint, and the evaluations it has made after its training."""
    steps = [int(path.stem.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*.pt")]
    return [max(steps, default=0), len(list((folder / "evaluations").glob("*.json")))]


def last_lines(log: Path) -> str:
    """The end of a job's log, without its lines of progress."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LAST_LINES:])
