"""Figures that the paper does not have: aggregates with intervals, profiles, probability of improvement, efficiency."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from clop.report import drawing, openai, stats
from clop.report.efficiency import curve_of, return_at
from clop.report.figures import new_figure
from clop.report.modern import order, scales
from clop.report.paper_agents import steps_text
from clop.report.paper_figures import PaperFigure, missing_text, seeds_text
from clop.report.runs import AgentRun, Runs
from clop.report.scores import Scores
from clop.report.stats import Estimate
from clop.rl.games import GAMES, normalised_return

if TYPE_CHECKING:
    from clop.report.figures import Figure

_REPS = 10_000


def _each(runs: Runs) -> Iterator[tuple[Scores, list[AgentRun], str, str]]:
    """Every scale with two methods or more, with what its title says."""
    for (_, steps), group in scales(runs.agents).items():
        scores = Scores.of(group, steps=steps)
        if len(scores.methods) > 1 and scores.common:
            about = f"{group[0].scale}; {steps_text(steps)} steps; {seeds_text(group)}; {len(scores.common)} games"
            yield scores, group, about, missing_text(scores.common, list(GAMES))


def aggregates(runs: Runs) -> Iterator["Figure"]:
    for scores, _, about, note in _each(runs):
        names = sorted(scores.methods, key=order)
        found = {
            "mean": scores.mean(_REPS),
            "median": scores.median(_REPS),
            "IQM": scores.iqm(_REPS),
            "optimality gap": scores.optimality_gap(reps=_REPS),
        }
        panels = {name: {method: values[method] for method in names} for name, values in found.items()}
        title = f"Normalised return on unseen levels, 95 % intervals over seeds\n{about}"
        yield drawing.intervals(title, panels, "normalised return", note)


def profiles(runs: Runs) -> Iterator["Figure"]:
    for scores, _, about, note in _each(runs):
        top = max(1.0, float(np.nanmax([np.nanmax(scores.of_method(method)) for method in scores.methods])))
        bottom = min(0.0, float(np.nanmin([np.nanmin(scores.of_method(method)) for method in scores.methods])))
        taus = np.linspace(bottom, top, 81)
        names = sorted(scores.methods, key=order)
        colour = drawing.colours(names)
        figure = new_figure(6.4, 4.2)
        axes = figure.subplots()
        for method, found in sorted(scores.profile(taus).items(), key=lambda item: order(item[0])):
            drawing.draw_band(axes, taus.tolist(), found, colour[method])
        drawing.tidy(axes, "normalised return on unseen levels, τ", "share of runs above τ")
        drawing.legend(figure, colour, dashed=False)
        drawing.head(figure, f"Performance profiles\n{about}" + (f"\n{note}" if note else ""))
        yield figure


def improvement(runs: Runs) -> Iterator["Figure"]:
    for scores, _, about, note in _each(runs):
        if "ppo" not in scores.methods:
            continue
        names = [method for method in sorted(scores.methods, key=order) if method != "ppo"]
        found = {method: scores.improvement(method, "ppo", _REPS).over_games for method in names}
        title = f"Probability that a run is better than one of PPO on unseen levels\n{about}"
        figure = drawing.intervals(title, {"over games": found}, "P(better than ppo)", note)
        for axes in figure.axes:
            axes.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
            axes.set_xlim(-0.03, 1.03)
        yield figure


def efficiency(runs: Runs) -> Iterator["Figure"]:
    """IQM of the normalised return on unseen levels over steps."""
    for scores, group, about, note in _each(runs):
        steps = min(run.end.env_steps for run in group)
        grid = np.linspace(steps / 20, steps, 20)
        lines: dict[str, list[tuple[float, Estimate]]] = {}
        for method in sorted(scores.methods, key=order):
            several = [run for run in group if run.variant == method and run.game in scores.common]
            curves = {run.path: curve_of(run, "test") for run in several}
            seeds = sorted({run.seed for run in several})
            for at in grid:
                matrix = np.full((len(seeds), len(scores.common)), np.nan)
                for run in several:
                    value = return_at(curves[run.path], float(at))
                    if value is not None:
                        place = seeds.index(run.seed), scores.common.index(run.game)
                        matrix[place] = float(normalised_return(value, run.game, run.mode))
                if not np.isnan(matrix).all(0).any():
                    rng = stats.generator(0, "efficiency", method, f"{at:g}")
                    lines.setdefault(method, []).append((float(at), stats.estimate(stats.iqm, matrix, rng, 1000)))
        if not any(len(points) > 1 for points in lines.values()):
            continue
        yield _efficiency_figure(
            f"Sample efficiency: IQM of the normalised return on unseen levels\n{about}", lines, note
        )


def _efficiency_figure(title: str, lines: dict[str, list[tuple[float, Estimate]]], note: str) -> "Figure":
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    colour = drawing.colours(list(lines))
    for method, found in lines.items():
        drawing.draw_band(axes, [at for at, _ in found], [one for _, one in found], colour[method])
    drawing.tidy(axes, "env steps", "IQM")
    axes.xaxis.set_major_formatter(lambda value, _: drawing.steps_text(value))
    drawing.legend(figure, colour, dashed=False)
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
