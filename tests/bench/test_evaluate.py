"""What an evaluation costs: which ways are compared, and that they play the same episodes."""

import numpy as np
import pytest
import torch

from clop.bench import evaluate as bench
from clop.bench.evaluate import Settings, check_equal, measure
from clop.errors import UsageError
from clop.kernels import pool, stem, winograd
from clop.rl.build import build_learner
from clop.rl.config import TrainConfig
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
    rows, scaling = measure(Settings(games="bigfish", encoder="small", episodes=8, rounds=1))
    assert [(row.protocol, row.layers, row.processes) for row in rows] == [
        ("clop-v1", "torch's", 1),
        ("clop-v1", "ours", 1),
        ("clop-v2", "ours", 1),
        ("clop-v2", "ours", 2),
    ]
    assert rows[2].frames == rows[3].frames
    assert rows[0].speed == 1
    assert rows[2].speed == pytest.approx(rows[2].frames / rows[0].frames)
    assert scaling == {"bigfish": 1}
    assert [row.network_share for row in rows] == [0, 0, 0, None]


def test_plain_layers_are_torchs_own(monkeypatch):
    """Fails if the baseline goes through a kernel of ours, whose speed would then be compared with itself."""
    agents = bench.agents_by_layers(build_learner(TrainConfig.preset("procgen-easy", "bigfish")))
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    with agents["ours"].playing(0), agents["torch's"].playing(0):
        expected = agents["ours"](frames).known_logits
        for module, name in ((stem, "_apply"), (winograd, "pairs"), (winograd, "pooled"), (pool, "_apply")):
            monkeypatch.setattr(module, name, None)
        torch.testing.assert_close(agents["torch's"](frames).known_logits, expected)
        with pytest.raises(TypeError):
            agents["ours"](frames)


def test_episodes_that_depend_on_the_number_of_processes_are_no_result():
    check_equal(evaluation([1.0, 2.0]), evaluation([1.0, 2.0]))
    with pytest.raises(UsageError, match="depend on the number of processes"):
        check_equal(evaluation([1.0, 2.0]), evaluation([1.0, 3.0]))


def test_one_process_is_not_compared_with_itself():
    with pytest.raises(UsageError, match="at least 2"):
        Settings(processes=1)
