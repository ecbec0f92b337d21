"""The jobs of a sweep that are still to be run, as executors take them one by one."""

import threading
import time

from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.supervise import Outcome

_AGAIN = 2.0  # seconds until a job that somebody else runs is looked at again


class Queue:
    """What waits, what runs here, and how the rest ended. Several threads may take from it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._lock = threading.Lock()
        self.done: list[Job] = []
        self.failed: dict[Job, str] = {}
        self.waiting: list[Job] = []
        self.active: list[Job] = []
        self._looked: dict[str, float] = {}  # when a job was found to be somebody else's
        for job in plan.jobs:
            if plan.is_done(job):
                self.done.append(job)
            elif plan.failure(job).exists():
                self.failed[job] = "failed before; try it again with: clop sweep retry"
            else:
                self.waiting.append(job)
        self.found_done = len(self.done)

    @property
    def finished(self) -> bool:
        return not self.waiting and not self.active

    def take(self) -> Job | None:
        """The next job that can be started now, None if there is none at this moment."""
        with self._lock:
            busy = {job.id for job in self.active}
            for job in list(self.waiting):
                if time.monotonic() - self._looked.get(job.name, -_AGAIN) < _AGAIN:
                    busy.add(job.id)
                if job.id in busy:
                    continue
                if self.plan.is_done(job):  # by another driver of the same sweep
                    self.waiting.remove(job)
                    self.done.append(job)
                    continue
                if any(other.id == job.id and other.total < job.total for other in self.waiting):
                    continue  # the smaller total of the same run comes first
                self.waiting.remove(job)
                self.active.append(job)
                return job
        return None

    def give_back(self, job: Job, outcome: Outcome) -> None:
        """What came of a job that was taken."""
        with self._lock:
            self.active.remove(job)
            if outcome.state == "done":
                self.done.append(job)
            elif outcome.state == "failed":
                self.failed[job] = outcome.message
            else:
                self.waiting.insert(0, job)
                if outcome.state == "held":
                    self._looked[job.name] = time.monotonic()
