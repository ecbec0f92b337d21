"""Drawings of what came of ``results/evidence/PLAN.md``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from clop.report import drawing, openai
from clop.report.drawing import Line
from clop.report.efficiency import curve_of
from clop.report.evidence import (
    ALPHA_RUNS,
    COMMAND,
    QUESTIONS,
    TASKS,
    Question,
    Task,
    compared_questions,
    seeds_of,
    shown,
)
from clop.report.figures import new_figure
from clop.report.outcomes import Cell
from clop.report.paper_agents import steps_text
from clop.report.paper_figures import PaperFigure
from clop.report.runs import AgentRun, Runs
from clop.report.stats import Estimate, student_estimate
from clop.rl.games import GAMES

if TYPE_CHECKING:
    from clop.report.figures import Figure

_SPLITS = ("train", "test")
_LEVELS = 50
_PAPERS_ALPHA = 0.9  # on MNIST


def _panel(question: Question, found: dict[str, Cell]) -> str:
    return f"{question.game}, {question.levels} levels\n{steps_text(question.steps)} steps; {seeds_of(found)} seeds"


def gaps(runs: Runs) -> Iterator["Figure"]:
    """From training levels to unseen ones: a thin line for each seed, a thick one for the mean."""
    compared = list(compared_questions(runs))
    if not compared:
        return
    columns = min(3, len(compared))
    rows = -(-len(compared) // columns)
    figure = new_figure(3.2 * columns, 2.6 * rows + 1.0)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    colour = drawing.colours(["ppo", "clop"])
    for axes in grid[len(compared) :]:
        axes.set_visible(False)
    for axes, (question, found) in zip(grid, compared, strict=False):
        for name, cell in found.items():
            _slopes(axes, cell, colour[name])
        least = GAMES[question.game].easy[0]
        axes.axhline(least, color="black", linewidth=0.8, linestyle=":")
        axes.annotate("blind play", (-0.13, least), fontsize=7, ha="left", va="bottom")
        drawing.name_panel(axes, _panel(question, found))
        drawing.tidy(axes, "", "return")
        axes.set_xticks([0, 1], ["training levels", "unseen levels"])
        axes.set_xlim(-0.15, 1.15)
    drawing.legend(figure, colour)
    note = "dotted: where the published range of the game begins, an agent that sees nothing; axes do not start at 0"
    drawing.head(figure, "Return on training levels and on unseen ones: each seed, and the mean", note)
    yield figure


def _slopes(axes: Any, cell: Cell, colour: str) -> None:
    values = np.array([cell.values(split) for split in _SPLITS])
    axes.plot([0, 1], values, color=colour, linewidth=0.8, alpha=0.5)
    axes.plot([0, 1], values.mean(1), "o-", color=colour, linewidth=2.2, markersize=5)


def curves(runs: Runs) -> Iterator["Figure"]:
    """Returns while training, on training levels and on unseen ones."""
    panels: dict[str, list[Line]] = {}
    for question, found in compared_questions(runs):
        panels[_panel(question, found)] = [
            Line(name, [_until(curve_of(run, split), cell.env_steps) for run in cell.runs], dashed=split == "test")
            for name, cell in found.items()
            for split in _SPLITS
        ]
    if panels:
        title = "Returns while training: each seed faintly, the mean, and its 95 % interval where there are three seeds"
        note = "training levels: with CLOP's swaps on; unseen levels: 64 episodes without them, 1024 at the end"
        yield drawing.panels(title, panels, columns=2, note=note)


def variants(runs: Runs) -> Iterator["Figure"]:
    """A row for each variant of a question, and for what it is compared with: the two returns of each seed."""
    asked = [question for question in QUESTIONS if question.beside and shown(question, question.find(runs.agents))]
    rows: dict[tuple[str, str], list[tuple[str, Cell]]] = {}
    for question in dict.fromkeys(one for variant in asked for one in (*variant.beside, variant)):
        found = question.find(runs.agents)
        for method in question.methods:
            if method in found:
                seeds = ", ".join(str(run.seed) for run in found[method].runs)
                name = f"{question.called(method)}\nseed{'s' * (', ' in seeds)} {seeds}"
                rows.setdefault((question.game, question.where), []).append((name, found[method]))
    if not rows:
        return
    figure = new_figure(7.2, 0.45 * sum(map(len, rows.values())) + 0.7 * len(rows) + 1.0)
    ratios = [len(cells) for cells in rows.values()]
    grid = figure.subplots(len(rows), 1, squeeze=False, height_ratios=ratios).ravel()
    for axes, ((game, panel), cells) in zip(grid, rows.items(), strict=True):
        for place, (_, cell) in enumerate(cells):
            _dumbbells(axes, place, cell)
        axes.axvline(GAMES[game].easy[0], color="black", linewidth=0.8, linestyle=":")
        drawing.name_panel(axes, panel)
        drawing.tidy(axes, "return", "")
        axes.set_yticks(range(len(cells)), [name for name, _ in cells])
        axes.set_ylim(len(cells) - 0.5, -0.5)
    handles = [
        grid[0].plot([], [], "o", color=_UNSEEN, label="unseen levels")[0],
        grid[0].plot([], [], "o", color=_SEEN, fillstyle="none", label="training levels")[0],
    ]
    drawing.place_legend(figure, handles)
    drawing.head(figure, "Variants of CLOP, each seed", "dotted: where the published range of the game begins")
    yield figure


_SEEN, _UNSEEN = "grey", "black"


def _dumbbells(axes: Any, place: int, cell: Cell) -> None:
    """The returns of each seed, one below the other in a row."""
    seeds = zip(cell.values("train"), cell.values("test"), strict=True)
    for height, (seen, unseen) in zip(np.linspace(-0.3, 0.3, len(cell.runs) + 2)[1:-1], seeds, strict=True):
        at = (place + height, place + height)
        axes.plot((unseen, seen), at, color=_SEEN, linewidth=0.8)
        axes.plot(seen, at[0], "o", color=_SEEN, fillstyle="none", markersize=4)
        axes.plot(unseen, at[0], "o", color=_UNSEEN, markersize=4)


def _until(curve: drawing.Curve, end: float) -> drawing.Curve:
    return [point for point in curve if point[0] <= end]


def beside_openai(runs: Runs) -> Iterator["Figure"]:
    """PPO of the plan with 50 levels beside OpenAI's with 200; on each game the runs that went on for longest."""
    asked = [question for question in QUESTIONS if question.levels == _LEVELS and not question.changes]
    longest: dict[str, tuple[AgentRun, ...]] = {}
    for question in sorted(asked, key=lambda question: question.steps):
        found = question.find(runs.agents)
        if "ppo" in found:
            longest[question.game] = found["ppo"].runs
    yield from openai.figure(Runs(tuple(run for several in longest.values() for run in several)))


