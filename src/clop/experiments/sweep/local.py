"""Run a sweep on this machine: so many jobs at a time, each in a process of its own."""

import threading
import time
from collections.abc import Callable

from clop.experiments.sweep.queue import Queue
from clop.experiments.sweep.supervise import Options, Outcome, Stop, supervise

_IDLE = 0.2  # seconds until a thread with nothing to do looks again


def run_local(queue: Queue, stop: Stop, *, jobs: int, options: Options) -> Callable[[], bool]:
    """Start the threads that bring all jobs of the queue to their end, ``jobs`` at a time."""

    def work() -> None:
        while not stop.asked.is_set() and not queue.finished:
            job = queue.take()
            if job is None:
                time.sleep(_IDLE)
                continue
            outcome = Outcome("failed", "its supervisor has failed")
            try:
                outcome = supervise(queue.plan, job, options, stop)
            except OSError as error:  # such as a full disk, where not even its log can be written
                outcome = Outcome("failed", str(error))
            finally:
                queue.give_back(job, outcome)

    threads = [threading.Thread(target=work, name=f"job-{index}", daemon=True) for index in range(jobs)]
    for thread in threads:
        thread.start()
    return lambda: any(thread.is_alive() for thread in threads)
