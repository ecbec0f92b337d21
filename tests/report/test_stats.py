"""Statistics of seeds × games: matrices worked by hand, rliable's output, and the mistakes that are easy to make."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from clop.report import stats

RLIABLE = json.loads(Path(__file__).with_name("fixtures").joinpath("rliable.json").read_text())
NAN = float("nan")
# Four seeds, two games of very different ease.
HAND = np.array([[0.0, 0.8], [0.1, 0.9], [0.2, 1.0], [0.3, 1.3]])


def rng():
    return np.random.default_rng(0)


def test_statistics_of_a_small_matrix_by_hand():
    assert stats.mean(HAND) == pytest.approx((0.15 + 1.0) / 2)
    assert stats.median(HAND) == pytest.approx((0.15 + 1.0) / 2)
    assert stats.iqm(HAND) == pytest.approx((0.2 + 0.3 + 0.8 + 0.9) / 4)  # of eight runs, two are cut at either end
    assert stats.optimality_gap(HAND) == pytest.approx(1 - (0.15 + (0.8 + 0.9 + 1.0 + 1.0) / 4) / 2)
    assert stats.profile(HAND, np.array([0.1, 0.85])) == pytest.approx([(2 / 4 + 1) / 2, (0 + 3 / 4) / 2])


def test_the_median_is_over_games_and_not_over_runs():
    """Fails if runs are pooled: the median of all runs here is 0.1."""
    scores = np.array([[0.0, 0.1, 0.6], [0.0, 0.1, 0.9], [0.0, 1.0, 0.0]])
    assert stats.median(scores) == pytest.approx(0.4)


def test_a_game_with_more_seeds_does_not_count_more():
    """Fails if seeds are pooled across games: the mean of the five runs is 0.24."""
    scores = np.array([[1.0, 0.0], [NAN, 0.1], [NAN, 0.1], [NAN, 0.0]])
    assert stats.mean(scores) == pytest.approx((1.0 + 0.05) / 2)
    # Five runs, one is cut from either end: weights up to 1/5 and from 4/5 on fall away.
    inside = (0.25 - 0.2) * 0.0 + 2 * 0.125 * 0.1 + (0.8 - 0.5) * 1.0
    assert stats.iqm(scores) == pytest.approx(inside / 0.6)
    assert stats.profile(scores, np.array([0.05])) == pytest.approx([(1 + 0.5) / 2])


@pytest.mark.parametrize("kind", ["mean", "median", "iqm", "optimality_gap"])
@pytest.mark.parametrize("method", ["clop", "ppo"])
def test_estimates_are_those_of_rliable(kind, method):
    """Points to rounding; the ends of intervals of 50 000 repetitions within their Monte Carlo error."""
    value, low, high = RLIABLE["found"][kind][method]
    found = stats.estimate(getattr(stats, kind), np.array(RLIABLE["scores"][method]), rng())
    assert found.value == pytest.approx(value, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.002)
    assert found.n == 5


@pytest.mark.parametrize("method", ["clop", "ppo"])
def test_profiles_are_those_of_rliable(method):
    values, lows, highs = RLIABLE["found"]["profile"][method]
    found = stats.profile_estimate(np.array(RLIABLE["scores"][method]), RLIABLE["taus"], rng(), 20_000)
    assert [one.value for one in found] == pytest.approx(values, abs=1e-12)
    for ends, expected in (([one.low for one in found], lows), ([one.high for one in found], highs)):
        assert ends == pytest.approx(expected, abs=1 / 30 + 1e-9)  # scores are shares of 30 runs


def test_the_probability_of_improvement_is_that_of_rliable():
    """rliable's interval is of 2000 repetitions, since it takes minutes."""
    value, low, high = RLIABLE["found"]["improvement"]
    _, found = stats.improvement(RLIABLE["scores"]["clop"], RLIABLE["scores"]["ppo"], rng())
    assert found.value == pytest.approx(value, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.015)


def test_several_statistics_of_the_same_resamples_are_what_each_is_alone():
    """Fails if one statistic moves on the random numbers of another, or changes the scores that it is given."""
    kinds = [stats.mean, stats.median, stats.iqm, stats.optimality_gap]
    together = stats.estimate_each(kinds, HAND, rng(), 5000)
    assert together == [stats.estimate(kind, HAND, rng(), 5000) for kind in kinds]


def test_an_interval_of_improvement_is_of_runs_drawn_from_both_methods():
    """The wins of each resample, counted one by one; fails if the runs of one method are drawn for the other."""
    x, y = np.array([[1.0], [2.0], [6.0]]), np.array([[1.5], [2.0], [0.0], [7.0]])
    (found,), _ = stats.improvement(x, y, rng(), 400)
    again = rng()
    a, b = (again.integers(len(scores), size=(400, len(scores))) for scores in (x, y))
    pairs = [
        [x[i, 0] > y[j, 0] or 0.5 * (x[i, 0] == y[j, 0]) for i in mine for j in other]
        for mine, other in zip(a, b, strict=True)
    ]
    assert (found.low, found.high) == pytest.approx(np.quantile(np.mean(pairs, axis=1), (0.025, 0.975)))


