"""Run a sweep on Slurm: one array of jobs, submitted by submitit; a job that is preempted or out of time is requeued.

Nothing waits for the jobs here: ``clop sweep status`` looks at their folders, and the same command submits what is
still missing.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clop.errors import UsageError
from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.queue import Queue
from clop.experiments.sweep.supervise import Options, Stop, supervise_when_free
from clop.files import write_atomic

_POLL = 0.5
_AT_A_TIME = 256  # jobs of the array, unless --jobs says otherwise


@dataclass(frozen=True)
class Resources:
    """What each job of the array asks for."""

    cpus: float | None = None
    """Cores; the processes times the threads of a run if None."""
    gpus: float = 0
    hours: float = 24
    partition: str | None = None
    jobs: int | None = None
    """At most so many at a time."""


class Task:
    """One run as Slurm starts it. submitit calls ``checkpoint`` before the job is taken away, and requeues it."""

    def __init__(self, root: Path, name: str, jobs: list[Job], options: Options) -> None:
        self.root, self.name, self.jobs, self.options = root, name, jobs, options
        self._stop: Stop | None = None
        self._thread: threading.Thread | None = None

    def __call__(self) -> list[str]:
        """The states in which its jobs ended: those of one run, the smaller total first."""
        plan, stop = Plan(self.root, self.name, self.jobs), Stop()
        states: list[str] = []

        def work() -> None:
            states.extend(supervise_when_free(plan, job, self.options, stop).state for job in self.jobs)

        # In a thread: submitit interrupts the main one, where checkpoint() waits for the run to have saved its state.
        self._stop, self._thread = stop, threading.Thread(target=work, name="run")
        self._thread.start()
        while self._thread.is_alive():
            self._thread.join(_POLL)
        return states

    def checkpoint(self) -> Any:
        """Let the run save its state, then go on in a new job."""
        from submitit.helpers import DelayedSubmission

        if self._stop is not None and self._thread is not None:
            self._stop.ask()
            self._thread.join()
        return DelayedSubmission(Task(self.root, self.name, self.jobs, self.options))


def submit(
    plan: Plan, options: Options, resources: Resources, *, print_only: bool = False, cluster: str = "slurm"
) -> str:
    """Submit what is missing as one array; returns what was done in a sentence.

    Args:
        plan: The sweep.
        options: How jobs are run.
        resources: What each job asks for.
        print_only: Write the sbatch file, and submit nothing.
        cluster: ``slurm``; for tests, ``local`` and ``debug`` of submitit.
    """
    tasks = make_tasks(plan, options)
    if not tasks:
        return f"{plan.name}: all {len(plan.jobs)} runs are done or failed; nothing is submitted"
    executor = _executor(plan, tasks, resources, "print" if print_only else cluster)
    if print_only:
        path = plan.root / "slurm" / "sweep.sbatch"
        executor.parameters["map_count"] = len(tasks)
        text = executor._make_submission_file_text(executor._submitit_command_str, "sweep")
        write_atomic(path, lambda draft: draft.write_text(text))
        return f"wrote {path}, which submitit would hand to sbatch; nothing is submitted"
    with executor.batch():
        submitted = [executor.submit(task) for task in tasks]
    return (
        f"{plan.name}: {len(submitted)} jobs are submitted as {submitted[0].job_id}; look at them with: "
        f"clop sweep status {plan.root}"
    )


def make_tasks(plan: Plan, options: Options) -> list[Task]:
    """One task a run that is not done, with all its totals."""
    runs: dict[str, list[Job]] = {}
    for job in sorted(Queue(plan).waiting, key=lambda job: job.total):
        runs.setdefault(job.id, []).append(job)
    return [Task(plan.root.absolute(), plan.name, jobs, options) for jobs in runs.values()]


def _executor(plan: Plan, tasks: list[Task], resources: Resources, cluster: str) -> Any:
    try:
        import submitit
    except ImportError:
        raise UsageError('--on slurm needs submitit, which is not installed: pip install "clop[cluster]"') from None
    folder = plan.root / "slurm"
    cores = max(job.config.get("processes", 1) * job.config["threads"] for task in tasks for job in task.jobs)
    asked: dict[str, Any] = {
        "timeout_min": max(1, round(60 * resources.hours)),
        "cpus_per_task": int(resources.cpus or cores),
        "name": plan.name,
    }
    if resources.gpus:
        asked["gpus_per_node"] = max(1, round(resources.gpus))
    own: dict[str, Any] = {"array_parallelism": resources.jobs or _AT_A_TIME}
    if resources.partition is not None:
        own["partition"] = resources.partition
    if cluster == "print":
        executor: Any = _without_slurm(submitit.SlurmExecutor)(folder)
        executor.update_parameters(**executor._convert_parameters(asked), **own)
        return executor
    try:
        executor = submitit.AutoExecutor(folder, cluster=cluster)
    except RuntimeError as error:
        raise UsageError(f"no Slurm is here: {error} --print-only writes the sbatch file without one") from None
    executor.update_parameters(**asked, **{f"slurm_{name}": value for name, value in own.items()})
    return executor


def _without_slurm(executor: type[Any]) -> type[Any]:
    """submitit's executor on a machine without Slurm, which can write the file but not submit it."""
    return type("Printing", (executor,), {"affinity": classmethod(lambda cls: 1)})
