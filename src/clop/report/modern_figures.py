"""Figures that the paper does not have: aggregates with intervals, profiles, probability of improvement, efficiency."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clop.report import drawing, openai, stats
from clop.report.efficiency import returns_at
from clop.report.figures import new_figure
from clop.report.modern import AtScale, at_scales
from clop.report.paper_agents import order, steps_text
from clop.report.paper_figures import PaperFigure, missing_text, seeds_text
from clop.report.runs import Runs
from clop.report.stats import Estimate
from clop.rl.games import GAMES, normalised_return

if TYPE_CHECKING:
    from clop.report.figures import Figure


def _each(runs: Runs) -> Iterator[tuple[AtScale, str, str]]:
    """Every scale with two methods or more, with what its title says."""
    for one in at_scales(runs):
        if len(one.methods) > 1:
            common = one.scores.common
            games = f"{len(common)} {'game' if len(common) == 1 else 'games'}"
            about = f"{one.runs[0].scale}; {steps_text(one.steps)} steps; {seeds_text(one.runs)}; {games}"
            yield one, about, missing_text(common, list(GAMES)).replace("not run", "not run by every method")


def aggregates(runs: Runs) -> Iterator["Figure"]:
    for one, about, note in _each(runs):
        panels = {name: {m: values[m] for m in one.methods} for name, values in one.aggregates.items()}
        title = f"Normalised return on unseen levels, 95 % intervals over seeds\n{about}"
        yield drawing.intervals(title, panels, "normalised return", note)


def profiles(runs: Runs) -> Iterator["Figure"]:
    for one, about, note in _each(runs):
        scores = one.scores
        top = max(1.0, float(np.nanmax([np.nanmax(scores.of_method(method)) for method in scores.methods])))
        bottom = min(0.0, float(np.nanmin([np.nanmin(scores.of_method(method)) for method in scores.methods])))
        taus = np.linspace(bottom, top, 81)
        colour = drawing.colours(one.methods)
        style = drawing.styles(colour)
        figure = new_figure(6.4, 4.8)
        axes = figure.subplots()
        for method, found in sorted(scores.profile(taus).items(), key=lambda item: order(item[0])):
            drawing.draw_band(axes, taus.tolist(), found, colour[method], style[method])
        drawing.tidy(axes, "normalised return on unseen levels, τ", "share of runs above τ")
        drawing.legend(figure, colour)
        drawing.head(figure, f"Performance profiles\n{about}" + (f"\n{note}" if note else ""))
        yield figure


def improvement(runs: Runs) -> Iterator["Figure"]:
    for one, about, note in _each(runs):
        if not one.improvement:
            continue
        title = f"Probability that a run is better than one of PPO on unseen levels\n{about}"
        figure = drawing.intervals(title, {"over games": one.improvement}, "P(better than ppo)", note)
        for axes in figure.axes:
            axes.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
            axes.set_xlim(-0.03, 1.03)
        yield figure


def efficiency(runs: Runs) -> Iterator["Figure"]:
    """IQM of the normalised return on unseen levels over steps."""
    for one, about, note in _each(runs):
        grid = np.linspace(0.05, 1, 20) * min(run.end.env_steps for run in one.runs)
        lines = {method: points for method in one.methods if (points := _over_steps(one, method, grid))}
        if not any(len(points) > 1 for points in lines.values()):
            continue
        yield _efficiency_figure(
            f"Sample efficiency: IQM of the normalised return on unseen levels\n{about}", lines, note
        )


def _over_steps(one: AtScale, method: str, grid: NDArray[np.float64]) -> list[tuple[float, Estimate]]:
    """Steps and IQM, where every game has a return."""
    several = [run for run in one.runs if run.variant == method and run.game in one.scores.common]
    seeds, games = sorted({run.seed for run in several}), one.scores.common
    returns = np.full((len(grid), len(seeds), len(games)), np.nan)
    for run in several:
        found = returns_at(run.test_curve, grid)
        returns[:, seeds.index(run.seed), games.index(run.game)] = normalised_return(found, run.game, run.mode)
    points = []
    for at, matrix in zip(grid.tolist(), returns, strict=True):
        if not np.isnan(matrix).all(0).any():
            rng = stats.generator(0, "efficiency", method, f"{at:g}")
            points.append((at, stats.estimate(stats.iqm, matrix, rng, 1000)))
    return points


def _efficiency_figure(title: str, lines: dict[str, list[tuple[float, Estimate]]], note: str) -> "Figure":
    figure = new_figure(6.4, 4.8)
    axes = figure.subplots()
    colour = drawing.colours(list(lines))
    style = drawing.styles(colour)
    for method, found in lines.items():
        drawing.draw_band(axes, [at for at, _ in found], [one for _, one in found], colour[method], style[method])
    drawing.tidy(axes, "env steps", "IQM")
    axes.xaxis.set_major_formatter(lambda value, _: drawing.steps_text(value))
    drawing.legend(figure, colour)
    drawing.head(figure, title + (f"\n{note}" if note else ""))
    return figure


_TWO = "clop sweep run paper-easy --methods ppo,clop"
OTHER_FIGURES = (
    PaperFigure("iqm", "Aggregates over games, with intervals", aggregates, _TWO),
    PaperFigure("profiles", "Performance profiles", profiles, _TWO),
    PaperFigure("improvement", "Probability of improvement over PPO", improvement, _TWO),
    PaperFigure("sample-efficiency", "Sample efficiency", efficiency, _TWO),
    PaperFigure("openai", "PPO, ours and OpenAI's", openai.figure, "clop sweep run paper-easy --methods ppo"),
)
