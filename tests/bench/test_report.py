"""The benchmark of reports: what it writes is what a report reads."""

import pytest

from clop.bench.report import Settings, measure, write_runs
from clop.errors import UsageError
from clop.report.runs import Runs


def test_the_made_up_runs_are_runs(tmp_path):
    """Fails for runs that a report would leave out, so that it would be timed on less than is said."""
    write_runs(tmp_path, Settings(games=2, methods=10, seeds=2, iterations=30))
    found = Runs.find([tmp_path])
    assert not found.problems
    assert len(found.agents) == 40
    assert {run.variant for run in found.agents} >= {"ppo", "idaac+clop", "clop(local=false)"}
    assert all(len(run.train_curve) == 30 and len(run.test_curve) == 2 for run in found.agents)


def test_a_small_report_is_timed_and_the_same_each_time():
    rows, load = measure(Settings(games=1, methods=1, seeds=1, iterations=30, turns=2))
    processor, clock, memory, files = rows
    assert processor.what == "report on 1 run, processor time"
    assert min(processor.value, clock.value, memory.value) > 0
    assert files.unit == f"of {files.value}"
    assert len(load) == 2


def test_more_games_than_there_are_is_a_mistake():
    with pytest.raises(UsageError, match="games must be at most 16, got 17"):
        Settings(games=17)
