"""Run a sweep on a Ray cluster: each job is a plain task. Queueing, placement and the death of nodes are Ray's.

A task supervises its job as any executor does. If its node dies, Ray starts the task elsewhere, where the job goes on
from its folder once the lease of the dead one has expired; nodes may come and go at any time.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clop.errors import UsageError
from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.queue import Queue
from clop.experiments.sweep.supervise import Options, Outcome, Stop, supervise_when_free

_POLL = 0.5


def run_on_ray(
    queue: Queue, stop: Stop, *, address: str | None, jobs: int, options: Options, cpus: float | None, gpus: float
) -> Callable[[], bool]:
    """Hand all jobs of the queue to Ray; returns a function that collects what has ended, and says if more is to come.

    Args:
        queue: The jobs.
        stop: Asks them to stop.
        address: Of a running cluster; None starts one on this machine.
        jobs: At most so many at a time; 0 for what the cluster has room for.
        options: How jobs are run.
        cpus: Cores of a job; its processes times its threads if None.
        gpus: GPUs of a job, or a part of one.
    """
    ray = _connect(address)
    remote = ray.remote(_supervise)
    running: dict[Any, Job] = {}

    def goes_on() -> bool:
        while not stop.asked.is_set() and (not jobs or len(running) < jobs) and (job := queue.take()) is not None:
            cores = cpus or job.config.get("processes", 1) * job.config["threads"]
            task = remote.options(num_cpus=cores, num_gpus=gpus, max_retries=-1, name=job.name)
            root = str(queue.plan.root.absolute())
            running[task.remote(root, queue.plan.name, job.asdict(), asdict(options))] = job
        if stop.asked.is_set():
            _cancel(ray, running, queue)
        elif running:
            ended, _ = ray.wait(list(running), timeout=_POLL)
            for reference in ended:
                queue.give_back(running.pop(reference), _outcome(ray, reference))
        else:
            time.sleep(_POLL)
        return not stop.asked.is_set() and not queue.finished

    return goes_on


def _connect(address: str | None) -> Any:
    try:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning of Ray 2.60
        import ray
    except ImportError:
        raise UsageError('--on ray needs Ray, which is not installed: pip install "clop[cluster]"') from None
    where = "a Ray cluster on this machine to start" if address is None else f"the Ray cluster at {address}"
    print(f"clop: waiting for {where}", file=sys.stderr, flush=True)  # noqa: T201
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "include_dashboard": False}
    if address is not None:
        options = {"logging_level": logging.ERROR, "log_to_driver": False, "address": address}
    if ray.is_initialized():
        return ray
    try:
        with _silence():
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(f"no Ray cluster can be reached at {address or 'this machine'}: {first}") from None
    return ray


@contextmanager
def _silence() -> Iterator[None]:
    """Ray's core writes a line for each second in which a cluster does not answer, past Python, to the terminal."""
    terminal = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _supervise(root: str, name: str, job: dict[str, Any], options: dict[str, Any]) -> tuple[str, str]:
    """On a node: bring one job to its end. A folder that somebody else writes in is waited for."""
    wanted, how = Job(**job), Options(**{**options, "command": tuple(options["command"])})
    outcome = supervise_when_free(Plan(Path(root), name, [wanted]), wanted, how, Stop())
    return outcome.state, outcome.message


def _outcome(ray: Any, reference: Any) -> Outcome:
    try:
        state, message = ray.get(reference)
        return Outcome(state, message)
    except ray.exceptions.RayError as error:
        text = str(error)
        if "No module named 'clop'" in text:
            return Outcome("failed", "a node of the cluster has no clop; install the same version on every node")
        return Outcome("failed", text.strip().rpartition("\n")[2])


def _cancel(ray: Any, running: dict[Any, Job], queue: Queue) -> None:
    """Stop all tasks; their jobs are asked to stop when the processes that supervise them are gone, and save."""
    for reference, job in list(running.items()):
        ray.cancel(reference, force=True)
        queue.give_back(job, Outcome("stopped"))
    running.clear()
