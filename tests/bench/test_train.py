"""The benchmark of the learner adds up."""

import pytest

from clop import CLOP
from clop.bench.contestants import Contestant, started
from clop.bench.train import Row, Settings, contestants, cost_of


def test_share_of_peak_counts_acting_once_and_learning_in_each_epoch():
    """100 steps/s of 0.06 + 3 * 0.18 GFLOP are 60 of 120 GFLOP/s."""
    assert Row("ppo", 100.0, 1.0, peak_gflops=120.0).share_of_peak == pytest.approx(0.5)
    assert Row("other", 100.0, 1.0).share_of_peak is None


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_contestant_reports_where_its_time_went(processes):
    contestant = Contestant("ours", processes=processes, method="clop", num_steps=2, game="fruitbot")
    with started([contestant]) as running:
        turns = [running["ours"].turn() for _ in range(2)]
    for turn in turns:
        assert turn["seconds"] == pytest.approx(turn["env"] + turn["act"] + turn["learn"])
        assert 0 < turn["env"] < turn["learn"]
        assert len(turn["memory_gb"]) == processes


@pytest.mark.slow
def test_stable_baselines_plays_the_same_games_with_the_same_network():
    pytest.importorskip("stable_baselines3")
    from clop.bench.sb3 import Impala, SB3Games
    from clop.rl.network import Network, NetworkConfig

    games = SB3Games("fruitbot", 2)
    extractor = Impala(games.observation_space)
    ours = Network(NetworkConfig())
    heads = sum(p.numel() for head in (ours.policy_head, ours.value_head) for p in head.parameters())
    assert sum(p.numel() for p in extractor.parameters()) == sum(p.numel() for p in ours.parameters()) - heads
    games.close()
    with started([Contestant("sb3", "sb3", num_steps=8, game="fruitbot")]) as running:
        assert running["sb3"].turn()["seconds"] > 0


def test_the_cost_of_a_method_is_its_time_over_that_without_it(monkeypatch):
    """Fails for the inverse, and when both learners have the method."""

    def times(learner):
        return 0.0, 0.0, 3.0 if any(isinstance(module, CLOP) for module in learner.model.modules()) else 2.0

    monkeypatch.setattr("clop.bench.train._PAIRED_STEPS", 1)
    monkeypatch.setattr("clop.bench.train.iteration_times", times)
    assert cost_of("clop", "fruitbot", rounds=2) == 1.5


def test_all_learners_have_the_same_rollouts(monkeypatch):
    """Fails if a learner is left with the defaults, which are another game and another length."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    learners = contestants(Settings(game="fruitbot", num_steps=8))
    assert {(c.game, c.num_steps) for c in learners} == {("fruitbot", 8)}
    assert [(c.kind, c.processes, c.threads, c.method) for c in learners] == [
        ("clop", 1, 1, "ppo"),
        ("clop", 4, 1, "ppo"),
        ("clop", 4, 1, "clop"),
        ("sb3", 1, 4, "ppo"),
    ]
    assert [c.kind for c in contestants(Settings(without_sb3=True))] == ["clop"] * 3
