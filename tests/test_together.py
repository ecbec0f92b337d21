"""Jobs in processes of their own: what comes back, and what is left behind."""

import multiprocessing
import os
import sys

import pytest

from clop.distributed import together
from clop.errors import UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


def fail():
    raise UsageError("no such level")


def die():
    os._exit(1)


def test_jobs_are_done_in_processes_of_their_own_and_results_come_in_their_order():
    """Fails if a second job waits for the first, here for ever."""
    barrier = multiprocessing.get_context("fork").Barrier(3, timeout=600)

    def job(name):
        barrier.wait()
        return name, os.getpid()

    names, processes = zip(*together([lambda: job("a"), lambda: job("b"), lambda: job("c")]), strict=True)
    assert names == ("a", "b", "c")
    assert len(set(processes)) == 3
    assert processes[0] == os.getpid()


def test_a_single_job_needs_no_other_process():
    assert together([os.getpid]) == [os.getpid()]


@pytest.mark.parametrize(
    ("job", "sentence"), [(fail, "no such level"), (die, "another process of this command has died")]
)
def test_an_error_of_another_process_is_raised_here(job, sentence):
    """Fails if a job that has no result leaves the first process waiting."""
    with pytest.raises(UsageError, match=sentence):
        together([lambda: 1, job])


def test_no_process_is_left_behind_when_the_first_job_fails():
    with pytest.raises(UsageError, match="no such level"):
        together([fail, lambda: multiprocessing.get_context("fork").Event().wait()])
    assert not multiprocessing.active_children()


def test_other_processes_are_silent(capfd):
    """Fails if two lines of progress would be written over each other."""
    together([lambda: None, lambda: sys.stderr.write("loud")])
    assert capfd.readouterr().err == ""