def alphas(runs: Runs) -> Iterator["Figure"]:
    """Accuracy on USPS against alpha."""
    task = next(task for task in TASKS if task.name == "alpha")
    found = task.find(runs)
    names = {"clop": _PAPERS_ALPHA} | {name: float(name[len("clop(alpha=") : -1]) for name in ALPHA_RUNS}
    values = {alpha: student_estimate(found[name].values("test")) for name, alpha in names.items() if name in found}
    if not values:
        return
    panel = f"{task.task}: {task.scale}"
    level = {panel: ("plain", student_estimate(found["plain"].values("test")))} if "plain" in found else {}
    yield drawing.against("Accuracy by alpha, 95 % intervals over seeds", {panel: values}, level, "alpha", "test, %")


def images(runs: Runs) -> Iterator["Figure"]:
    """Accuracy on USPS against the number of images."""
    tasks = sorted((task for task in TASKS if task.name.endswith(" data")), key=lambda task: task.images)
    lines: dict[str, list[tuple[Task, Estimate]]] = {}
    for task in tasks:
        found = task.find(runs)
        for method in task.methods:
            if method in found:
                lines.setdefault(method, []).append((task, student_estimate(found[method].values("test"))))
    if not lines:
        return
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    colour = drawing.colours(list(lines))
    for place, (method, points) in enumerate(lines.items()):
        # Side by side, or their intervals would hide each other.
        xs = [task.images * 1.04 ** (place - 1.5) for task, _ in points]
        axes.plot(xs, [one.value for _, one in points], color=colour[method], linewidth=1, alpha=0.6)
        for x, (_, one) in zip(xs, points, strict=True):
            drawing.draw_interval(axes, x, one, colour[method], drawing.marker(place), vertical=True)
    axes.set_xscale("log")
    axes.set_xticks([task.images for task in tasks], [f"{task.images}" for task in tasks])
    axes.minorticks_off()
    drawing.tidy(axes, "training images; 100 000 seen in all", "test, %")
    drawing.legend(figure, colour)
    title = f"{tasks[0].task}: accuracy by number of images, 95 % intervals over seeds"
    drawing.head(figure, title, "hollow: fewer than three seeds")
    yield figure


EVIDENCE_FIGURES = (
    PaperFigure("evidence-gaps", "From training levels to unseen ones", gaps, COMMAND),
    PaperFigure("evidence-curves", "Returns while training", curves, COMMAND),
    PaperFigure("evidence-variants", "Variants of CLOP, each seed", variants, COMMAND),
    PaperFigure("evidence-openai", "PPO, ours and OpenAI's", beside_openai, COMMAND),
    PaperFigure("evidence-alpha", "Accuracy by alpha", alphas, COMMAND),
    PaperFigure("evidence-images", "Accuracy by number of images", images, COMMAND),
)
"""Of this repository's plan, so that a report has them only when they are asked for."""
