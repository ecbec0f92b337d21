"""What a sweep looks like while it runs: a line a running job and the totals on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any, TextIO

from clop.experiments.sweep.jobs import Job
from clop.experiments.sweep.plan import Plan, Status, read_json
from clop.experiments.sweep.queue import Queue
from clop.progress import clock

_PLAIN_INTERVAL = 60.0  # seconds between lines where there is no terminal
_SHOWN = ("running_return", "test_return", "epoch", "running_accuracy")


class Board:
    """Shows a queue until it is empty."""

    def __init__(self, queue: Queue, jobs: int, stream: TextIO | None = None) -> None:
        self.queue, self.jobs = queue, jobs
        self.stream = stream or sys.stderr
        self._live = self.stream.isatty()
        self._lines = 0
        self._shown = float("-inf")
        self._announced: set[str] = set()

    def show(self) -> None:
        """Draw the present state; without a terminal, only now and then."""
        if self._live:
            self._draw(self.lines())
            return
        for job in self.queue.failed:
            self._tell(job, "failed")
        for job in self.queue.done[self.queue.found_done :]:
            self._tell(job, "done")
        if time.monotonic() - self._shown >= _PLAIN_INTERVAL:
            self._shown = time.monotonic()
            self.stream.write("\n".join(self.lines()) + "\n")
            self.stream.flush()

    def lines(self) -> list[str]:
        """The running jobs, then the totals."""
        queue = self.queue
        active = [status_of(queue.plan, job) for job in list(queue.active)]
        lines = [line_of(status) for status in active]
        counts = [f"{len(queue.done)} done", f"{len(active)} running", f"{len(queue.waiting)} waiting"]
        if queue.failed:
            counts.append(f"{len(queue.failed)} failed")
        left = seconds_left([*active, *(Status(job, "waiting", {}) for job in list(queue.waiting))], self.jobs)
        if left is not None and not queue.finished:
            counts.append(f"about {clock(left)} left")
        return [*lines, f"{queue.plan.name}: {', '.join(counts)}, in {queue.plan.root}"]

    def close(self) -> None:
        if self._live:
            self._draw(self.lines())

    def _tell(self, job: Job, how: str) -> None:
        if job.title not in self._announced:
            self._announced.add(job.title)
            self.stream.write(f"{job.title}: {how}\n")
            self.stream.flush()

    def _draw(self, lines: Sequence[str]) -> None:
        up = f"\x1b[{self._lines}F" if self._lines else ""
        self.stream.write(up + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self.stream.flush()
        self._lines = len(lines)


def status_of(plan: Plan, job: Job) -> Status:
    """A job that runs, with what it shows."""
    return Status(job, "running", read_json(plan.run_folder(job) / "progress.json"))


def line_of(status: Status) -> str:
    """``bigfish, clop, seed 0: 120 000/1 000 000 steps, 728 steps/s, 20:10 left, running_return 1.2``"""
    shown = status.progress
    if not shown:
        return f"{status.job.title}: starting"
    parts = [f"{shown['done']:,}/{shown['total']:,} {shown['unit']}".replace(",", " ")]
    if shown["rate"] > 0:
        parts += [
            f"{shown['rate']:.3g} {shown['unit']}/s",
            f"{clock(max(0, shown['total'] - shown['done']) / shown['rate'])} left",
        ]
    parts += [f"{name} {_short(shown[name])}" for name in _SHOWN if name in shown]
    return f"{status.job.title}: {', '.join(parts)}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def seconds_left(statuses: Sequence[Status], jobs: int) -> float | None:
    """Until all are done, at the rates of those that show one; None before any of a kind that is left does."""
    shown = [status for status in statuses if status.progress.get("rate")]
    total = 0.0
    for status in statuses:
        if status.state in ("done", "failed"):
            continue
        alike = [status] if status in shown else [other for other in shown if other.job.kind == status.job.kind]
        if not alike:
            return None
        rate = fmean(other.progress["rate"] for other in alike)
        size = status.job.total if status.job.unit == "steps" else fmean(other.progress["total"] for other in alike)
        total += (1 - status.share) * size / rate
    return total / max(1, jobs)
