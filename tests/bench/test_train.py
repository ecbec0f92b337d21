"""The benchmark of the learner adds up."""

import pytest

from clop.bench.train import Row, run


def test_share_of_peak_counts_acting_once_and_learning_in_each_epoch():
    """10 ms a step are 100 steps/s of 0.06 + 3 * 0.18 GFLOP: 60 of 120 GFLOP/s."""
    row = Row("ppo", env_ms=1.0, act_ms=2.0, learn_ms=7.0, peak_gflops=120.0, epochs=3)
    assert row.steps_per_second == pytest.approx(100)
    assert row.share_of_peak == pytest.approx(0.5)


@pytest.mark.slow
def test_every_part_of_a_step_takes_time_and_learning_most(monkeypatch):
    monkeypatch.setattr("clop.bench.train._NUM_STEPS", 2)
    rows = run("fruitbot", rounds=1)
    assert [row.what for row in rows] == ["ppo", "clop"]
    for row in rows:
        assert 0 < row.env_ms < row.learn_ms
        assert 0 < row.act_ms < row.learn_ms