def test_the_probability_of_improvement_by_hand():
    x, y = [[1.0, 5.0], [2.0, 5.0]], [[1.0, 5.0], [0.0, 6.0], [3.0, 7.0]]
    (first, second), over = stats.improvement(x, y, rng(), 100)
    assert first.value == pytest.approx((0.5 + 1 + 0 + 1 + 1 + 0) / 6)
    assert second.value == pytest.approx((0.5 + 0 + 0) * 2 / 6)
    assert over.value == pytest.approx((first.value + second.value) / 2)
    assert (first.low, over.low, over.n) == (None, None, 2)


def test_the_bootstrap_draws_seeds_and_never_games():
    """Fails if games are resampled: two games, each without spread, have no uncertainty whatever lies between them."""
    scores = np.array([[0.0, 1.0]] * 5)
    found = stats.estimate(stats.mean, scores, rng(), 500)
    assert (found.low, found.high) == (0.5, 0.5)
    drawn = np.concatenate([part.mean((1, 2)) for part in stats.resamples(scores.reshape(-1, 1), 500, rng())])
    assert np.quantile(drawn, 0.025) < 0.3  # the control: the same numbers pooled into one game spread widely


def test_no_seed_is_drawn_for_another_game_and_holes_stay_holes():
    scores = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, NAN], [NAN, NAN]])
    (drawn,) = stats.resamples(scores, 300, rng())
    assert drawn.shape == (300, 4, 2)
    assert set(np.unique(drawn[:, :3, 0])) == {1.0, 2.0, 3.0}
    assert set(np.unique(drawn[:, :2, 1])) == {10.0, 20.0}
    assert np.isnan(drawn[:, 3, 0]).all()
    assert np.isnan(drawn[:, 2:, 1]).all()


def test_the_two_returns_of_a_run_are_drawn_together():
    """Fails if train and test are resampled apart, which makes a gap that is the same in every run look uncertain."""
    rows = np.array([[10.0, 8.0], [20.0, 18.0], [30.0, 28.0]])
    gap = stats.estimate_rows(lambda samples: (samples[0][..., 0] - samples[0][..., 1]).mean(-1), [rows], rng(), 500)
    assert (gap.value, gap.low, gap.high) == (2.0, 2.0, 2.0)
    apart = stats.estimate_rows(
        lambda samples: (samples[0] - samples[1])[..., 0].mean(-1), [rows[:, :1], rows[:, 1:]], rng(), 500
    )
    assert apart.low < 0 < apart.high


def test_below_three_seeds_there_is_no_interval():
    for found in (
        stats.estimate(stats.iqm, HAND[:2], rng()),
        stats.estimate(stats.mean, np.array([[1.0, 1.0], [2.0, 2.0], [3.0, NAN]]), rng()),  # one game has two
        stats.student_estimate([1.0, 2.0]),
        stats.welch_estimate([1.0, 2.0, 3.0], [1.0, 2.0]),
    ):
        assert (found.low, found.high, found.n) == (None, None, 2)
        assert not found.excludes(1e9)


def test_an_interval_is_decided_by_its_seed_and_its_name():
    """Fails for a generator that is shared: then an interval would depend on what was computed before it."""
    ends = [stats.estimate(stats.iqm, HAND, stats.generator(0, "iqm", name), 200) for name in ("clop", "clop", "ppo")]
    assert ends[0] == ends[1]
    assert (ends[0].low, ends[0].high) != (ends[2].low, ends[2].high)


def test_student_and_welch_intervals_are_those_of_scipy():
    from scipy.stats import ttest_1samp, ttest_ind

    a, b = [4.1, 5.3, 4.7, 6.0, 5.2], [3.9, 4.4, 3.1]
    found, scipy = stats.student_estimate(a), ttest_1samp(a, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((scipy.low, scipy.high))
    found, scipy = stats.welch_estimate(a, b), ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((scipy.low, scipy.high))


def test_three_seeds_of_one_game_need_student():
    """The reason for two kinds of intervals: of 400 true means the bootstrap misses a quarter, Student's a twentieth.

    Fails if the standard deviation of the seeds is taken for their standard error, or the other way round: then
    Student's interval covers nearly all, or much too few.
    """
    draws = rng()
    samples = draws.standard_normal((400, 3))
    missed = sum(stats.student_estimate(sample).excludes(0.0) for sample in samples) / 400
    boot = [stats.estimate(stats.mean, sample[:, None], draws, 200).excludes(0.0) for sample in samples]
    assert 0.02 < missed < 0.09
    assert 0.17 < sum(boot) / 400 < 0.34


def test_fifty_thousand_repetitions_of_the_whole_table_take_seconds():
    scores = rng().random((14, 5, 16))
    start = time.process_time()
    for matrix in scores:
        stats.estimate(stats.iqm, matrix, rng(), 50_000)
    assert time.process_time() - start < 20  # about 4 on one core; a loop over repetitions takes minutes
