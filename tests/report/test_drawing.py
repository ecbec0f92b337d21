"""Drawings: that many methods can be told apart, and that nothing is cut off."""

import itertools

import pytest

from clop.report import drawing
from clop.report.drawing import Line
from clop.report.stats import Estimate

METHODS = [
    *("ppo", "mixreg", "rand_fm", "ucb_drac", "ibac_sni", "rad", "idaac", "clop", "clop(channel_consistent=false)"),
    *("clop(local=false)", "clop(alpha=0.1)", "dropout", "batch_norm", "idaac+clop"),
]


def boxes(figure, artists):
    figure.draw_without_rendering()
    return [artist.get_window_extent() for artist in artists]


def test_no_two_methods_look_the_same_and_they_keep_their_order():
    """Fails for the fifteenth method that has the look of the seventh, or a legend that puts clop before mixreg."""
    colour = drawing.colours(METHODS)
    style = drawing.styles(colour)
    assert list(colour) == METHODS
    assert len({(colour[name], style[name]) for name in METHODS}) == len(METHODS)
    assert {style[name] for name in ("ppo", "clop", "idaac")} == {"-"}


@pytest.mark.parametrize("count", [2, 7, 14])
def test_a_legend_is_inside_its_figure(count):
    """Fails for long names in as many columns as short ones, which were cut off at both sides."""
    lines = [Line(name, [[(0.0, 1.0), (1e6, 2.0)]]) for name in METHODS[-count:]]
    figure = drawing.panels("title", {"bigfish": lines})
    (box,) = boxes(figure, figure.legends)
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_the_numbers_of_an_axis_do_not_touch_each_other():
    """Fails for 0.050, 0.075, 0.100, … in a narrow panel, and for 250 k beside 500 k."""
    found = {name: Estimate(0.05 + 0.012 * i, 0.04, 0.06 + 0.012 * i, 5) for i, name in enumerate(METHODS)}
    several = drawing.intervals("title", dict.fromkeys(("mean", "median", "IQM", "gap"), found), "return")
    alphas = {0.1: found["ppo"], 0.3: found["clop"]}
    against = drawing.against("title", {"maze": alphas, "heist": alphas, "miner": alphas}, {}, "alpha", "return")
    curves = {game: [Line("ppo", [[(0.0, 1.0), (2e6, 2.0)]])] for game in ("maze", "heist", "miner", "chaser")}
    for figure in (several, against, drawing.panels("title", curves)):
        figure.draw_without_rendering()
        for axes in figure.axes:
            shown = [label for label in axes.get_xticklabels() if label.get_text()]
            inside = [
                box for box in boxes(figure, shown) if axes.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axes.bbox.x1 + 1
            ]
            assert len(inside) > 1
            assert all(a.x1 < b.x0 for a, b in itertools.pairwise(inside))


def test_a_title_keeps_a_number_with_what_it_counts():
    """Fails for a line that ends with 1 and the next one that says seed."""
    for length in range(60, 90):
        figure = drawing.panels(f"{'x ' * (length // 2)}; 1 to 3 seeds", {"maze": [Line("ppo", [[(0.0, 1.0)]])]})
        assert "1 to" in figure.get_suptitle() or "3 seeds" in figure.get_suptitle()
        assert not [line for line in figure.get_suptitle().split("\n") if line.endswith(("1", "3"))]


def test_what_was_tested_at_the_end_only_is_in_the_legend():
    line = Line("ppo", [[(1e6, 2.0)]], dashed=True)
    texts = [text.get_text() for text in drawing.panels("title", {"maze": [line]}).legends[0].get_texts()]
    assert texts == ["ppo", "training levels, running", "unseen levels", "unseen levels, at the end"]
