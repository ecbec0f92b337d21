"""Curves and charts: means over seeds at the same steps, and lines that are where they should be."""

import re

import pytest

from clop.report.page.chart import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    chart,
    mark_of,
    scale_of,
    steps_text,
    ticks,
)
from clop.report.page.curves import Curve, Point, training_curve, unseen_curve
from clop.report.runs import Runs


@pytest.fixture
def runs(tmp_path, write_agent):
    """Three seeds, the last of which has logged at other steps and has no test at 500 000."""
    first = [(100_000, 1.0, None), (500_000, 5.0, 3.0), (1_000_000, 10.0, None)]
    last = [(200_000, 4.0, None), (1_000_000, 12.0, None)]
    for seed, curve in enumerate((first, first, last)):
        write_agent(tmp_path / str(seed), "bigfish", "ppo", seed, 9, 6 + seed, curve=curve)
    return sorted(Runs.find([tmp_path]).agents, key=lambda run: run.seed)


def test_a_training_curve_is_the_mean_over_seeds_at_the_same_steps(runs):
    """Fails if runs are averaged line by line although they logged at different steps."""
    points = {point.steps: point for point in training_curve(runs, 9).mean}
    assert list(points) == list(range(200_000, 1_000_001, 100_000))  # the steps that all of them have
    assert points[200_000].value == pytest.approx((2 + 2 + 4) / 3)
    assert points[600_000].value == pytest.approx((6 + 6 + 8) / 3)
    assert points[600_000].low < points[600_000].value < points[600_000].high


def test_a_test_curve_has_no_mean_where_a_seed_is_missing(runs):
    """Fails if the curve jumps because other seeds are in its mean."""
    curve = unseen_curve(runs)
    assert [(point.steps, point.value, point.n) for point in curve.mean] == [(1_000_000, 7.0, 3)]
    assert curve.seeds[0] == [(500_000, 3.0), (1_000_000, 6.0)]


def test_runs_that_ended_elsewhere_are_shown_and_not_averaged(tmp_path, write_agent):
    """Fails if a mean jumps from run to run where they were tested at different steps."""
    short = [(100_000, 9.0, 9.0), (200_000, 9.0, None)]
    long = [(150_000, 1.0, 1.0), (1_000_000, 2.0, None)]
    write_agent(tmp_path / "short", "bigfish", "ppo", 0, 9, 9, steps=200_000, curve=short, preset="quick")
    write_agent(tmp_path / "long", "bigfish", "ppo", 1, 2, 2, steps=1_000_000, curve=long, preset="quick")
    curve = unseen_curve(Runs.find([tmp_path]).agents)
    assert [(point.steps, point.value, point.n) for point in curve.mean] == [(150_000, 1.0, 1), (1_000_000, 2.0, 1)]
    assert len(curve.seeds) == 2


def test_two_seeds_have_no_interval(runs):
    assert all(point.low is None for point in training_curve(runs[:2]).mean)


def test_lines_stay_inside_the_axes_and_end_where_the_numbers_are():
    seeds = [[(0, -5.0), (500, 2.0), (1000, 20.0)], [(0, 5.0), (1000, 10.0)]]
    curves = {"ppo": {"test": Curve([Point(0, 0.0, None, None, 2), Point(1000, 15.0, None, None, 2)], seeds)}}
    scale = scale_of(curves)
    drawn = chart("title", curves, {"ppo": 0})
    (mean,) = re.findall(r'class="mean" d="([^"]+)"', drawn)
    assert ends(mean) == (scale.x(1000), scale.y(15.0))
    for path in re.findall(r'class="seed" d="([^"]+)"', drawn):
        for x, y in walk(path):
            assert LEFT <= x <= WIDTH - RIGHT
            assert TOP <= y <= HEIGHT - BOTTOM


def walk(path):
    """The points of a path of relative lines."""
    x = y = 0
    for command, dx, dy in re.findall(r"([Ml])(-?\d+) ?(-?\d+)", path):
        x, y = (int(dx), int(dy)) if command == "M" else (x + int(dx), y + int(dy))
        yield x, y


def ends(path):
    return list(walk(path))[-1]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (-1.2, 1.1, [-1, -0.5, 0, 0.5, 1]), (0, 25e6, [0, 5e6, 10e6, 15e6, 20e6, 25e6])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high, 5) == expected


@pytest.mark.parametrize(("steps", "text"), [(0, "0"), (250_000, "250 k"), (1_500_000, "1.5 M")])
def test_steps_are_short(steps, text):
    assert steps_text(steps) == text


def test_colours_and_marks_tell_32_methods_apart():
    """Fails if two methods look the same, or two blues differ in nothing else."""
    assert len({(index % COLOURS, mark_of(index)) for index in range(32)}) == 32
    blue, light_blue, orange, amber, green, olive = 2, 6, 1, 5, 3, 7
    for one, other in ((blue, light_blue), (orange, amber), (amber, olive), (green, olive)):
        assert mark_of(one) != mark_of(other)
