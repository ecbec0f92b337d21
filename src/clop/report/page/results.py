"""Results on the page: curves and tables of agents and classifiers, every number a link to its runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clop.report import published
from clop.report.outcomes import Cell, cells
from clop.report.page import chart
from clop.report.page.chart import COLOURS
from clop.report.page.curves import MOST_POINTS, Curve, training_curve, unseen_curve
from clop.report.page.html import anchor, escape, link, number, spaced, table
from clop.report.runs import AgentRun
from clop.rl.games import GAMES

MARKS = ("●", "■", "▲", "◆")
_MANY = 6  # methods, of which only the first few are switched on at the beginning
_FEW = 2
_BUDGET = 24_000  # points of lines in all charts, which keeps the page of a thousand runs below 2 MB
_FIRST = ("ppo", "clop")


@dataclass(frozen=True)
class Comparable:
    """Runs on one game at one scale: those that one chart shows."""

    game: str
    scale: str
    mode: str
    by_method: Mapping[str, Sequence[AgentRun]]

    @property
    def count(self) -> int:
        return sum(map(len, self.by_method.values()))

    @property
    def runs(self) -> list[AgentRun]:
        return [run for runs in self.by_method.values() for run in runs]


def comparable(runs: Sequence[AgentRun]) -> list[Comparable]:
    """Runs in groups: first those that compare CLOP with PPO on most seeds, then those with most methods."""
    found: dict[tuple[str, str], list[AgentRun]] = {}
    for run in runs:
        found.setdefault((run.game, run.scale_key), []).append(run)
    groups = []
    for (game, _), same in found.items():
        names = sorted({run.variant for run in same}, key=_place)
        by_method = {name: [run for run in same if run.variant == name] for name in names}
        groups.append(Comparable(game, same[0].scale, same[0].mode, by_method))
    return sorted(groups, key=_weight)


def _weight(group: Comparable) -> tuple[int, int, int, str, str]:
    seeds = min(len(group.by_method.get(name, ())) for name in _FIRST)
    return -seeds, -len(group.by_method), -group.count, group.game, group.scale


def _place(method: str) -> tuple[int, str]:
    return (_FIRST.index(method) if method in _FIRST else len(_FIRST), method)


def colours(groups: Sequence[Comparable]) -> dict[str, int]:
    """A number for each method, the same in all charts, which decides its colour and its mark."""
    names = sorted({name for group in groups for name in group.by_method}, key=_place)
    return {name: index for index, name in enumerate(names)}


def section(runs: Sequence[AgentRun]) -> str:
    """Charts and tables of agents, and what to switch them with."""
    groups = comparable(runs)
    if not groups:
        return ""
    numbers = colours(groups)
    points = max(16, min(MOST_POINTS, _BUDGET // len(runs)))
    main = [group for group in groups if group.count > 1]
    single = [group for group in groups if group.count == 1]
    shown = "".join(_game(group, numbers, points) for group in main)
    if single:
        inside = "".join(_game(group, numbers, points) for group in single)
        title = f"{len(single)} single {'run' if len(single) == 1 else 'runs'} with settings of their own"
        shown += f"<details{'' if main else ' open'}><summary>{title}</summary>{inside}</details>"
    return f"""<section id="results">
<h2>Learning curves</h2>
<p>Return over training. Solid lines with marks are unseen levels, dashed lines the running return of training. A band
is an interval of 95&nbsp;% over seeds and is drawn from three seeds on; each seed is a faint line. Point at a chart, or
focus it and press the arrow keys, for the numbers. Every number in a table leads to its runs.</p>
{_legend(numbers)}
{shown}
</section>"""


def _legend(numbers: Mapping[str, int]) -> str:
    first = len(numbers) if len(numbers) <= _MANY else _FEW
    methods = "".join(
        f'<label class="key m{index % COLOURS}"><input type="checkbox" data-toggle-method="{escape(name)}"'
        f"{' checked' if index < first else ''}><i>{_mark(index)}</i>{escape(name)}</label>"
        for name, index in numbers.items()
    )
    methods += '<button type="button" data-toggle-all>all</button>' if first < len(numbers) else ""
    parts = "".join(
        f'<label class="key"><input type="checkbox" data-toggle-part="{part}" checked>{text}</label>'
        for part, text in (
            ("test", "unseen levels"),
            ("train", "training"),
            ("band", "intervals"),
            ("seed", "each seed"),
        )
    )
    return (
        f'<form class="legend" autocomplete="off"><fieldset><legend>methods</legend>{methods}</fieldset>'
        f"<fieldset><legend>show</legend>{parts}</fieldset></form>"
    )


def _mark(index: int) -> str:
    return MARKS[chart.mark_of(index)]


def _game(group: Comparable, numbers: Mapping[str, int], points: int) -> str:
    curves = {
        name: {"train": training_curve(runs, points), "test": unseen_curve(runs)}
        for name, runs in group.by_method.items()
    }
    methods = "one method" if len(curves) == 1 else f"{len(curves)} methods"
    count = "one run" if group.count == 1 else f"{group.count} runs"
    drawn = chart.chart(f"learning curves on {group.game}: {methods}, {count}", curves, numbers, points)
    return f"""<article class="game" data-game="{escape(group.game)}">
<h3>{escape(group.game)} <small>{escape(group.scale)}; {methods}, {count}</small></h3>
<figure class="curves">{drawn}<div class="readout" role="status" aria-live="polite"></div>
<script type="application/json">{_data(curves, numbers)}</script></figure>
{_table(group)}
</article>"""


def _data(curves: Mapping[str, Mapping[str, Curve]], numbers: Mapping[str, int]) -> str:
    """What the script needs to show numbers under the pointer."""
    scale = chart.scale_of(curves)
    values = {
        "steps": scale.steps,
        "left": chart.LEFT,
        "right": chart.WIDTH - chart.RIGHT,
        "methods": {
            name: {
                "colour": numbers[name] % COLOURS,
                "mark": _mark(numbers[name]),
                **{split: [point.plain() for point in curve.mean] for split, curve in splits.items()},
            }
            for name, splits in curves.items()
        },
    }
    return json.dumps(values, separators=(",", ":")).replace("<", "\\u003c")


def _table(group: Comparable) -> str:
    papers = published.agents("procgen_easy_test") if group.game in GAMES and group.mode == "easy" else {}
    rows = []
    found = sorted(cells(group.runs), key=lambda cell: (-cell.env_steps, _place(cell.variant)))
    has_paper = any((group.game, cell.variant) in papers for cell in found)
    for cell in found:
        target = cell_anchor(cell)
        row = [escape(cell.variant), str(len(cell.runs)), spaced(cell.env_steps)]
        row += [link(target, number(cell.estimate(quantity))) for quantity in ("train", "test", "gap")]
        if has_paper:
            paper = papers.get((group.game, cell.variant))
            row.append("–" if paper is None else escape(str(paper)))
        rows.append(row)
    header = ["method", "seeds", "steps", "training levels", "unseen levels", "gap"]
    if has_paper:
        header.append("paper, unseen<br><small>25 M steps, 200 levels, ±</small>")
    return table(header, rows, f"Return on {escape(group.game)}; in brackets intervals of 95&nbsp;% over seeds")


def cell_anchor(cell: Cell) -> str:
    """Where the runs of a cell are listed."""
    return anchor("cell", cell.game, cell.scale_key, cell.env_steps, cell.variant)
