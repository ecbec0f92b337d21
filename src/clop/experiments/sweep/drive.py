"""Drive a sweep from its plan to its end, on any executor; the board shows it, Ctrl-C stops it at checkpoints."""

import sys
import time
from collections.abc import Callable

from clop.errors import StoppedError, UsageError
from clop.experiments.interrupts import handling
from clop.experiments.sweep.board import Board
from clop.experiments.sweep.plan import Plan
from clop.experiments.sweep.queue import Queue
from clop.experiments.sweep.supervise import Stop

Executor = Callable[[Queue, Stop], Callable[[], bool]]
"""Starts to run the jobs of a queue, and returns a function that says whether it is still at it."""
_POLL = 0.2
_NAMED = 10  # failed jobs that the summary names


def drive(plan: Plan, jobs: int, execute: Executor) -> str:
    """Bring all jobs of a plan to their end; returns what came of it.

    A :class:`UsageError` names the jobs that failed, a :class:`StoppedError` says how to go on.
    """
    queue, stop = Queue(plan), Stop()
    if queue.finished:
        return _summary(queue)
    board = Board(queue, jobs)
    with handling(lambda *_: _ask(stop)):
        goes_on = execute(queue, stop)
        while goes_on():
            board.show()
            time.sleep(_POLL)
        board.close()
    if stop.asked.is_set():
        raise StoppedError(
            f"{plan.name} has stopped with {len(queue.done)} of {len(plan.jobs)} runs done; the same command goes on"
        )
    return _summary(queue)


def _summary(queue: Queue) -> str:
    plan, done = queue.plan, len(queue.done)
    earlier = f", {queue.found_done} of them before" if queue.found_done else ""
    text = f"{plan.name}: {done} of {len(plan.jobs)} runs are done{earlier}; they are in {plan.root / 'runs'}"
    if not queue.failed:
        return text
    named = [f"  {job.title}: {message}" for job, message in list(queue.failed.items())[:_NAMED]]
    more = [f"  and {len(queue.failed) - _NAMED} more"] if len(queue.failed) > _NAMED else []
    raise UsageError(
        "\n".join(
            [f"{text}; {len(queue.failed)} failed, try them again with: clop sweep retry {plan.root}", *named, *more]
        )
    )


def _ask(stop: Stop) -> None:
    """An interrupt asks the jobs to stop at a checkpoint, a second one stops them at once."""
    if not stop.asked.is_set():
        print("\nclop: all jobs stop at a checkpoint; once more to stop at once", file=sys.stderr)  # noqa: T201
    stop.ask()
