"""Drawings that figures of reports are made of: curves over seeds, points with intervals, panels of games.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; markers and dashes repeat what
they say.
"""

import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clop.report.figures import new_figure
from clop.report.stats import Estimate, student_estimate

if TYPE_CHECKING:
    from clop.report.figures import Figure

_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b4a9e", "#7f7f00")
_FIXED = {"ppo": "#4d4d4d", "clop": "#d55e00", "idaac": "#0072b2"}
_MARKERS = "osD^vP*X"
_STYLES = ("-", "-.", ":", "--")
_GRID = 100  # points of a mean curve

Curve = Sequence[tuple[float, float]]


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, in the order of the names; some methods always have the same. Of more names than colours
    some share one, and :func:`styles` tells them apart."""
    free = itertools.cycle(colour for colour in _PALETTE if colour not in _FIXED.values())
    return {name: _FIXED[name] if name in _FIXED else next(free) for name in names}


def styles(colour: Mapping[str, str]) -> dict[str, str]:
    """A line style for each name: solid, and another for each that has the colour of one before it."""
    used = list(colour.values())
    return {name: _STYLES[used[:place].count(one) % len(_STYLES)] for place, (name, one) in enumerate(colour.items())}


def marker(position: int) -> str:
    return _MARKERS[position % len(_MARKERS)]


@dataclass(frozen=True)
class Line:
    """A method in a panel: a curve of each seed."""

    name: str
    seeds: Sequence[Curve]
    dashed: bool = False


def panels(
    title: str, by_panel: Mapping[str, Sequence[Line]], ylabel: str = "return", columns: int = 4, note: str = ""
) -> "Figure":
    """A panel for each game, with the mean of each line, its interval from three seeds on, and each seed faintly."""
    columns = min(columns, len(by_panel))
    rows = math.ceil(len(by_panel) / columns)
    figure = new_figure(max(3.0 * columns, 6.4), 2.3 * rows + 1.2)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    names = list(dict.fromkeys(line.name for lines in by_panel.values() for line in lines))
    colour = colours(names)
    style = styles(colour)
    for axes in grid[len(by_panel) :]:
        axes.set_visible(False)
    for axes, (panel, lines) in zip(grid, by_panel.items(), strict=False):
        for line in lines:
            _draw_line(axes, line, colour[line.name], "--" if line.dashed else style[line.name])
        name_panel(axes, panel)
        tidy(axes, "env steps", ylabel)
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=6)
        axes.xaxis.set_major_formatter(lambda value, _: steps_text(value))
    every = [line for lines in by_panel.values() for line in lines]
    once = any(line.seeds and min(map(len, line.seeds)) == 1 for line in every)
    legend(figure, colour, any(line.dashed for line in every), once)
    head(figure, title, note)
    return figure


def _draw_line(axes: Any, line: Line, colour: str, style: str) -> None:
    seeds = [np.array(curve, dtype=np.float64) for curve in line.seeds if len(curve)]
    if not seeds:
        return
    if min(map(len, seeds)) == 1:  # evaluated at the end only
        ends = [curve[-1] for curve in seeds]
        found = student_estimate([end[1] for end in ends])
        draw_interval(axes, float(ends[0][0]), found, colour, vertical=True)
        return
    start, end = max(curve[0, 0] for curve in seeds), min(curve[-1, 0] for curve in seeds)
    xs = np.linspace(start, end, _GRID) if end > start else np.array([end])
    sampled = np.array([np.interp(xs, curve[:, 0], curve[:, 1]) for curve in seeds])
    if len(seeds) > 1:
        for values in sampled:
            axes.plot(xs, values, style, color=colour, linewidth=0.5, alpha=0.3)
    draw_band(axes, xs.tolist(), [student_estimate(column) for column in sampled.T], colour, style)


def draw_band(axes: Any, xs: Sequence[float], found: Sequence[Estimate], colour: str, style: str = "-") -> None:
    """A line with its interval, if it has one everywhere."""
    if all(one.low is not None for one in found):
        lows, highs = ([getattr(one, name) for one in found] for name in ("low", "high"))
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
    axes.plot(xs, [one.value for one in found], style, color=colour, linewidth=1.4)


def draw_interval(
    axes: Any, place: float, found: Estimate, colour: str, shape: str = "o", *, vertical: bool, size: float = 5
) -> None:
    """A point with its interval if it has one."""
    at = (place, found.value) if vertical else (found.value, place)
    axes.plot(*at, shape, color=colour, markersize=size, fillstyle="full" if found.low is not None else "none")
    if found.low is not None and found.high is not None:
        ends = ([place, place], [found.low, found.high])
        axes.plot(*(ends if vertical else ends[::-1]), color=colour, linewidth=1.4)


def legend(figure: "Figure", colour: Mapping[str, str], dashed: bool = False, once: bool = False) -> None:
    """Names in their colours below all panels, and what dashes and circles mean."""
    axes, style = figure.axes[0], styles(colour)
    handles = [axes.plot([], [], style[n], color=one, label=n, linewidth=2)[0] for n, one in colour.items()]
    if dashed:
        handles.append(axes.plot([], [], "-", color="grey", label="training levels, running")[0])
        handles.append(axes.plot([], [], "--", color="grey", label="unseen levels")[0])
    if once:
        handles.append(axes.plot([], [], "o", color="grey", fillstyle="none", label="unseen levels, at the end")[0])
    place_legend(figure, handles)


def place_legend(figure: "Figure", handles: Sequence[Any]) -> None:
    """Below all panels, in as many columns as the figure is wide enough for."""
    lengths = [len(handle.get_label()) for handle in handles]

    def width(columns: int) -> float:  # inches
        return sum(0.7 + 0.075 * max(part) for part in np.array_split(lengths, columns))  # as the legend divides them

    most = min(6, len(handles))
    columns = max((n for n in range(1, most + 1) if width(n) <= figure.get_figwidth()), default=1)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8, handlelength=2.6
    )


def head(figure: "Figure", title: str, note: str = "") -> None:
    """What is shown, and what is missing, in lines that are no wider than the figure."""
    width = int(14 * figure.get_figwidth())  # letters of this size
    kept = re.sub(r"(\d) (?=[a-zA-Z0-9%])", "\\1\N{NO-BREAK SPACE}", f"{title}\n{note}")  # a number and what it counts
    lines = [part for line in kept.split("\n") for part in textwrap.wrap(line, width)]
    figure.suptitle("\n".join(lines).replace("\N{NO-BREAK SPACE}", " "), fontsize=9)


def name_panel(axes: Any, name: str) -> None:
    """A title at a fixed height: to find one above all labels of an axis takes an eighth of the time of a drawing."""
    axes.set_title(name, fontsize=9, y=1.0)


def tidy(axes: Any, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel, fontsize=8)
    axes.set_ylabel(ylabel, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def steps_text(steps: float) -> str:
    if steps >= 1e6:
        return f"{steps / 1e6:g} M"
    return f"{steps / 1e3:g} k" if steps else "0"


def intervals(
    title: str, by_panel: Mapping[str, Mapping[str, Estimate]], xlabel: Mapping[str, str] | str, note: str = ""
) -> "Figure":
    """Methods as rows, a panel for each statistic, points with intervals; a hollow point has too few seeds for one."""
    methods = list(dict.fromkeys(name for values in by_panel.values() for name in values))
    names = 0.075 * max(map(len, methods))  # inches
    figure = new_figure(max(2.4 * len(by_panel) + names + 0.3, 6.4), 0.32 * len(methods) + 1.5)
    colour = colours(methods)
    grid = figure.subplots(1, len(by_panel), squeeze=False, sharey=True).ravel()
    for axes, (panel, values) in zip(grid, by_panel.items(), strict=True):
        for position, method in enumerate(methods):
            if method in values:
                draw_interval(axes, position, values[method], colour[method], vertical=False)
        name_panel(axes, panel)
        tidy(axes, xlabel if isinstance(xlabel, str) else xlabel[panel], "")
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="x", alpha=0.3)
    grid[0].set_yticks(range(len(methods)), methods, fontsize=8)
    head(figure, title, note)
    return figure


def points(
    title: str, by_panel: Mapping[str, Mapping[str, Estimate]], ylabel: str, columns: int = 4, note: str = ""
) -> "Figure":
    """A panel for each game, a point with its interval for each variant."""
    columns = min(columns, len(by_panel))
    rows = math.ceil(len(by_panel) / columns)
    names = list(dict.fromkeys(name for values in by_panel.values() for name in values))
    figure = new_figure(max(3.0 * columns, 6.4), 2.4 * rows + 1.2)
    colour = colours(names)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(by_panel) :]:
        axes.set_visible(False)
    for axes, (panel, values) in zip(grid, by_panel.items(), strict=False):
        for position, name in enumerate(names):
            if name in values:
                draw_interval(axes, position, values[name], colour[name], marker(position), vertical=True, size=6)
        axes.set_xticks([])
        axes.set_xlim(-0.7, len(names) - 0.3)
        name_panel(axes, panel)
        tidy(axes, "", ylabel)
        axes.grid(axis="y", alpha=0.3)
    axes = figure.axes[0]
    handles = [
        axes.plot([], [], marker(i), color=colour[name], label=name, linestyle="")[0] for i, name in enumerate(names)
    ]
    place_legend(figure, handles)
    head(figure, title, note)
    return figure


def against(
    title: str,
    by_panel: Mapping[str, Mapping[float, Estimate]],
    level: Mapping[str, tuple[str, Estimate]],
    xlabel: str,
    ylabel: str,
) -> "Figure":
    """A panel for each game, points with intervals against a number, and a level to compare with as a dashed line."""
    columns = min(4, len(by_panel))
    rows = math.ceil(len(by_panel) / columns)
    figure = new_figure(max(3.2 * columns, 5.0), 2.6 * rows + 1.0)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(by_panel) :]:
        axes.set_visible(False)
    for axes, (panel, values) in zip(grid, by_panel.items(), strict=False):
        xs = sorted(values)
        axes.plot(xs, [values[x].value for x in xs], color=_FIXED["clop"], linewidth=1, alpha=0.6)
        for x in xs:
            draw_interval(axes, x, values[x], _FIXED["clop"], vertical=True)
        if panel in level:
            name, found = level[panel]
            axes.axhline(found.value, linestyle="--", color=_FIXED["ppo"], linewidth=1.2, label=name)
            if found.low is not None and found.high is not None:
                axes.axhspan(found.low, found.high, color=_FIXED["ppo"], alpha=0.12, linewidth=0)
            axes.legend(frameon=False, fontsize=7)
        name_panel(axes, panel)
        tidy(axes, xlabel, ylabel)
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
    head(figure, title)
    return figure
