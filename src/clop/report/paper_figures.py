"""The measured figures of the paper, from runs; each at every scale that there are runs of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clop.report import drawing
from clop.report.commands import sweep_command
from clop.report.drawing import Line
from clop.report.efficiency import curve_of
from clop.report.figures import new_figure
from clop.report.outcomes import Cell, cells
from clop.report.paper_agents import normalised, order, steps_text
from clop.report.paper_vision import groups
from clop.report.published import read_table
from clop.report.runs import AgentRun, Runs
from clop.report.scores import common_steps
from clop.report.stats import Estimate, student_estimate
from clop.rl.games import GAMES, paper_alpha

if TYPE_CHECKING:
    from clop.report.figures import Figure

ABLATION_GAMES = ("bigfish", "dodgeball", "chaser")
_ABLATIONS = ("ppo", "clop", "clop(local=false)", "clop(channel_consistent=false)")


@dataclass(frozen=True)
class PaperFigure:
    """A figure: how it is drawn at each scale, and what to run where there is nothing to draw."""

    name: str
    title: str
    draw: Callable[[Runs], Iterator["Figure"]]
    command: str


def _by_scale(runs: Sequence[AgentRun]) -> dict[str, list[AgentRun]]:
    found: dict[str, list[AgentRun]] = {}
    for run in sorted(runs, key=lambda run: (run.scale, run.scale_key, run.game, run.seed)):
        found.setdefault(run.scale_key, []).append(run)
    return found


def seeds_text(runs: Sequence[AgentRun]) -> str:
    """``3 seeds`` or ``1 to 5 seeds``: of each method on each game."""
    counts: dict[tuple[str, str], int] = {}
    for run in runs:
        counts[run.game, run.variant] = counts.get((run.game, run.variant), 0) + 1
    low, high = min(counts.values()), max(counts.values())
    return f"{low} {'seed' if high == 1 else 'seeds'}" if low == high else f"{low} to {high} seeds"


def _about(runs: Sequence[AgentRun], steps: int) -> str:
    return f"{runs[0].scale}; {steps_text(steps)} steps; {seeds_text(runs)}"


def missing_text(games: Sequence[str], wanted: Sequence[str], runs: Sequence[AgentRun] = ()) -> str:
    """Which games are not there, and which methods of ``runs`` are on some of the games only."""
    missing = [game for game in wanted if game not in games]
    there = {(run.variant, run.game) for run in runs}
    methods = sorted({run.variant for run in runs}, key=order)
    missing += [f"{method} on {game}" for method in methods for game in games if (method, game) not in there]
    return f"not run: {', '.join(missing)}" if missing else ""


def curves(
    title: str, mode: str, variants: Sequence[str] | None, games: Sequence[str], splits: Sequence[str]
) -> Callable[[Runs], Iterator["Figure"]]:
    """Learning curves, a panel for each game."""

    def draw(runs: Runs) -> Iterator["Figure"]:
        chosen = [
            run
            for run in runs.agents
            if run.mode == mode and run.game in games and (variants is None or run.variant in variants)
        ]
        for same in _by_scale(chosen).values():
            panels: dict[str, list[Line]] = {}
            for game in dict.fromkeys(run.game for run in same):
                names = dict.fromkeys(run.variant for run in same if run.game == game)
                for name in sorted(names, key=order):
                    several = [run for run in same if (run.game, run.variant) == (game, name)]
                    for split in splits:
                        lines = [curve_of(run, split) for run in several]
                        dashed = split == "test" and len(splits) > 1
                        panels.setdefault(game, []).append(Line(name, lines, dashed))
            about = f"{title}\n{same[0].scale}; {seeds_text(same)}"
            yield drawing.panels(about, panels, note=missing_text(list(panels), games, same))

    return draw


def _at_common_steps(runs: Sequence[AgentRun]) -> tuple[int, list[Cell]]:
    steps = common_steps(runs)
    return steps, [cell for cell in cells(runs) if cell.env_steps == steps]


def alpha(runs: Runs) -> Iterator["Figure"]:
    """Return on unseen levels against alpha, PPO as a line."""
    chosen = {run.path: value for run in runs.agents if (value := _alpha_of(run)) is not None}
    for same in _by_scale([run for run in runs.agents if run.path in chosen]).values():
        steps, found = _at_common_steps(same)
        panels: dict[str, dict[float, Estimate]] = {}
        for cell in found:
            panels.setdefault(cell.game, {})[chosen[cell.runs[0].path]] = cell.estimate("test")
        panels = {game: values for game, values in panels.items() if len(values) > 1}
        if not panels:
            continue
        base = runs.select(scale_key=same[0].scale_key, variant="ppo")
        level = {c.game: ("ppo", c.estimate("test")) for c in cells(base) if c.env_steps == steps}
        title = f"Figure 5. Return on unseen levels against alpha\n{_about(same, steps)}"
        yield drawing.against(title, panels, level, "alpha", "return on unseen levels")


def _alpha_of(run: AgentRun) -> float | None:
    """Alpha of a run of CLOP with nothing else changed."""
    name = run.variant
    if name == "clop":
        return paper_alpha(run.game)
    if name.startswith("clop(alpha=") and "," not in name:
        return float(name.removeprefix("clop(alpha=").removesuffix(")"))
    return None


def _place(variant: str) -> int:
    return _ABLATIONS.index(variant) if variant in _ABLATIONS else len(_ABLATIONS)


def ablation(title: str, games: Sequence[str], wide: bool) -> Callable[[Runs], Iterator["Figure"]]:
    """PPO, CLOP and CLOP without one of its properties; ``wide`` has its other places in the network too."""

    def is_one(name: str) -> bool:
        moved = name.startswith(("clop(slot=", "clop(critic=")) and "," not in name
        return name in _ABLATIONS or (wide and moved)

    def draw(runs: Runs) -> Iterator["Figure"]:
        chosen = [run for run in runs.agents if run.game in games and is_one(run.variant)]
        for same in _by_scale(chosen).values():
            steps, found = _at_common_steps(same)
            panels: dict[str, dict[str, Estimate]] = {}
            for cell in sorted(found, key=lambda c: (c.game, _place(c.variant), c.variant)):
                panels.setdefault(cell.game, {})[cell.variant] = cell.estimate("test")
            panels = {game: v for game, v in panels.items() if any(name not in ("ppo", "clop") for name in v)}
            if panels:
                about = f"{title}\n{_about(same, steps)}"
                yield drawing.points(
                    about, panels, "return on unseen levels", note=missing_text(list(panels), games, same)
                )

    return draw


def histograms(runs: Runs) -> Iterator["Figure"]:
    """Differences of normalised scores of CLOP and IDAAC, game by game, published and ours."""
    published: dict[str, dict[str, float]] = {"train": {}, "test": {}}
    for row in read_table("normalized_score"):
        if row["method"] == "clop_minus_idaac":
            published[row["split"]][row["game"]] = float(row["score"])
    yield _bars("Figure 11. Normalised score × 100, CLOP − IDAAC: published, 25 M steps, 5 seeds", published)
    for same in _by_scale([run for run in runs.agents if run.variant in ("clop", "idaac")]).values():
        steps, found = _at_common_steps(same)
        ours: dict[str, dict[str, float]] = {"train": {}, "test": {}}
        by_game: dict[str, dict[str, Cell]] = {}
        for cell in found:
            by_game.setdefault(cell.game, {})[cell.variant] = cell
        for game, both in by_game.items():
            if len(both) == 2 and game in GAMES:
                for split, values in ours.items():
                    a, b = (normalised(both[name], split).value or 0.0 for name in ("clop", "idaac"))
                    values[game] = a - b
        if ours["test"]:
            title = f"Figure 11. Normalised score × 100, CLOP − IDAAC: ours\n{_about(same, steps)}"
            note = missing_text(list(ours["test"]), list(GAMES))
            yield _bars(f"{title}\n{note}" if note else title, ours)


def _bars(title: str, by_split: Mapping[str, Mapping[str, float]]) -> "Figure":
    figure = new_figure(9.0, 3.4)
    for axes, (split, values) in zip(figure.subplots(1, 2), by_split.items(), strict=True):
        ordered = sorted(values, key=lambda game: (values[game], game))
        palette = [drawing.colours(["clop", "idaac"])["clop" if values[game] > 0 else "idaac"] for game in ordered]
        axes.bar(range(len(ordered)), [values[game] for game in ordered], color=palette)
        axes.set_xticks(range(len(ordered)), ordered, rotation=90)
        axes.axhline(0, color="black", linewidth=0.8)
        drawing.name_panel(axes, {"train": "training levels", "test": "unseen levels"}[split])
        drawing.tidy(axes, "", "CLOP − IDAAC")
    drawing.head(figure, title)
    return figure


def depth(runs: Runs) -> Iterator["Figure"]:
    """Accuracy against the stage that CLOP follows."""
    for task in ("mnist-usps", "stl10"):
        by_protocol: dict[str, dict[float, Estimate]] = {}
        plain: dict[str, Estimate] = {}
        about: dict[str, str] = {}
        for group in groups(runs.classifiers, task):
            summary = group.first.summary
            found = student_estimate(group.values("test"))
            if summary.label == "plain":
                plain[group.protocol] = found
            elif (
                summary.slot and summary.method == "clop" and summary.changed in ({}, {"clop": {"slot": summary.slot}})
            ):
                stage = float(summary.slot.removeprefix("stage"))
                by_protocol.setdefault(group.protocol, {})[stage] = found
                about[group.protocol] = group.scale
        for protocol, values in by_protocol.items():
            if len(values) > 1:
                counts = sorted({found.n for found in values.values()})
                seeds = " to ".join(dict.fromkeys(map(str, (counts[0], counts[-1]))))
                title = f"Figure 14. Accuracy against the stage that CLOP follows\n{about[protocol]}; {seeds} seeds"
                level = {task: ("plain network", plain[protocol])} if protocol in plain else {}
                yield drawing.against(title, {task: values}, level, "stage", "test accuracy, %")


_BOTH = ("train", "test")
PAPER_FIGURES = (
    PaperFigure(
        "figure4",
        "Figure 4. Return on unseen levels over steps, hard, by method",
        curves("Figure 4. Return on unseen levels, hard", "hard", None, ("miner", "chaser", "dodgeball"), ("test",)),
        sweep_command("paper-hard", games=["miner", "chaser", "dodgeball"]),
    ),
    PaperFigure("figure5", "Figure 5. Influence of alpha", alpha, sweep_command("paper-alpha", games=ABLATION_GAMES)),
    PaperFigure(
        "figure7",
        "Figure 7. Ablations on three games",
        ablation("Figure 7. Ablations", ABLATION_GAMES, wide=True),
        " && ".join(
            sweep_command(name, games=ABLATION_GAMES) for name in ("paper-ablation", "paper-depth", "paper-critic")
        ),
    ),
    PaperFigure(
        "figure10",
        "Figure 10. Learning curves of PPO and CLOP, easy",
        curves("Figure 10. Learning curves, easy", "easy", ("ppo", "clop"), tuple(GAMES), _BOTH),
        sweep_command("paper-easy", methods=["ppo", "clop"]),
    ),
    PaperFigure(
        "figure11",
        "Figure 11. CLOP and IDAAC, game by game",
        histograms,
        sweep_command("paper-easy", methods=["clop", "idaac"]),
    ),
    PaperFigure(
        "figure12",
        "Figure 12. Learning curves of PPO and CLOP, hard",
        curves("Figure 12. Learning curves, hard", "hard", ("ppo", "clop"), tuple(GAMES), _BOTH),
        sweep_command("paper-hard", methods=["ppo", "clop"]),
    ),
    PaperFigure(
        "figure13",
        "Figure 13. Ablations on all games",
        ablation("Figure 13. Ablations", tuple(GAMES), wide=False),
        sweep_command("paper-ablation"),
    ),
    PaperFigure(
        "figure14",
        "Figure 14. Place of CLOP in classifiers",
        depth,
        " && ".join(sweep_command(name, methods=["clop"]) for name in ("paper-mnist-usps", "paper-stl10")),
    ),
)
