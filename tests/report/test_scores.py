"""Scores of runs: what goes where in the matrices, and what is missing."""

import numpy as np
import pytest

from clop.errors import UsageError
from clop.report.scores import Scores


@pytest.fixture
def runs(tmp_path, write_agent):
    """Two methods, two games, three seeds; clop lacks a seed of heist, and maze was run with ppo alone."""
    for seed in range(3):
        write_agent(tmp_path / f"a{seed}", "bigfish", "ppo", seed, test=1 + 39 * 0.1 * seed)
        write_agent(tmp_path / f"b{seed}", "bigfish", "clop", seed, test=1 + 39 * (0.5 + 0.1 * seed))
        write_agent(tmp_path / f"c{seed}", "heist", "ppo", seed, test=3.5 + 6.5 * 0.2)
        if seed != 1:
            write_agent(tmp_path / f"d{seed}", "heist", "clop", seed, test=3.5 + 6.5 * 0.3)
    write_agent(tmp_path / "e", "maze", "ppo", 0, test=10.0)
    return tmp_path


def test_runs_become_seeds_by_games_of_normalised_returns_with_holes_shown(runs):
    scores = Scores.from_runs([runs])
    assert scores.games == ("bigfish", "heist", "maze")
    nan = float("nan")
    np.testing.assert_allclose(scores.by_method["clop"], [[0.5, 0.3, nan], [0.6, nan, nan], [0.7, 0.3, nan]])
    np.testing.assert_allclose(scores.by_method["ppo"], [[0.0, 0.2, 1.0], [0.1, 0.2, nan], [0.2, 0.2, nan]])
    assert sorted(scores.holes) == [
        *("clop on heist: 2 of 3 seeds", "clop on maze: 0 of 3 seeds", "ppo on maze: 1 of 3 seeds"),
    ]


def test_methods_are_compared_on_the_games_that_all_have(runs):
    """Fails if ppo is credited with maze, which clop was not run on."""
    scores = Scores.from_runs([runs])
    assert scores.common == ("bigfish", "heist")
    assert scores.mean(100)["ppo"].value == pytest.approx((0.1 + 0.2) / 2)
    assert scores.mean(100)["clop"].value == pytest.approx((0.6 + 0.3) / 2)
    assert scores.iqm(100)["clop"].n == 2
    assert scores.iqm(100)["clop"].low is None
    assert scores.iqm(100)["ppo"].low is not None
    won = scores.improvement("clop", "ppo", reps=100, seed=0)
    assert {game: one.value for game, one in won.by_game.items()} == {"bigfish": 1.0, "heist": 1.0}
    assert won.over_games.value == 1.0
    assert [one.value for one in scores.profile([0.15, 0.25])["ppo"]] == pytest.approx([(1 / 3 + 1) / 2, 0.0])


def test_training_returns_and_raw_ones_can_be_had(runs):
    scores = Scores.from_runs([runs], "train", raw=True)
    assert np.nanmax(scores.by_method["ppo"]) == 10.0


def test_scores_are_of_one_scale(tmp_path, write_agent):
    """Fails if agents of 50 and of 200 levels are pooled as seeds."""
    write_agent(tmp_path / "a", seed=0)
    write_agent(tmp_path / "b", seed=1, num_levels=50)
    with pytest.raises(UsageError, match="scores are of one scale, got 2: procgen-easy: impala, easy, 200 levels; "):
        Scores.from_runs([tmp_path])


def test_runs_that_grew_are_compared_where_all_were_evaluated(tmp_path, write_agent):
    """Fails if the end of a longer run is put beside the end of a shorter one."""
    write_agent(tmp_path / "a", seed=0, steps=2000, test=40.0, earlier=[(1000, 10.0, 1.0)])
    write_agent(tmp_path / "b", seed=1, steps=1000, test=1.0)
    scores = Scores.from_runs([tmp_path])
    np.testing.assert_allclose(scores.by_method["ppo"], [[0.0], [0.0]])
    late = Scores.from_runs([tmp_path], steps=2000)
    np.testing.assert_allclose(late.by_method["ppo"], [[1.0]])
    assert late.problems == (f"{tmp_path / 'b'}: not evaluated at 2000 steps",)


def test_a_wrong_name_is_corrected(runs):
    scores = Scores.from_runs([runs])
    with pytest.raises(UsageError, match="unknown method 'clpo'; did you mean 'clop'"):
        scores.improvement("clpo", "ppo")
    with pytest.raises(UsageError, match="unknown split 'tset'; did you mean 'test'"):
        Scores.from_runs([runs], "tset")
