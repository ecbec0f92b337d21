"""A sweep on disk: ``jobs.jsonl`` lists its jobs, ``runs/`` has their folders, and what these hold is all its state.

``sweep.json``     name of the sweep
``jobs.jsonl``     one job a line
``runs/NAME/``     an ordinary run folder
``logs/NAME.log``  what the job's processes have printed
``deaths/NAME``    how often it has died where it stands
``failed/NAME``    why it was given up
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clop.errors import UsageError
from clop.experiments.lease import holder
from clop.experiments.sweep.jobs import Job
from clop.files import write_atomic, write_json

State = Literal["done", "running", "failed", "waiting"]
_FORMAT = 1


class Plan:
    """The folder of a sweep."""

    def __init__(
        self, root: Path, name: str, jobs: Sequence[Job], done: frozenset[tuple[str, int]] = frozenset()
    ) -> None:
        self.root, self.name, self.jobs = root, name, list(jobs)
        self.recorded = done
        """Ids and totals of runs that exist as records elsewhere."""

    @classmethod
    def open(cls, root: Path) -> "Plan":
        """The sweep in a folder."""
        try:
            about = json.loads((root / "sweep.json").read_text())
            jobs = [Job(**json.loads(line)) for line in (root / "jobs.jsonl").read_text().splitlines()]
        except FileNotFoundError:
            raise UsageError(f"{root} holds no sweep; start one with: clop sweep run SWEEP --out {root}") from None
        except (ValueError, TypeError) as error:
            raise UsageError(f"{root} holds a sweep that cannot be read: {error}") from None
        if about.get("version") != _FORMAT:
            raise UsageError(
                f"{root} holds a sweep of format {about.get('version')} and this clop reads format {_FORMAT}; use the "
                "clop that began the sweep, or begin anew in another folder"
            )
        recorded = frozenset((name, total) for name, total in about.get("recorded", ()))
        return cls(root, about["name"], jobs, recorded)

    @classmethod
    def create(cls, root: Path, name: str, jobs: Sequence[Job], recorded: Iterable[tuple[str, int]] = ()) -> "Plan":
        """The plan of a sweep in a folder; one that is there already is added to, if it is the same sweep."""
        recorded = frozenset(recorded)
        if root.exists() and not root.is_dir():
            raise UsageError(f"--out: expected a folder, got the file {root}")
        # Listed before the look at sweep.json, since another driver may be writing both files at this moment.
        foreign = [path for path in _listed(root) if path.name != "jobs.jsonl" and not path.name.startswith(".")]
        if (root / "sweep.json").exists():
            earlier = cls.open(root)
            if earlier.name != name:
                raise UsageError(f"{root} holds the sweep {earlier.name}, got {name}; name another folder with --out")
            known = {(job.id, job.total) for job in earlier.jobs}
            merged = [*earlier.jobs, *(job for job in jobs if (job.id, job.total) not in known)]
            plan = cls(root, name, merged, recorded | earlier.recorded)
            if merged == earlier.jobs and plan.recorded == earlier.recorded:
                return plan
        elif foreign:
            raise UsageError(f"{root} is not empty and holds no sweep; name another folder with --out")
        else:
            plan = cls(root, name, jobs, recorded)
        lines = "".join(json.dumps(job.asdict()) + "\n" for job in plan.jobs)
        write_atomic(root / "jobs.jsonl", lambda draft: draft.write_text(lines))
        write_json(root / "sweep.json", {"version": _FORMAT, "name": name, "recorded": sorted(plan.recorded)})
        return plan

    def run_folder(self, job: Job) -> Path:
        return self.root / "runs" / job.name

    def log(self, job: Job) -> Path:
        return self.root / "logs" / f"{job.name}.log"

    def failure(self, job: Job) -> Path:
        return self.root / "failed" / f"{job.name}.json"

    def deaths(self, job: Job) -> Path:
        return self.root / "deaths" / f"{job.name}.json"

    def is_done(self, job: Job) -> bool:
        return (job.id, job.total) in self.recorded or has_ended(self.run_folder(job), job)

    def state(self, job: Job) -> State:
        if self.is_done(job):
            return "done"
        if self.failure(job).exists():
            return "failed"
        return "running" if holder(self.run_folder(job)) is not None else "waiting"

    def statuses(self) -> list["Status"]:
        """Where each job stands. Of a run with two totals, the smaller one is running first."""
        found, taken = [], set()
        for job in self.jobs:
            state = self.state(job)
            if state == "running" and job.id in taken:
                state = "waiting"
            if state == "running":
                taken.add(job.id)
            found.append(Status(job, state, read_json(self.run_folder(job) / "progress.json")))
        return found

    def forget_failures(self) -> list[Job]:
        """Let those that failed be tried again; returns them."""
        failed = [job for job in self.jobs if self.failure(job).exists()]
        for job in failed:
            self.failure(job).unlink()
            self.deaths(job).unlink(missing_ok=True)
        return failed


@dataclass(frozen=True)
class Status:
    """Where a job stands."""

    job: Job
    state: State
    progress: dict[str, Any]
    """What its run has shown last: done, total, rate and returns; empty before its first step."""

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.state == "done":
            return 1.0
        total = self.progress.get("total", 0)
        whole = self.job.total if self.job.unit == "steps" else total
        return min(1.0, self.progress.get("done", 0) / whole) if whole else 0.0


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def has_ended(folder: Path, job: Job) -> bool:
    """Whether a run has come to the end that a job asks for."""
    if job.kind == "agent" and (folder / f"summary-{job.total:012}.json").exists():
        return True
    if not (folder / "summary.json").exists():
        return False
    return job.kind != "agent" or job.total in ends_of(read_json(folder / "summary.json"))


def ends_of(summary: dict[str, Any]) -> set[int]:
    """The totals after which a run was evaluated."""
    return {summary.get("env_steps", -1), *(stage["env_steps"] for stage in summary.get("earlier", ()))}


def recorded_runs(paths: Sequence[Path]) -> Iterator[tuple[str, int]]:
    """Ids and totals of the finished runs below some folders, each of which counts as done wherever it is wanted."""
    from clop.experiments.sweep.jobs import agent_job, vision_job
    from clop.rl.config import TrainConfig
    from clop.vision.train import VisionConfig

    for path in paths:
        if not path.is_dir():
            raise UsageError(f"--done: expected a folder of runs, got {path}")
        for summary in sorted(path.rglob("summary.json")):
            about = read_json(summary.with_name("config.json"))
            try:
                if about["kind"] == "agent":
                    job = agent_job(TrainConfig.fromdict(about["config"]))
                    yield from ((job.id, total) for total in ends_of(read_json(summary)))
                else:
                    job = vision_job(VisionConfig.fromdict(about["config"]))
                    yield job.id, job.total
            except (KeyError, TypeError, UsageError) as error:
                raise UsageError(f"{summary.parent} is no run that this clop can read: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """What a file holds; empty if it is missing or being written."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def free_bytes(path: Path) -> int:
    """Room on the disk that a folder is or will be on."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
