"""What an evaluation costs: which ways are compared, and that they play the same episodes."""

import numpy as np
import pytest

from clop.bench import evaluate as bench
from clop.bench.evaluate import Settings, check_equal, measure
from clop.errors import UsageError
from clop.rl.envs.backends import installed_backends
from clop.rl.envs.spec import Episodes
from clop.rl.evaluate import Evaluation

needs_games = pytest.mark.skipif(not installed_backends(), reason="needs games")


def evaluation(returns):
    columns = {name: np.array(returns) for name in Episodes._fields}
    return Evaluation("clop-v2", "bigfish", "easy", "test", "", "procgen", 0, Episodes(**columns))


@needs_games
def test_speeds_are_frames_per_second_beside_one_process(monkeypatch):
    """Fails when the episodes of a protocol, which are other ones, count as the same work."""
    clock = iter(range(10**9))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(bench._TimedAgent, "__call__", bench.Agent.__call__)  # which reads the clock too
    rows = measure(Settings(games="bigfish", encoder="small", episodes=8, rounds=1))
    assert [(row.protocol, row.processes) for row in rows] == [("clop-v2", 1), ("clop-v2", 2), ("clop-v1", 1)]
    assert rows[0].frames == rows[1].frames
    assert rows[0].speed == 1
    assert rows[2].speed == pytest.approx(rows[2].frames / rows[0].frames)
    assert [row.network_share for row in rows] == [0, None, 0]


def test_episodes_that_depend_on_the_number_of_processes_are_no_result():
    check_equal(evaluation([1.0, 2.0]), evaluation([1.0, 2.0]))
    with pytest.raises(UsageError, match="depend on the number of processes"):
        check_equal(evaluation([1.0, 2.0]), evaluation([1.0, 3.0]))


def test_one_process_is_not_compared_with_itself():
    with pytest.raises(UsageError, match="at least 2"):
        Settings(processes=1)
